//! `docs/troubleshooting.md` lists every reason of a condition and of an Event in the source, and no other.
use super::page::{files, read, root};
use regex::Regex;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Where reasons are written.
const FOLDERS: &[&str] = &[
    "src/agent",
    "src/controller",
    "src/store",
    "src/discovery",
    "src/api",
];
/// Reasons of one word, which no pattern tells from other text.
const OF_ONE_WORD: &[&str] = &["Duplicate", "Empty", "Flapping", "Unreadable", "Working"];
/// Literals of that form that are no reasons: kinds of objects, derives, and a restart policy.
const NO_REASONS: &[&str] = &[
    "ConfigurationStatus",
    "InstanceStatus",
    "NodeDevices",
    "OnFailure",
    "PartialEq",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().unwrap() != "tests" {
            sources(&path, found);
        }
    }
    found.extend(files(folder, "rs").filter(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        !name.ends_with("tests") && !name.contains("fixtures")
    }));
}

/// Returns the literals in production code that look like a reason: `"UnknownHandler"`.
fn written() -> BTreeSet<String> {
    let literal = Regex::new(r#""([A-Z][a-z]+(?:[A-Z][a-z]*)+)""#).unwrap();
    let mut paths = vec![];
    for folder in FOLDERS {
        sources(&root().join(folder), &mut paths);
    }
    let mut reasons = BTreeSet::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let (code, _) = text
            .split_once("#[cfg(test)]\nmod tests")
            .unwrap_or((&text, ""));
        let found = literal.captures_iter(code).map(|found| found[1].to_owned());
        reasons.extend(found.filter(|word| !NO_REASONS.contains(&word.as_str())));
        for word in OF_ONE_WORD {
            if code.contains(&format!("\"{word}\"")) {
                reasons.insert((*word).to_owned());
            }
        }
    }
    reasons
}

/// Returns the reasons in the tables of the page: the first cell of Configurations and Events, the second of conditions.
fn documented() -> BTreeSet<String> {
    let page = read("docs/troubleshooting.md");
    let column = |section: &str, column: usize| -> Vec<String> {
        let rows = page
            .section(section)
            .lines()
            .filter(|line| line.starts_with("| `"));
        rows.filter_map(|row| row.split(" | ").nth(column)?.split('`').nth(1))
            .map(str::to_owned)
            .collect()
    };
    [
        column("Reasons of a Configuration", 0),
        column("Conditions of an Instance", 1),
        column("Events", 0),
    ]
    .concat()
    .into_iter()
    .collect()
}

#[test]
fn the_page_has_every_reason_and_no_other() {
    let (documented, written) = (documented(), written());
    let missing: Vec<_> = written.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&written).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not in docs/troubleshooting.md: {missing:?}; only there: {unknown:?}"
    );
}
