//! Checks that the tables of RFC 6762 in the page of `petiole-mdns`, of OPC 10000-6 in that of `petiole-opcua` and of MQTT 5 in that of
//! `petiole-mqtt` name files and tests that exist.
use super::{
    page::{read, root},
    security::{rows, sources, tests_in},
};
use std::fs;

#[test]
fn every_section_of_rfc_6762_has_a_file_and_tests() {
    every_section_has_a_file_and_tests("crates/petiole-mdns", "RFC 6762, section by section", 20);
}

#[test]
fn every_section_of_opc_10000_6_has_a_file_and_tests() {
    let table = "OPC 10000-6, section by section";
    every_section_has_a_file_and_tests("crates/petiole-opcua", table, 10);
}

#[test]
fn every_section_of_mqtt_5_has_a_file_and_tests() {
    every_section_has_a_file_and_tests("crates/petiole-mqtt", "MQTT 5, section by section", 8);
}

fn every_section_has_a_file_and_tests(of: &str, table: &str, least: usize) {
    let code = root().join(of).join("src");
    let mut files = vec![];
    sources(&code, &mut files);
    let texts: Vec<String> = (files.iter())
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let known = tests_in(&texts);
    let page = read(&format!("{of}/README.md"));
    let rows = rows(page.section(table));
    assert!(rows.len() >= least);
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
