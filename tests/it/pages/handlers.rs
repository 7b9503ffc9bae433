//! Checks that `docs/handlers.md` lists every handler, and that the page or section it links for each has every key of
//! `discoveryDetails` that the handler knows.
use super::page::{first_cells, read};
use petiole::discovery::{Properties, handlers::builtin};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the handlers of the first table, each with the target of its link.
fn linked() -> BTreeMap<String, String> {
    let page = read("docs/handlers.md");
    let (start, _) = page.text.split_once("\n## ").unwrap();
    let rows = start.lines().filter(|line| line.starts_with("| [`"));
    rows.map(|row| {
        let (name, rest) = row[4..].split_once("`](").unwrap();
        let (target, _) = rest.split_once(')').unwrap();
        (name.to_owned(), target.to_owned())
    })
    .collect()
}

/// Returns the keys in the tables of the section `Keys` of a page, or of the section of `docs/handlers.md`, before the variables.
fn documented(target: &str) -> BTreeSet<String> {
    let (page, section) = match target.strip_prefix('#') {
        Some(section) => (read("docs/handlers.md"), section),
        None => (read(&format!("docs/{target}")), "Keys"),
    };
    let section = page.section(section);
    let (keys, _) = section.split_once("A container").unwrap_or((section, ""));
    first_cells(keys).into_iter().map(str::to_owned).collect()
}

#[test]
fn the_page_has_every_handler_and_no_other() {
    let documented: BTreeSet<String> = linked().into_keys().collect();
    let handlers = builtin();
    let built_in = handlers.iter().map(|handler| handler.name().to_owned());
    assert_eq!(documented, built_in.collect());
}

#[test]
fn the_pages_have_every_key_of_the_details_and_no_other() {
    let targets = linked();
    for (handler, details) in [
        ("zeroconf", "{kind: _http._tcp, portt: 1}"),
        ("cdi", "{kind: vendor.com/class, portt: 1}"),
        ("paths", "{groups: /dev/kvm, portt: 1}"),
        ("opcua", "{opcuaDiscoveryMethod: {standard: {}}, portt: 1}"),
        ("mqtt", "{portt: 1}"),
        ("probe", "{portt: 1}"),
        ("onvif", "{portt: 1}"),
        ("udev", r#"{udevRules: ['TAG=="a"'], portt: 1}"#),
    ] {
        let handlers = builtin();
        let found = handlers.iter().find(|h| h.name() == handler).unwrap();
        let refusal = found.prepare(details, &Properties::new());
        let refusal = refusal.err().unwrap().to_string();
        let (_, known) = refusal.split_once("known here: ").unwrap();
        let mut known: BTreeSet<String> = known.split(", ").map(str::to_owned).collect();
        if handler == "zeroconf" {
            known.insert("txtRecords".to_owned()); // another name of `txt`
        }
        assert_eq!(documented(&targets[handler]), known, "{handler}");
    }
}
