//! The definitions in `crds/` and in the chart are what `petiole crds` prints.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::{collections::BTreeSet, fs, path::Path, process::Command};

#[test]
fn the_files_are_what_the_program_prints() {
    let now = tempfile::tempdir().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_petiole"))
        .args(["crds", "--dir"])
        .arg(now.path())
        .status();
    assert!(status.unwrap().success());
    assert_eq!(
        names(now.path()),
        BTreeSet::from(["configurations.akri.sh.yaml", "instances.akri.sh.yaml"].map(String::from))
    );
    for folder in ["crds", "charts/petiole/crds"] {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let command = format!("regenerate it: cargo run -- crds --dir {folder}");
        assert_eq!(names(&kept), names(now.path()), "{folder}: {command}");
        for name in names(now.path()) {
            let read = |folder: &Path| fs::read_to_string(folder.join(&name)).unwrap();
            assert!(
                read(&kept) == read(now.path()),
                "{folder}/{name} is not what the program prints; {command}"
            );
        }
    }
}

#[test]
fn every_field_is_described() {
    let output = Command::new(env!("CARGO_BIN_EXE_petiole"))
        .arg("crds")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut fields = 0;
    for crd in serde_saphyr::from_multiple::<serde_json::Value>(&text).unwrap() {
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let schema = &version["schema"]["openAPIV3Schema"];
            fields += described(crd["metadata"]["name"].as_str().unwrap(), schema);
        }
    }
    assert!(fields > 40, "{fields} fields were looked at");
}

/// How many fields there are below; each has a description.
fn described(path: &str, schema: &serde_json::Value) -> usize {
    let mut fields = 0;
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        assert!(
            field["description"].is_string(),
            "{path} has no description"
        );
        fields += 1 + described(&path, field);
    }
    schema.get("items").map_or(fields, |items| {
        fields + described(&format!("{path}[]"), items)
    })
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect()
}
