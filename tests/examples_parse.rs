//! Every Configuration in `examples/` is one that its handler takes and that asks for the device it finds.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use petiole::discovery::handlers::builtin;
use serde_json::Value;
use std::{collections::BTreeSet, path::Path};

#[test]
fn every_example_is_taken_by_its_handler() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut handlers_seen = BTreeSet::new();
    for file in folder.read_dir().unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for configuration in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            if configuration["kind"] == "Configuration" {
                handlers_seen.insert(check(name, &configuration));
            }
        }
    }
    let built_in: BTreeSet<String> = builtin().iter().map(|h| h.name().to_owned()).collect();
    assert_eq!(handlers_seen, built_in, "each handler has an example");
}

/// The name of its handler.
fn check(file: &str, configuration: &Value) -> String {
    assert_eq!(configuration["apiVersion"], "akri.sh/v0", "{file}");
    assert_eq!(
        configuration["metadata"]["name"], *file,
        "named as its file"
    );
    let spec = &configuration["spec"];
    let name = spec["discoveryHandler"]["name"].as_str().unwrap();
    let details = spec["discoveryHandler"]["discoveryDetails"]
        .as_str()
        .unwrap();
    let handlers = builtin();
    let handler = handlers.iter().find(|h| h.name() == name);
    let handler = handler.unwrap_or_else(|| panic!("{file}: no handler {name}"));
    if let Err(error) = handler.prepare(details) {
        panic!("{file}: {error}");
    }
    assert!(spec["capacity"].as_u64().is_some_and(|c| c > 0), "{file}");
    let containers = spec["brokerSpec"]["brokerPodSpec"]["containers"]
        .as_array()
        .unwrap();
    for container in containers {
        let limits = &container["resources"]["limits"];
        assert_eq!(
            limits["{{PLACEHOLDER}}"], "1",
            "{file}: asks for its device"
        );
    }
    name.to_owned()
}
