//! Checks the architecture: the direction of imports, the purity of decisions, and the shape of files and functions.
//!
//! It reads the sources as text and needs nothing of the crate. Rules that a part of the tree does not keep yet have a
//! list of exceptions, and an exception that is no longer needed fails like a violation.
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, and clippy does not see that helpers here are tests"
)]
mod budgets;
mod folders;
mod histories;
mod layers;
mod limits;
mod pins;
mod shape;
mod source;

/// Returns a message for each fault that is not an exception, and for each exception without a fault. `faults` and
/// `exceptions` have the same form.
fn beyond(rule: &str, faults: &[String], exceptions: &[&str]) -> Vec<String> {
    let new = faults
        .iter()
        .filter(|fault| !exceptions.contains(&fault.as_str()))
        .map(|fault| format!("{rule}: {fault}"));
    let unneeded = exceptions
        .iter()
        .filter(|exception| !faults.iter().any(|fault| fault == *exception))
        .map(|exception| {
            format!("{rule}: the exception {exception:?} is no longer needed, remove it")
        });
    new.chain(unneeded).collect()
}

#[test]
fn a_fault_without_an_exception_and_an_exception_without_a_fault_are_both_reported() {
    let faults = ["a".to_owned(), "b".to_owned()];
    assert_eq!(
        beyond("rule", &faults, &["b", "c"]),
        [
            "rule: a",
            "rule: the exception \"c\" is no longer needed, remove it"
        ]
    );
}
