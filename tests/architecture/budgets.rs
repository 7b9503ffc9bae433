//! Gives each room a budget of lines, so that growth is a decision: of code, without comments, empty lines, tests, and what is built for
//! tests and fuzzing alone.
use super::source::{Source, production_sources};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// A budget is at most so much larger than its room: what was made smaller stays so.
const SLACK: usize = 100;
/// The lines of each room: a folder of `src/`, the files beside them, and each crate. A change that needs more raises its budget, and its
/// message says what it replaces.
const BUDGETS: &[(&str, usize)] = &[
    ("crates/petiole-base", 620),
    ("crates/petiole-cli", 1_680),
    ("crates/petiole-cluster", 1_880),
    ("crates/petiole-dra", 1_660),
    ("crates/petiole-kubelet", 4_830),
    ("crates/petiole-kubelet-api", 920),
    ("crates/petiole-mdns", 4_450),
    ("crates/petiole-model", 5_800),
    ("crates/petiole-mqtt", 1_520),
    ("crates/petiole-onvif", 1_810),
    ("crates/petiole-opcua", 1_670),
    ("crates/petiole-people", 7_240),
    ("crates/petiole-probe", 740),
    ("crates/petiole-telemetry", 1_000),
    ("src", 260),
    ("src/agent", 10_000),
    ("src/cli", 1_860),
    ("src/controller", 10_260),
    ("src/convert", 620),
    ("src/demo", 850),
    ("src/discovery", 11_330),
    ("src/merge", 1_670),
    ("src/proto", 110),
    ("src/store", 2_620),
];

/// Returns the room of a file, such as `src/agent` or `crates/petiole-mdns`.
fn room(source: &Source) -> String {
    let path = source.whole_path();
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["src", file] if !is_module_of_folder(file) => "src".to_owned(),
        ["src", file] => format!("src/{}", file.trim_end_matches(".rs")),
        [first, second, ..] => format!("{first}/{second}"),
        _ => path,
    }
}

/// Returns whether a file of `src/` is the module of a folder beside it, such as `agent.rs`.
fn is_module_of_folder(file: &str) -> bool {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    src.join(file.trim_end_matches(".rs")).is_dir()
}

/// Returns the modules that a file has for tests or fuzzing alone, such as `src/agent/simulated`.
fn modules_for_tests(source: &Source) -> Vec<String> {
    const FOR_TESTS: &[&str] = &[
        "#[cfg(test)]",
        "#[cfg(feature = \"fuzzing\")]",
        "#[cfg(any(test, feature = \"fuzzing\"))]",
        // The server that the tests of the client talk with.
        "#[cfg(any(test, feature = \"server\"))]",
    ];
    let path = source.whole_path();
    let folder = match path.strip_suffix("/lib.rs") {
        Some(root) => root,
        None => path.trim_end_matches(".rs"),
    };
    let lines = source.code.lines().zip(source.code.lines().skip(1));
    let declared = lines.filter(|(attribute, _)| FOR_TESTS.contains(&attribute.trim()));
    let names = declared.filter_map(|(_, line)| {
        let (_, name) = line.trim().strip_suffix(';')?.rsplit_once("mod ")?;
        Some(format!("{folder}/{name}"))
    });
    names.collect()
}

/// Returns what is wrong with a room that has so many lines.
fn fault(room: &str, lines: usize, budget: usize) -> Option<String> {
    let is = |what: &str| {
        Some(format!(
            "{room} has {lines} lines, and its budget {budget} is {what}"
        ))
    };
    match budget {
        _ if lines > budget => is("used up: say less, or raise it"),
        _ if budget > lines + SLACK => is("too large: lower it"),
        _ => None,
    }
}

#[test]
fn every_room_keeps_its_budget_of_lines() {
    let mut rooms: BTreeMap<String, usize> = BTreeMap::new();
    let sources = production_sources();
    let for_tests: Vec<String> = sources.iter().flat_map(modules_for_tests).collect();
    let is_built = |source: &&Source| {
        let path = source.whole_path();
        let is_of = |module: &String| {
            let rest = path.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        !for_tests.iter().any(is_of)
    };
    for source in sources.iter().filter(is_built) {
        *rooms.entry(room(source)).or_default() += source.lines();
    }
    let budgets: BTreeMap<&str, usize> = BUDGETS.iter().copied().collect();
    let names: BTreeSet<&str> = rooms
        .keys()
        .map(String::as_str)
        .chain(budgets.keys().copied())
        .collect();
    let faults = names.into_iter().filter_map(|name| {
        let lines = rooms.get(name).copied().unwrap_or(0);
        fault(name, lines, budgets.get(name).copied().unwrap_or(0))
    });
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn modules_for_tests_alone_are_not_counted() {
    let text = "#[cfg(test)]\npub(crate) mod simulated;\nmod slots;\n#[cfg(test)]\nmod tests;\n";
    let found = modules_for_tests(&Source::new("agent.rs", text));
    assert_eq!(found, ["src/agent/simulated", "src/agent/tests"]);
    let of_crate = Source::of(
        "crates/a/src",
        "lib.rs",
        "#[cfg(feature = \"fuzzing\")]\npub mod fuzzing;\n",
    );
    assert_eq!(modules_for_tests(&of_crate), ["crates/a/src/fuzzing"]);
}

#[test]
fn a_room_beyond_its_budget_and_a_budget_beyond_its_room_are_faults() {
    assert_eq!(fault("a", 10, 10), None);
    assert_eq!(fault("a", 10, 10 + SLACK), None);
    assert!(fault("a", 11, 10).unwrap().contains("raise it"));
    assert!(fault("a", 10, 11 + SLACK).unwrap().contains("lower it"));
    assert!(fault("new", 1, 0).is_some());
}
