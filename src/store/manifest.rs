//! Reads Configurations from the text of a manifest. Pure.
use crate::{
    api::{
        configuration::{Configuration, Problem},
        names,
        reason::Reason,
    },
    model::typed_names::ConfigurationKey,
    yaml,
};
use serde_json::Value;

/// A document of a manifest that is not a usable Configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unreadable {
    /// The key of the Configuration, if it can be read.
    pub(super) key: Option<ConfigurationKey>,
    pub(super) problem: Problem,
}

/// Parses the Configurations of a YAML or JSON text, document by document.
pub fn read(text: &str) -> Result<Vec<Configuration>, String> {
    let (configurations, unreadable) = read_each(text);
    match unreadable.into_iter().next() {
        Some(first) => Err(first.problem.message),
        None => Ok(configurations),
    }
}

pub(super) fn read_each(text: &str) -> (Vec<Configuration>, Vec<Unreadable>) {
    let documents: Vec<Value> = match yaml::from_multiple(text) {
        Ok(documents) => documents,
        Err(e) => {
            let problem = Problem::new(
                Reason::Unreadable,
                format!("it is neither YAML nor JSON: {e}"),
            );
            return (vec![], vec![Unreadable { key: None, problem }]);
        }
    };
    let mut read = (vec![], vec![]);
    for document in documents.into_iter().filter(|d| !d.is_null()) {
        match configuration(document) {
            Ok(configuration) => read.0.push(configuration),
            Err(unreadable) => read.1.push(unreadable),
        }
    }
    read
}

fn configuration(document: Value) -> Result<Configuration, Unreadable> {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").filter(|name| !name.is_empty());
    let namespace = text("/metadata/namespace").filter(|namespace| !namespace.is_empty());
    let key = name.map(|n| ConfigurationKey::new(namespace.unwrap_or("default"), n));
    let refused = |reason: Reason, message: String| Unreadable {
        key: key.clone(),
        problem: Problem::new(reason, message),
    };
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    if (api_version, kind) != (Some(names::API_VERSION), Some("Configuration")) {
        let found = format!(
            "{}, {}",
            api_version.unwrap_or("none"),
            kind.unwrap_or("none")
        );
        let message =
            format!("apiVersion and kind are {found}; they must be akri.sh/v0, Configuration");
        return Err(Unreadable {
            key: None,
            problem: Problem::new(Reason::NotAConfiguration, message),
        });
    }
    let Some(ConfigurationKey { namespace, .. }) = key.clone() else {
        let message = "metadata.name is missing".to_owned();
        return Err(refused(Reason::Unreadable, message));
    };
    let mut unknown = vec![];
    let mut note = |path: serde_ignored::Path<'_>| unknown.push(path.to_string());
    let noting = serde_ignored::Deserializer::new(&document, &mut note);
    // The error begins with the field's path.
    let mut configuration: Configuration = serde_path_to_error::deserialize(noting)
        .map_err(|e| refused(Reason::Unreadable, e.to_string()))?;
    // kubectl rejects a manifest with unknown fields too: a misspelt field would be lost silently.
    let is_known =
        |field: &str| matches!(field, "apiVersion" | "kind") || field.starts_with("metadata.");
    let unknown: Vec<&str> = unknown
        .iter()
        .map(String::as_str)
        .filter(|f| !is_known(f))
        .collect();
    if !unknown.is_empty() {
        return Err(refused(
            Reason::UnknownField,
            format!("unknown field {}", unknown.join(", ")),
        ));
    }
    configuration.metadata.namespace = Some(namespace);
    Ok(configuration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAMERAS: &str = "
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: cameras}
spec:
  discoveryHandler: {name: zeroconf, discoveryDetails: 'kind: _rtsp._tcp'}
";

    #[test]
    fn a_mode_in_a_brokers_spec_is_octal_when_it_begins_with_0() {
        let spec = "  brokerSpec: {brokerPodSpec: {volumes: [{configMap: {defaultMode: 0400}}]}}";
        let configurations = read(&format!("{CAMERAS}{spec}")).unwrap();
        let spec = serde_json::to_value(&configurations[0].spec).unwrap();
        let mode = "/brokerSpec/brokerPodSpec/volumes/0/configMap/defaultMode";
        assert_eq!(spec.pointer(mode), Some(&serde_json::json!(256)));
    }

    #[test]
    fn defaults_are_those_of_the_schema() {
        // A template may have written nothing.
        let templated = CAMERAS.replace("cameras}", "cameras, namespace: ''}");
        assert_eq!(read(&templated).unwrap(), read(CAMERAS).unwrap());
        let configurations = read(CAMERAS).unwrap();
        let spec = &configurations[0].spec;
        assert_eq!(
            (spec.capacity, spec.grace_period_seconds, spec.max_instances),
            (1, 60, 1000)
        );
        assert_eq!(
            crate::cluster::configuration_key(&configurations[0].metadata),
            ConfigurationKey::new("default", "cameras")
        );
    }

    #[test]
    fn one_bad_document_leaves_the_others() {
        let text = format!(
            "{CAMERAS}---\nkind: Pod\n---\n{}",
            CAMERAS.replace("cameras", "more")
        );
        let (configurations, unreadable) = read_each(&text);
        assert_eq!(configurations.len(), 2);
        assert_eq!(unreadable[0].problem.reason, "NotAConfiguration");
    }

    #[test]
    fn every_refusal_names_the_place() {
        for (change, message) in [
            (("name: cameras", "x: y"), "metadata.name is missing"),
            (
                ("spec:", "spec:\n  capcity: 2"),
                "unknown field spec.capcity",
            ),
            (
                ("spec:", "spec:\n  capacity: two"),
                "invalid type: string \"two\", expected i32",
            ),
            (("spec:", "spec: ["), "it is neither YAML nor JSON"),
            (("v0", "v1"), "they must be akri.sh/v0, Configuration"),
        ] {
            let refusal = read(&CAMERAS.replacen(change.0, change.1, 1)).unwrap_err();
            assert!(refusal.contains(message), "{refusal}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd_to_be_refused(text in "\\PC{0,200}", cut in 0_usize..150) {
            read_each(&text);
            let cut = CAMERAS.floor_char_boundary(cut);
            read_each(&CAMERAS[..cut]);
        }
    }
}
