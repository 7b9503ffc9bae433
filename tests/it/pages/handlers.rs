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
    // `debugEcho` names its keys in a message of its own.
    for handler in builtin().iter().filter(|h| h.name() != "debugEcho") {
        let refusal = handler.prepare("portt: 1", &Properties::new());
        let refusal = refusal.err().unwrap().to_string();
        let handler = handler.name();
        let (_, known) = refusal.split_once("known here: ").unwrap_or_else(|| {
            panic!("{handler} refuses no unknown key by `Fields::of` first: {refusal}")
        });
        let mut known: BTreeSet<String> = known.split(", ").map(str::to_owned).collect();
        if handler == "zeroconf" {
            known.insert("txtRecords".to_owned()); // another name of `txt`
        }
        assert_eq!(documented(&targets[handler]), known, "{handler}");
    }
}
