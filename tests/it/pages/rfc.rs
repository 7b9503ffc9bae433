//! Checks that the table of RFC 6762 in the page of `petiole-mdns` names files and tests that exist.
use super::{
    page::{read, root},
    security::{rows, sources, tests_in},
};
use std::fs;

const CRATE: &str = "crates/petiole-mdns";
const TABLE: &str = "RFC 6762, section by section";

#[test]
fn every_section_has_a_file_and_tests() {
    let code = root().join(CRATE).join("src");
    let mut files = vec![];
    sources(&code, &mut files);
    let texts: Vec<String> = (files.iter())
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let known = tests_in(&texts);
    let page = read(&format!("{CRATE}/README.md"));
    let rows = rows(page.section(TABLE));
    assert!(rows.len() >= 20);
    let named = |cell: &str| -> Vec<String> {
        let names = cell.split('`').skip(1).step_by(2);
        names.map(str::to_owned).collect()
    };
    let mut faults = vec![];
    for row in rows {
        let [section, _, file, tests] = row[..] else {
            panic!("a row has four cells: {row:?}");
        };
        let (file, tests) = (named(file), named(tests));
        let is_whole = file.len() == 1 && !tests.is_empty();
        if !is_whole || !code.join(&file[0]).exists() || !tests.iter().all(|t| known.contains(t)) {
            faults.push(format!("{section}: {file:?} {tests:?}"));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
