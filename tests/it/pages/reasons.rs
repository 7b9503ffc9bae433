//! Checks that `docs/troubleshooting.md` lists exactly the reasons of conditions, problems and Events, and the types of
//! conditions.
use super::page::read;
use petiole::api::{condition::ConditionType, reason::Reason};
use std::collections::BTreeSet;

/// Returns the reasons in the tables of the page: the first cell of Configurations and Events, the second of conditions.
fn documented_reasons() -> BTreeSet<String> {
    let mut reasons = column("Reasons of a Configuration", 0);
    reasons.extend(column("Reasons of BrokersReady", 0));
    reasons.extend(column("Conditions of an Instance", 1));
    reasons.extend(column("Events", 0));
    reasons
}

/// Returns the first word in backquotes of each cell in a column of the table in this section.
fn column(section: &str, column: usize) -> BTreeSet<String> {
    let page = read("docs/troubleshooting.md");
    let rows = page.section(section).lines();
    rows.filter(|line| line.starts_with("| `"))
        .filter_map(|row| row.split(" | ").nth(column)?.split('`').nth(1))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_page_has_every_reason_and_no_other() {
    let documented = documented_reasons();
    let reasons = Reason::ALL.iter().map(|reason| reason.as_str().to_owned());
    let reasons: BTreeSet<String> = reasons.collect();
    let missing: Vec<_> = reasons.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&reasons).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not in docs/troubleshooting.md: {missing:?}; only there: {unknown:?}"
    );
}

#[test]
fn the_page_has_every_type_of_condition_and_no_other() {
    let mut documented = column("Conditions of an Instance", 0);
    let page = read("docs/troubleshooting.md");
    let section = page.section("Reasons of a Configuration");
    assert!(section.contains("the condition `Ready`"));
    documented.insert("Ready".to_owned());
    let brokers = page.section("Reasons of BrokersReady");
    assert!(brokers.contains("the condition `BrokersReady`"));
    documented.insert("BrokersReady".to_owned());
    let types = ConditionType::ALL.iter().map(|t| t.as_str().to_owned());
    assert_eq!(documented, types.collect());
}
