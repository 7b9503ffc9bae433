//! Checks that `docs/security.md` names an existing test for each promise, and lists every variable that is refused.
use super::page::{code_of_tables, read, root};
use petiole::model::variables::Variables;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Collects all Rust sources and end-to-end suites.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
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

#[test]
fn every_test_that_the_page_names_exists() {
    let mut files = vec![];
    for folder in ["src", "tests"] {
        sources(&root().join(folder), &mut files);
    }
    let texts: Vec<String> = (files.iter())
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let page = read("docs/security.md");
    let is_test = |name: &&str| {
        let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        name.bytes().all(is_word) && name.matches('_').count() >= 3 && !name.starts_with("petiole_")
    };
    let names: BTreeSet<&str> = (code_of_tables(&page.text).into_iter())
        .filter(is_test)
        .collect();
    assert!(names.len() > 30, "{names:?}");
    let exists = |name: &&str| {
        let (function, step) = (format!("fn {name}("), format!("\n{name}() {{"));
        (texts.iter()).any(|text| text.contains(&function) || text.contains(&step))
    };
    let missing: Vec<&&str> = names.iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
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
