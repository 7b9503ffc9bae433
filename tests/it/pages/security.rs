//! Checks that `docs/security.md` names tests that exist for each promise, keeps everybody by one of the promises from what they
//! are not trusted to do, and lists every variable that is refused.
use super::page::{code_of_tables, read, root};
use petiole::model::variables::Variables;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Collects all Rust sources and end-to-end suites.
pub(super) fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let extension = path.extension().unwrap_or_default();
        if path.is_dir() {
            sources(&path, found);
        } else if extension == "rs" || extension == "sh" {
            found.push(path);
        }
    }
}

const PROMISES: &str = "The promises, and the tests that check them";

/// What the first table of the page says that somebody is not trusted to do, and a test of the promise that keeps them from it.
const KEPT_FROM: &[(&str, &str)] = &[
    (
        "create, describe or delete an Instance",
        "test_with_a_stolen_token_only_its_own_node_can_be_touched",
    ),
    (
        "stop an agent",
        "test_packets_without_end_hide_no_service_and_stop_no_agent",
    ),
    (
        "fill its memory",
        "large_services_take_a_bounded_amount_of_memory_and_none_that_was_there_goes",
    ),
    (
        "change another device's variables",
        "no_property_can_stand_in_for_one_of_another_device",
    ),
    (
        "start brokers again and again",
        "a_pod_of_a_device_that_moves_again_and_again_is_replaced_once_a_minute_and_has_the_last_place",
    ),
    (
        "create Pods, Jobs or Services that it could not create itself",
        "test_who_may_not_create_pods_makes_no_broker",
    ),
    (
        "offer any CDI device",
        "test_a_kind_of_cdi_device_that_is_not_allowed_is_not_offered",
    ),
    (
        "offer any device node of the nodes",
        "only_devices_and_nodes_of_allowed_subsystems_are_offered_and_the_others_are_counted",
    ),
    (
        "make a container run code by a variable",
        "test_variables_that_programs_obey_reach_no_container",
    ),
    (
        "stop agents by large numbers",
        "test_tenants_and_hosts_at_all_bounds_at_once_stop_nobody",
    ),
    (
        "hold a slot of another container",
        "a_slot_that_another_node_holds_is_held_twice_and_is_not_offered_here",
    ),
    (
        "speak for another node",
        "test_with_a_stolen_token_only_its_own_node_can_be_touched",
    ),
    (
        "write reports or slots of other nodes",
        "test_with_a_stolen_token_only_its_own_node_can_be_touched",
    ),
    (
        "read Pods",
        "test_with_a_stolen_token_only_its_own_node_can_be_touched",
    ),
    (
        "read Secrets of a namespace that `discoveryProperties.namespaces` does not name",
        "no_agent_may_read_secrets_unless_a_namespace_is_named",
    ),
    (
        "write Pods, Jobs and Services of others",
        "test_with_a_stolen_token_only_its_own_node_can_be_touched",
    ),
    (
        "write or get ConfigMaps of others",
        "test_nobody_gets_rights_on_config_maps_by_the_controller",
    ),
    (
        "act while the release stays",
        "a_release_that_is_not_being_removed_stays_with_the_reason",
    ),
];

/// A row of the tables of promises.
struct Promise<'a> {
    text: &'a str,
    tests: Vec<&'a str>,
}

/// Returns the cells of each row of the tables, without their heads.
pub(super) fn rows(section: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = section.lines().collect();
    let is_row = |n: &usize| {
        let is_head = lines
            .get(n + 1)
            .is_some_and(|next| next.starts_with("|---"));
        lines[*n].starts_with("| ") && !is_head
    };
    let cells = |n: usize| lines[n].trim_matches(['|', ' ']).split(" | ").collect();
    (0..lines.len()).filter(is_row).map(cells).collect()
}

