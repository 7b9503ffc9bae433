//! The module map of `src/lib.rs`, enforced: who may import whom, and which files must stay pure.
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, and clippy does not see that helpers here are tests"
)]
use std::{
    fs,
    path::{Path, PathBuf},
};

/// From the root to the leaves. A module imports from later lines, never from its own or an earlier one: agent,
/// controller and kubelet meet on the wire.
const LAYERS: &[&[&str]] = &[
    &["main", "lib"],
    &["cli"],
    &["demo"],
    &["agent", "controller", "kubelet", "tidy"],
    &["discovery", "store"],
    &["api"],
    &["model"],
];
/// Ways to touch the world, each with the ones it stands on. For every layer above the pure ones.
const BASE: &[(&str, &[&str])] = &[
    ("backoff", &[]),
    ("cluster", &["backoff", "model", "telemetry"]),
    ("files", &[]),
    ("folder_watch", &["backoff", "files"]),
    ("pace", &["backoff"]),
    ("proto", &[]),
    ("supervisor", &[]),
    ("telemetry", &["model", "supervisor"]),
    ("uds", &["files"]),
    ("yaml", &[]),
];
/// Layers of values only: nothing of `BASE` here.
const VALUES: &[&str] = &["api", "model"];
/// Paths that mean an effect.
const EFFECTS: &[&str] = &[
    "crate::cluster",
    "crate::files",
    "crate::folder_watch",
    "crate::uds",
    "fastrand",
    "futures",
    "kube::Api",
    "kube::Client",
    "kube::api",
    "kube::client",
    "kube::runtime",
    "mdns_sd::ServiceDaemon",
    "nix",
    "notify",
    "std::env",
    "std::fs",
    "std::io",
    "std::os",
    "std::process",
    "std::sync::mpsc",
    "std::thread",
    "tokio",
    "tokio_stream",
    "tonic::transport",
];
/// What a pure file may import of the above: types that only hold values.
const VALUES_AMONG_EFFECTS: &[&str] = &[
    "fastrand::Rng",
    "std::io::Error",
    "std::io::ErrorKind",
    "tokio::time::Instant",
];
/// Words that mean an effect.
const EFFECTFUL_WORDS: &[&str] = &[
    "async fn",
    "async move",
    ".await",
    "::now()",
    // Without a seed.
    "Rng::new(",
    "SystemTime::",
];

