//! Tests that the handler of each Configuration in `examples/` accepts it, and that it requests the device it finds.
//! The Configurations in `tests/akri/`, which have the shapes of Akri's chart, must be read completely.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use petiole::{api::configuration::Configuration, discovery::handlers::builtin};
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

#[test]
fn akris_configurations_are_read_whole() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/akri");
    let mut names = BTreeSet::new();
    for file in folder.read_dir().unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let written: Value = serde_saphyr::from_str(&text).unwrap();
        let read: Configuration = serde_json::from_value(written.clone()).unwrap();
        let kept = serde_json::to_value(&read).unwrap();
        assert_kept(&path.display().to_string(), &written, &kept);
        let info = &read.spec.discovery_handler;
        if let Some(handler) = builtin().iter().find(|h| h.name() == info.name) {
            let taken = handler.prepare(&info.discovery_details).map(drop);
            assert_eq!(taken, Ok(()), "{}", path.display());
        }
        names.insert(read.spec.discovery_handler.name);
    }
    let shapes = ["debugEcho", "onvif", "opcua", "udev"].map(String::from);
    assert_eq!(names, BTreeSet::from(shapes));
}

/// Asserts that every value in `written` is also in `kept`. `null` is ignored.
fn assert_kept(path: &str, written: &Value, kept: &Value) {
    match written {
        Value::Object(fields) => {
            for (name, field) in fields {
                assert_kept(&format!("{path}.{name}"), field, &kept[name]);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                assert_kept(&format!("{path}[{index}]"), item, &kept[index]);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            assert_eq!(written, kept, "{path}");
        }
    }
}

/// Checks a Configuration. Returns the name of its handler.
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
    let containers = spec["brokerSpec"]["brokerPodSpec"]["containers"].as_array();
    assert!(
        containers.is_some() || spec["whenGone"] == "Evict",
        "{file}: a broker, or Pods that follow the device"
    );
    for container in containers.into_iter().flatten() {
        let limits = &container["resources"]["limits"];
        assert_eq!(
            limits["{{PLACEHOLDER}}"], "1",
            "{file}: asks for its device"
        );
    }
    name.to_owned()
}
