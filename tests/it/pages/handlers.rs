//! Checks that `docs/handlers.md` lists every handler, and every key of `discoveryDetails` that a handler knows.
use super::page::{first_cells, read};
use petiole::discovery::handlers::builtin;
use std::collections::BTreeSet;

#[test]
fn the_page_has_every_handler_and_no_other() {
    let page = read("docs/handlers.md");
    let (start, _) = page.text.split_once("\n## ").unwrap();
    let rows = start.lines().filter(|line| line.starts_with("| [`"));
    let documented: BTreeSet<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    let handlers = builtin();
    let built_in: BTreeSet<&str> = handlers.iter().map(|handler| handler.name()).collect();
    assert_eq!(documented, built_in);
}

#[test]
fn the_page_has_every_key_of_the_details_and_no_other() {
    let page = read("docs/handlers.md");
    for (handler, details) in [
        ("zeroconf", "{kind: _http._tcp, portt: 1}"),
        ("cdi", "{kind: vendor.com/class, portt: 1}"),
        ("opcua", "{opcuaDiscoveryMethod: {standard: {}}, portt: 1}"),
        ("onvif", "{portt: 1}"),
        ("udev", r#"{udevRules: ['TAG=="a"'], portt: 1}"#),
    ] {
        let handlers = builtin();
        let found = handlers.iter().find(|h| h.name() == handler).unwrap();
        let refusal = found.prepare(details).err().unwrap().to_string();
        let (_, known) = refusal.split_once("known here: ").unwrap();
        let mut known: BTreeSet<&str> = known.split(", ").collect();
        if handler == "zeroconf" {
            known.insert("txtRecords"); // another name of `txt`
        }
        let section = page.section(handler);
        let (keys, _) = section.split_once("A container").unwrap();
        let documented: BTreeSet<&str> = first_cells(keys).into_iter().collect();
        assert_eq!(documented, known, "{handler}");
    }
}