/// One source file: where it is, and its code without comments and tests.
struct Source {
    /// Relative to `src/`, such as `agent/slots/plan.rs`.
    path: String,
    docs: String,
    code: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let production = text.split("\nmod tests {").next().unwrap();
        let is_comment = |line: &&str| line.trim_start().starts_with("//");
        let blanked = |line| if is_comment(&line) { "" } else { line };
        Self {
            path: path.to_owned(),
            docs: text
                .lines()
                .take_while(|line| line.starts_with("//!"))
                .collect(),
            // A line each, so that line numbers stay right.
            code: production
                .lines()
                .map(blanked)
                .collect::<Vec<_>>()
                .join("\n"),
        }
    }

    fn module(&self) -> &str {
        self.path.split('/').next().unwrap().trim_end_matches(".rs")
    }

    /// `model/`, every `plan.rs`, a handler's `details.rs` and `service.rs`, and whatever says so of itself.
    fn is_pure(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap();
        let is_handler = self.path.starts_with("discovery/handlers/");
        self.module() == "model"
            || name == "plan.rs"
            || is_handler && matches!(name, "details.rs" | "service.rs")
            || self.docs.contains("Pure.")
    }

    fn at(&self, offset: usize) -> String {
        let line = self.code[..offset].matches('\n').count() + 1;
        format!("src/{}:{line}", self.path)
    }

    /// Every path of the code with its offset: those of `use` declarations in full, and those written out in place.
    fn paths(&self) -> Vec<(usize, String)> {
        let mut paths = vec![];
        let mut rest = 0;
        while let Some(start) = next_path(&self.code, rest) {
            let end = read_path(&self.code, start, "", &mut paths);
            rest = end.max(start + 1);
        }
        paths
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where the next `word::` begins that is not itself inside a path.
fn next_path(code: &str, from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(colons) = code[at..].find("::").map(|i| at + i) {
        let start = code[..colons].rfind(|c| !is_word(c)).map_or(0, |i| i + 1);
        if start >= from && start < colons {
            return Some(start);
        }
        at = colons + 2;
    }
    None
}

/// Reads a path, or a tree of them in braces, and notes each one. Returns where it ends.
fn read_path(code: &str, start: usize, prefix: &str, paths: &mut Vec<(usize, String)>) -> usize {
    let mut path = prefix.to_owned();
    let mut at = start;
    loop {
        let word: String = code[at..].chars().take_while(|c| is_word(*c)).collect();
        at += word.len();
        path.push_str(&word);
        let Some(after) = code[at..].strip_prefix("::") else {
            break;
        };
        at += 2;
        path.push_str("::");
        if after.starts_with('{') {
            return read_tree(code, at + 1, &path, paths);
        }
    }
    paths.push((start, path));
    at
}

fn read_tree(code: &str, start: usize, prefix: &str, paths: &mut Vec<(usize, String)>) -> usize {
    let mut at = start;
    while let Some(c) = code[at..].chars().next() {
        match c {
            '}' => return at + 1,
            c if is_word(c) => at = read_path(code, at, prefix, paths),
            c => at += c.len_utf8(),
        }
    }
    at
}

/// `path` is `parent`, or in it.
fn is_in(path: &str, parent: &str) -> bool {
    let rest = path.strip_prefix(parent);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn base(module: &str) -> Option<&'static [&'static str]> {
    let known = BASE.iter().find(|(name, _)| *name == module);
    known.map(|(_, stands_on)| *stands_on)
}

fn may_import(module: &str, target: &str) -> bool {
    if module == target {
        return true;
    }
    match (base(module), layer(module), layer(target)) {
        (Some(stands_on), _, _) => stands_on.contains(&target),
        (None, Some(_), None) => base(target).is_some() && !VALUES.contains(&module),
        (None, Some(from), Some(to)) => from < to,
        (None, None, _) => false,
    }
}

/// What is wrong with a file, a line each.
fn faults(source: &Source) -> Vec<String> {
    let module = source.module();
    let mut faults = vec![];
    if layer(module).is_none() && base(module).is_none() {
        let message = "is on no line of LAYERS or BASE in tests/architecture: give it a place";
        faults.push(format!("src/{}: {module} {message}", source.path));
    }
    for (offset, path) in source.paths() {
        // `main.rs` is another crate and calls ours by its name.
        let ours = path
            .strip_prefix("crate::")
            .or_else(|| path.strip_prefix("petiole::"));
        let target = ours.map(|path| path.split("::").next().unwrap());
        let is_module = |target: &&str| layer(target).is_some() || base(target).is_some();
        if let Some(target) = target.filter(is_module)
            && !may_import(module, target)
        {
            faults.push(format!("{}: {module} imports {target}", source.at(offset)));
        }
        let is_effect = EFFECTS.iter().any(|effect| is_in(&path, effect));
        let is_value = VALUES_AMONG_EFFECTS.iter().any(|value| is_in(&path, value));
        if source.is_pure() && is_effect && !is_value {
            faults.push(format!("{}: {path} in a pure file", source.at(offset)));
        }
    }
    for word in EFFECTFUL_WORDS.iter().filter(|_| source.is_pure()) {
        for (offset, _) in source.code.match_indices(word) {
            faults.push(format!("{}: `{word}` in a pure file", source.at(offset)));
        }
    }
    faults
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = vec![];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let is_test = |path: &Path| {
        path.file_stem()
            .unwrap()
            .to_str()
            .unwrap()
            .ends_with("tests")
    };
    let mut sources = vec![];
    for path in files_below(&root) {
        if path.extension().is_some_and(|e| e == "rs") && !is_test(&path) {
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
            sources.push(Source::new(name, &fs::read_to_string(&path).unwrap()));
        }
    }
    sources
}

#[test]
fn modules_import_only_what_the_map_allows_and_decisions_are_pure() {
    let sources = sources();
    assert!(sources.iter().filter(|s| s.is_pure()).count() > 10);
    let faults: Vec<_> = sources.iter().flat_map(faults).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The faults of a file of this name with this text, without their place.
fn faults_of(path: &str, text: &str) -> Vec<String> {
    let faults = faults(&Source::new(path, text));
    let message = |fault: String| fault.split_once(": ").unwrap().1.to_owned();
    faults.into_iter().map(message).collect()
}

#[test]
fn an_import_against_the_direction_is_caught_however_it_is_written() {
    for text in [
        "use crate::kubelet::Pod;",
        "use crate::{\n    api::names,\n    kubelet::{self, Pod},\n};",
        "fn f() -> crate::kubelet::Pod { todo!() }",
        "fn f(a: Option<crate::kubelet::Pod>) {}",
        "pub(super) use crate::kubelet::pods::*;",
    ] {
        let found = faults_of("agent/slots.rs", text);
        assert_eq!(found[0], "agent imports kubelet", "{text}");
    }
    assert_eq!(
        faults_of("model/slot.rs", "use crate::{api::names, uds};"),
        [
            "model imports api",
            "model imports uds",
            "crate::uds in a pure file"
        ]
    );
    assert_eq!(
        faults_of("main.rs", "use petiole::{cli, telemetry};"),
        [""; 0]
    );
    assert_eq!(
        faults_of("helpers.rs", ""),
        ["helpers is on no line of LAYERS or BASE in tests/architecture: give it a place"]
    );
}

#[test]
fn an_effect_in_a_decision_is_caught_however_it_is_written() {
    for (text, fault) in [
        (
            "use std::{collections::BTreeMap, fs};",
            "std::fs in a pure file",
        ),
        (
            "use tokio::{\n    time::{Instant, sleep},\n};",
            "tokio::time::sleep in a pure file",
        ),
        (
            "fn f() { std::env::var(\"HOME\"); }",
            "std::env::var in a pure file",
        ),
        ("async fn f() {}", "`async fn` in a pure file"),
        (
            "fn f() -> Instant { Instant::now() }",
            "`::now()` in a pure file",
        ),
    ] {
        assert_eq!(faults_of("agent/slots/plan.rs", text), [fault], "{text}");
        assert_eq!(faults_of("model/slot.rs", text), [fault], "{text}");
        assert_eq!(
            faults_of("discovery/handlers/udev/details.rs", text),
            [fault]
        );
        assert_eq!(
            faults_of("store/text.rs", &format!("//! Reads. Pure.\n{text}")),
            [fault]
        );
        assert_eq!(faults_of("agent/slots.rs", text), [""; 0], "{text}");
    }
}

#[test]
fn comments_tests_and_values_are_no_faults() {
    let text = "\
use tokio::time::Instant;
// std::fs would be wrong here.
fn f(now: Instant) -> crate::model::names::ObjectKey { todo!() }
#[cfg(test)]
mod tests {
    use crate::{kubelet, store::manifest};
    fn g() { std::fs::read(\"x\"); }
}";
    assert_eq!(faults_of("agent/slots/plan.rs", text), [""; 0]);
}

#[test]
fn a_fault_names_its_line() {
    let source = Source::new(
        "agent/slots.rs",
        "//! Slots.\n\nuse crate::{\n    api::names,\n    demo,\n};",
    );
    assert_eq!(
        faults(&source),
        ["src/agent/slots.rs:5: agent imports demo"]
    );
}
