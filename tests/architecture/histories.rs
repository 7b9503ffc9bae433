//! Checks that a history of the simulation follows from its seed: tokio's `select!` looks at its branches in a random order unless
//! it is `biased`.
use super::source::{Source, production_sources};

/// The folders, and files beside them, of which the simulation runs every loop.
const SIMULATED: &[&str] = &[
    "src/controller",
    "src/store",
    "src/agent/claims",
    "src/agent/configurations",
    "src/agent/instances",
    "src/agent/kubelet_records",
    "src/agent/slots",
    "src/discovery/session",
    "crates/petiole-base/src",
    "crates/petiole-cluster/src",
];
const SELECT: &str = "select! {";

/// Returns the places of each `select!` that is not biased.
fn random(source: &Source) -> Vec<String> {
    let selects = source.code.match_indices(SELECT);
    let is_random = |at: &usize| {
        let body = source.code[at + SELECT.len()..].trim_start();
        !body.starts_with("biased;")
    };
    let places = selects.map(|(at, _)| at).filter(is_random);
    places.map(|at| source.at(at)).collect()
}

fn is_simulated(path: &str) -> bool {
    SIMULATED.iter().any(|folder| path.starts_with(folder))
}

#[test]
fn what_the_simulation_runs_selects_in_a_certain_order() {
    let sources = production_sources();
    let simulated = sources
        .iter()
        .filter(|source| is_simulated(&source.whole_path()));
    let faults: Vec<String> = simulated.flat_map(random).collect();
    assert!(faults.is_empty(), "not `biased`: {faults:?}");
}

#[test]
fn a_select_that_is_not_biased_is_found() {
    let source = Source::new(
        "store/x.rs",
        "tokio::select! {\n  biased; // so\n  a => b }\ntokio::select! {\n  a => b }",
    );
    assert_eq!(random(&source), ["src/store/x.rs:4"]);
}
