//! The module map of `src/lib.rs`: who may import whom, and which files must stay pure.
use crate::source::{CodePath, Source, production_sources};

/// The layers from the root to the leaves. A module imports from later lines, never from its own or an earlier one: agent,
/// controller and kubelet communicate over their sockets only. The kubelet is a crate, and so are the modules that the crates
/// petiole-model and petiole-people have.
const LAYERS: &[&[&str]] = &[
    &["main", "lib"],
    &["cli"],
    &["convert", "demo"],
    &["node_view"],
    &["live"],
    &["agent", "controller", "inspect", "kubelet"],
    &["discovery", "store"],
    &["merge"],
    &["api"],
    &["model"],
];
/// Modules with effects for every layer above the pure ones, each with the modules that it may import. Those without a file in
/// `src` are crates, or of petiole-base.
const BASE: &[(&str, &[&str])] = &[
    ("backoff", &[]),
    ("cluster", &["backoff", "model", "telemetry"]),
    ("files", &[]),
    ("folder_watch", &[]),
    ("own_thread", &[]),
    ("pace", &["backoff"]),
    ("proto", &[]),
    ("publish", &[]),
    ("screen", &[]),
    ("supervisor", &[]),
    ("telemetry", &["model"]),
    ("yaml", &[]),
];
/// Layers of values, which import nothing of `BASE`.
const VALUES: &[&str] = &["api", "merge", "model"];
/// Paths that are effects.
const EFFECTS: &[&str] = &[
    "crate::cluster",
    "crate::files",
    "crate::folder_watch",
    "fastrand",
    "futures",
    "kube::Api",
    "kube::Client",
    "kube::api",
    "kube::client",
    "kube::runtime",
    "mdns_sd::ServiceDaemon",
    "nix",
    "petiole_base::files",
    "petiole_base::folder_watch",
    "petiole_cluster",
    "petiole_kubelet_api::uds",
    "petiole_mdns::Mdns",
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
/// Types below these paths that only hold values. Pure files may import them.
const VALUES_AMONG_EFFECTS: &[&str] = &[
    "crate::cluster::parts",
    "fastrand::Rng",
    "petiole_cluster::parts",
    "std::io::Error",
    "std::io::ErrorKind",
    "tokio::time::Instant",
];
/// Words that are effects.
const EFFECTFUL_WORDS: &[&str] = &[
    "async fn",
    "async move",
    ".await",
    "::now()",
    // It has no seed.
    "Rng::new(",
    "SystemTime::",
];

/// Returns whether `path` is `parent` or below it.
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

/// Returns the path of an item as the map names it: `main.rs` is another crate and names ours, and some modules are crates.
fn own_path(path: &str) -> Option<&str> {
    let roots = [
        "crate::",
        "petiole::",
        "petiole_base::",
        "petiole_model::",
        "petiole_people::",
    ];
    let within = roots.into_iter().find_map(|root| path.strip_prefix(root));
    within.or_else(|| {
        let path = path.strip_prefix("petiole_")?;
        let crates = ["cli", "cluster", "kubelet", "telemetry"];
        crates.iter().any(|name| is_in(path, name)).then_some(path)
    })
}

/// Returns the top-level module that a path names.
fn target_module(path: &str) -> Option<&str> {
    let target = own_path(path)?.split("::").next().unwrap();
    (layer(target).is_some() || base(target).is_some()).then_some(target)
}

/// Returns the permissions in `BASE` that no file uses.
fn unused_permissions(sources: &[Source]) -> Vec<String> {
    let pairs =
        (BASE.iter()).flat_map(|(module, targets)| targets.iter().map(move |t| (*module, *t)));
    let is_used = |module: &str, target: &str| {
        let mut files = sources.iter().filter(|source| source.module() == module);
        files.any(|file| {
            let mut paths = file.paths().into_iter();
            paths.any(|path| own_path(&path.path).is_some_and(|path| is_in(path, target)))
        })
    };
    pairs
        .filter(|(module, target)| !is_used(module, target))
        .map(|(module, target)| format!("{module} may import {target}, and does not"))
        .collect()
}

/// Returns the faults of a file, one line each.
fn faults(source: &Source) -> Vec<String> {
    let module = source.module();
    let mut faults = vec![];
    if source.is_mapped() && layer(module).is_none() && base(module).is_none() {
        let message = "is on no line of LAYERS or BASE in tests/architecture: give it a place";
        faults.push(format!("{}: {module} {message}", source.whole_path()));
    }
    for CodePath { offset, path } in source.paths() {
        let is_within = source.crate_module().is_some() && path.starts_with("crate::");
        let target = target_module(&path).filter(|_| source.is_mapped() && !is_within);
        if let Some(target) = target.filter(|target| !may_import(module, target)) {
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

#[test]
fn modules_import_only_what_the_map_allows_and_decisions_are_pure() {
    let sources = production_sources();
    assert!(sources.iter().filter(|s| s.is_pure()).count() > 10);
    let faults: Vec<_> = sources.iter().flat_map(faults).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_permission_is_used() {
    let unused = unused_permissions(&production_sources());
    assert!(unused.is_empty(), "{}", unused.join("\n"));
}

#[test]
fn a_permission_that_nobody_uses_is_reported() {
    let unused = unused_permissions(&[Source::new("pace.rs", "use crate::backoff::Backoff;")]);
    assert!(!unused.contains(&"pace may import backoff, and does not".to_owned()));
    assert!(unused.contains(&"telemetry may import model, and does not".to_owned()));
}

/// Returns the faults of a file with this name and text, without their positions.
fn faults_of(path: &str, text: &str) -> Vec<String> {
    let faults = faults(&Source::new(path, text));
    let message = |fault: String| fault.split_once(": ").unwrap().1.to_owned();
    faults.into_iter().map(message).collect()
}

#[test]
fn an_import_against_the_direction_is_caught_however_it_is_written() {
    for text in [
        "use petiole_kubelet::Settings;",
        "use petiole_kubelet::{\n    Settings,\n    client::{self, Client},\n};",
        "fn f() -> petiole_kubelet::Settings { todo!() }",
        "fn f(a: Option<petiole_kubelet::Settings>) {}",
        "pub(super) use petiole_kubelet::client::*;",
    ] {
        let found = faults_of("agent/slots.rs", text);
        assert_eq!(found[0], "agent imports kubelet", "{text}");
    }
    assert_eq!(
        faults_of("model/slot.rs", "use crate::{api::names, files};"),
        [
            "model imports api",
            "model imports files",
            "crate::files in a pure file"
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
    use crate::{demo, store::manifest};
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