fn promises<'a>(section: &'a str) -> Vec<Promise<'a>> {
    let promise = |cells: Vec<&'a str>| {
        let [text, tests] = cells[..] else {
            panic!("a promise has a text and its tests: {cells:?}");
        };
        let tests = tests.split('`').skip(1).step_by(2).collect();
        Promise { text, tests }
    };
    rows(section).into_iter().map(promise).collect()
}

/// Returns an error for each promise that names no test, or one that is not among `known`.
fn unchecked(promises: &[Promise<'_>], known: &BTreeSet<String>) -> Vec<String> {
    let none = promises.iter().filter(|p| p.tests.is_empty());
    let none = none.map(|p| format!("no test checks this promise, name one: {}", p.text));
    let tests = promises.iter().flat_map(|p| &p.tests);
    let missing = tests.filter(|test| !known.contains(**test));
    let missing = missing.map(|test| format!("there is no test {test}"));
    none.chain(missing).collect()
}

/// Returns the names of the tests in these sources: functions with the attribute, and steps of the end-to-end suites.
pub(super) fn tests_in(texts: &[String]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for text in texts {
        let mut is_test = false;
        for line in text.lines().map(str::trim_start) {
            if let Some((before, name)) = line.split_once("fn ").filter(|_| is_test)
                && matches!(before, "" | "async ")
            {
                names.extend(name.split(['(', '<']).next().map(str::to_owned));
                is_test = false;
            }
            is_test |= line.starts_with("#[") && line.contains("test") && !line.contains("cfg(");
            let step = line
                .strip_suffix("() {")
                .filter(|name| name.starts_with("test_"));
            names.extend(step.map(str::to_owned));
        }
    }
    names
}

#[test]
fn every_promise_names_tests_that_exist() {
    let mut files = vec![];
    for folder in ["crates", "src", "tests"] {
        sources(&root().join(folder), &mut files);
    }
    let texts: Vec<String> = (files.iter())
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let known = tests_in(&texts);
    assert!(known.len() > 1000, "{}", known.len());
    let page = read("docs/security.md");
    let promises = promises(page.section(PROMISES));
    assert!(promises.len() > 30);
    let faults = unchecked(&promises, &known);
    assert!(faults.is_empty(), "docs/security.md: {faults:#?}");
}

#[test]
fn a_promise_without_a_test_or_with_one_that_is_not_there_is_named() {
    let section = "\
text with `code`

| promise | test |
|---|---|
| One | `a_test`, `test_a_step` |
| Two `a_test` | none yet |
| Three | `a_helper` |
";
    let sources = [
        "    #[tokio::test(start_paused = true)]\n    async fn a_test() {\n    }\n    fn a_helper() {}\n",
        "test_a_step() {\n}\n",
    ];
    let known = tests_in(&sources.map(str::to_owned));
    let expected = [
        "no test checks this promise, name one: Two `a_test`",
        "there is no test a_helper",
    ];
    assert_eq!(unchecked(&promises(section), &known), expected);
}

#[test]
fn a_promise_keeps_everybody_from_what_they_are_not_trusted_to_do() {
    let page = read("docs/security.md");
    let promises = promises(page.section(PROMISES));
    let parties = rows(page.section("Who is trusted with what"));
    let clauses: BTreeSet<&str> = (parties.iter())
        .flat_map(|cells| cells[3].split("; "))
        .collect();
    let kept: BTreeSet<&str> = KEPT_FROM.iter().map(|(clause, _)| *clause).collect();
    let why = "docs/security.md, what somebody is not trusted to do, and KEPT_FROM here, with a test of the promise";
    assert_eq!(clauses, kept, "{why}");
    for (clause, test) in KEPT_FROM {
        let is_promised = promises.iter().any(|promise| promise.tests.contains(test));
        assert!(
            is_promised,
            "no promise has the test {test}, which keeps somebody from: {clause}"
        );
    }
}

#[test]
fn every_variable_that_the_page_calls_refused_is() {
    let page = read("docs/security.md");
    let names = code_of_tables(page.section("Refused variables"));
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        let example = name.replace('*', "X");
        assert!(Variables::default().refuses(&example), "{name}");
    }
}
