//! Tests that the handler of each Configuration in `examples/` accepts it, and that it requests the device it finds.
//! The Configurations in `tests/akri/`, which have the shapes of Akri's chart, must be read completely.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use petiole::{
    api::configuration::Configuration,
    discovery::{Properties, handlers::builtin},
};
use serde_json::Value;
use std::{collections::BTreeSet, path::Path};

/// The folders with examples.
const EXAMPLES: &str = "examples";
const RECIPES: &str = "examples/recipes";
const STORIES: &str = "examples/dra";

#[test]
fn every_example_is_taken_by_its_handler() {
    let mut handlers_seen = BTreeSet::new();
    for (name, text) in manifests(EXAMPLES).into_iter().chain(manifests(RECIPES)) {
        for configuration in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            if configuration["kind"] == "Configuration" {
                handlers_seen.insert(check(&name, &configuration));
                let by_claim = format!("deviceClassName: akri.default.{name}");
                let by_resource = format!("akri.sh/{name}: 1");
                let is_asked_for = ["{{PLACEHOLDER}}", &by_resource, &by_claim];
                let mut is_asked_for = is_asked_for.iter();
                assert!(is_asked_for.any(|name| text.contains(*name)), "{name}");
            }
        }
    }
    let built_in: BTreeSet<String> = builtin().iter().map(|h| h.name().to_owned()).collect();
    assert_eq!(handlers_seen, built_in, "each handler has an example");
}

#[test]
fn every_recipe_has_a_deployment_a_line_on_its_page_and_a_line_in_its_suite() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let page = read("docs/recipes.md");
    let suite = read("tests/e2e/recipes.suite.sh");
    let given: BTreeSet<&str> = suite
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("give "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let recipes = manifests(RECIPES);
    let names: BTreeSet<&str> = recipes.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(given, names, "the suite gives each recipe");
    for (name, text) in &recipes {
        assert!(
            page.contains(&format!("(../{RECIPES}/{name}.yaml)")),
            "{name}"
        );
        let documents = serde_saphyr::from_multiple::<Value>(text).unwrap();
        let deployment = documents.iter().find(|d| d["kind"] == "Deployment");
        let deployment = deployment.unwrap_or_else(|| panic!("{name}: no Deployment"));
        assert_eq!(deployment["metadata"]["name"], **name);
        let template = &deployment["spec"]["template"];
        assert_eq!(template["metadata"]["labels"]["app"], **name);
        let limits = &template["spec"]["containers"][0]["resources"]["limits"];
        assert_eq!(limits[format!("akri.sh/{name}")], 1, "{name}");
    }
}

#[test]
fn every_story_of_claims_is_on_its_page_and_in_its_suite() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let page = read("docs/dra.md");
    let suite = read("tests/e2e/claims_stories.suite.sh");
    for (name, text) in manifests(STORIES) {
        let link = format!("(../{STORIES}/{name}.yaml)");
        assert!(page.contains(&link), "{name}");
        let function = format!("\nstory_{}() {{\n", name.replace('-', "_"));
        let is_run = name == "devices" || suite.contains(&function);
        assert!(is_run, "{name}: no {}", function.trim());
        for document in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            if document["kind"] == "Configuration" {
                take(&name, &document["spec"]["discoveryHandler"]);
            }
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the text of each manifest of a folder, with the name of its file.
fn manifests(folder: &str) -> Vec<(String, String)> {
    let files = root().join(folder).read_dir().unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|e| e == "yaml"));
    let named = paths.map(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(&path).unwrap())
    });
    named.collect()
}

#[test]
fn akris_configurations_are_read_whole() {
    let folder = root().join("tests/akri");
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
            let taken = handler
                .prepare(&info.discovery_details, &Properties::new())
                .map(drop);
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
    let name = take(file, &spec["discoveryHandler"]);
    assert!(spec["capacity"].as_u64().is_some_and(|c| c > 0), "{file}");
    let broker = &spec["brokerSpec"]["brokerPodSpec"];
    for container in broker["containers"].as_array().into_iter().flatten() {
        let limits = &container["resources"]["limits"];
        assert_eq!(
            limits["{{PLACEHOLDER}}"], "1",
            "{file}: asks for its device"
        );
    }
    name
}

/// Checks that the handler accepts its details. Returns the name of the handler.
fn take(file: &str, discovery_handler: &Value) -> String {
    let name = discovery_handler["name"].as_str().unwrap();
    let details = discovery_handler["discoveryDetails"].as_str().unwrap();
    let handlers = builtin();
    let handler = handlers.iter().find(|h| h.name() == name);
    let handler = handler.unwrap_or_else(|| panic!("{file}: no handler {name}"));
    if let Err(error) = handler.prepare(details, &Properties::new()) {
        panic!("{file}: {error}");
    }
    name.to_owned()
}
