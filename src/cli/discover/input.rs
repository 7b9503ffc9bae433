//! Reads the argument of `--details`: bare `discoveryDetails`, or a manifest that contains a Configuration.
use crate::{
    discovery::handlers::ONLY,
    model::{limits, name_template::NameTemplate},
    yaml,
};
use anyhow::{Context as _, bail};
use petiole_base::collect::CollectMap as _;
use petiole_cli::{
    discover::{END, text_of},
    table::print_error,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The details, and the other values of the Configuration.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) details: String,
    /// The `discoveryProperties`. There are none if one is in a Secret or a ConfigMap: a user without his password is refused, and a
    /// device that is asked so again and again locks him out.
    pub(super) properties: BTreeMap<String, String>,
    /// The properties that are in Secrets and ConfigMaps, which are not read here.
    unread: Vec<String>,
    pub(super) handler: Option<String>,
    pub(super) name: Option<String>,
    /// The names that the Configuration gives to Instances, and the properties that it adds.
    pub(super) template: Option<NameTemplate>,
    pub(super) broker_properties: BTreeMap<String, String>,
    /// The whole Configuration, if it is one.
    configuration: Option<Value>,
    /// The discovery ends when stdin ends.
    pub(super) is_attached: bool,
}

impl Input {
    /// Reads a file, or stdin for `-`.
    pub(super) fn read(path: &str) -> anyhow::Result<Self> {
        let input = Self::parse(text_of(path)?).with_context(|| path.to_owned())?;
        if !input.unread.is_empty() {
            let unread = input.unread.join(", ");
            print_error(&format!(
                "all discoveryProperties are left out, because Secrets and ConfigMaps are not read here ({unread}): to try them, write each `value` into a copy of the Configuration\n"
            ));
        }
        Ok(input)
    }

    fn parse(mut text: String) -> anyhow::Result<Self> {
        let is_attached = text.ends_with(char::from(END));
        if is_attached {
            text.pop();
        }
        let documents = yaml::from_multiple(&text).unwrap_or_default();
        let mut configurations = documents.iter().filter(|d| d["kind"] == "Configuration");
        let Some(configuration) = configurations.next() else {
            // The handler reports what is wrong with the details.
            return Ok(Self {
                details: text,
                properties: BTreeMap::new(),
                unread: vec![],
                handler: None,
                name: None,
                template: None,
                broker_properties: BTreeMap::new(),
                configuration: None,
                is_attached,
            });
        };
        if configurations.next().is_some() {
            bail!("holds several Configurations: give one");
        }
        let owned = |value: &Value| value.as_str().map(str::to_owned);
        let handler = &configuration["spec"]["discoveryHandler"];
        let details = match &handler["discoveryDetails"] {
            Value::Null => String::new(),
            Value::String(details) => details.clone(),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                bail!(
                    "spec.discoveryHandler.discoveryDetails must be text, which begins with |- in YAML, not {other}"
                )
            }
        };
        let properties = handler["discoveryProperties"].as_array();
        let properties = properties.map_or(&[][..], Vec::as_slice);
        let property =
            |property: &Value| Some((owned(&property["name"])?, owned(&property["value"])?));
        let elsewhere = properties.iter().filter(|its| !its["valueFrom"].is_null());
        let unread: Vec<String> = elsewhere.filter_map(|its| owned(&its["name"])).collect();
        let read = properties.iter().filter(|_| unread.is_empty());
        let template = owned(&configuration["spec"]["instanceName"]);
        let template = template.map(|text| text.parse::<NameTemplate>());
        let added = configuration["spec"]["brokerProperties"].as_object();
        Ok(Self {
            template: template.transpose().context("spec.instanceName")?,
            broker_properties: (added.into_iter().flatten())
                .filter_map(|(name, value)| Some((name.clone(), owned(value)?)))
                .collect_map(),
            details,
            properties: read.filter_map(property).collect_map(),
            unread,
            handler: Some(
                owned(&handler["name"]).context("spec.discoveryHandler.name is missing")?,
            ),
            name: owned(&configuration["metadata"]["name"]),
            configuration: Some(configuration.clone()),
            is_attached,
        })
    }

    /// Returns the details for only the devices with these ids.
    pub(super) fn details_of(&self, ids: &[&str]) -> anyhow::Result<String> {
        let mut details = yaml::bounded(&self.details, limits::DETAILS_BYTES_MAX)?;
        if details.is_null() {
            details = json!({});
        }
        let keys = details.as_object_mut();
        let keys = keys.context("discoveryDetails must be keys and values")?;
        keys.insert(ONLY.to_owned(), json!(ids));
        Ok(yaml::to_string(&details)?)
    }

    /// Returns the Configuration, or a new one with this name, for only the devices with these ids.
    pub(super) fn only(&self, handler: &str, name: &str, ids: &[&str]) -> anyhow::Result<Value> {
        let new = || {
            let spec = json!({"discoveryHandler": {"name": handler}});
            json!({"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": {"name": name}, "spec": spec})
        };
        let mut configuration = self.configuration.clone().unwrap_or_else(new);
        let details = self.details_of(ids)?;
        configuration["spec"]["discoveryHandler"]["discoveryDetails"] = json!(details);
        Ok(configuration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_details_are_taken_as_they_are() {
        let input = Input::parse("kind: _http._tcp\n".into()).unwrap();
        assert_eq!(input.details, "kind: _http._tcp\n");
        assert_eq!((input.handler, input.name), (None, None));
        assert_eq!(
            Input::parse("not: [yaml".into()).unwrap().details,
            "not: [yaml"
        );
    }

    #[test]
    fn a_text_that_ends_before_its_stdin_is_attached_to_it() {
        let input = Input::parse("kind: _http._tcp\n\0".into()).unwrap();
        assert_eq!(
            (input.details.as_str(), input.is_attached),
            ("kind: _http._tcp\n", true)
        );
        assert!(
            !Input::parse("kind: _http._tcp\n".into())
                .unwrap()
                .is_attached
        );
    }

    #[test]
    fn lines_may_end_as_windows_ends_them() {
        let input = Input::parse("kind: _http._tcp\r\n\0".into()).unwrap();
        let details = yaml::bounded(&input.details, 1000).unwrap();
        assert_eq!(details, json!({"kind": "_http._tcp"}));
        let manifest = "kind: Configuration\r\nspec:\r\n  discoveryHandler:\r\n    name: zeroconf\r\n    discoveryDetails: |-\r\n      kind: _http._tcp\r\n      name: gate\r\n";
        let input = Input::parse(manifest.into()).unwrap();
        assert_eq!(input.details, "kind: _http._tcp\nname: gate");
    }

    #[test]
    fn a_configuration_is_found_among_the_documents_of_a_manifest() {
        let manifest = "apiVersion: v1\nkind: Namespace\n---\nkind: Configuration\nmetadata: {name: cams}\n\
            spec:\n  discoveryHandler:\n    name: zeroconf\n    discoveryDetails: |-\n      kind: _http._tcp\n\
            \x20   discoveryProperties: [{name: a, value: b}, {name: c}]\n";
        let expected = Input {
            details: "kind: _http._tcp".into(),
            properties: BTreeMap::from([("a".into(), "b".into())]),
            unread: vec![],
            handler: Some("zeroconf".into()),
            name: Some("cams".into()),
            template: None,
            broker_properties: BTreeMap::new(),
            configuration: yaml::from_multiple(manifest).unwrap().pop(),
            is_attached: false,
        };
        assert_eq!(Input::parse(manifest.into()).unwrap(), expected);
        let names = "  instanceName: '{SITE}-{PORT}'\n  brokerProperties: {SITE: hall}\n";
        let input = Input::parse(format!("{manifest}{names}")).unwrap();
        assert_eq!(input.template, Some("{SITE}-{PORT}".parse().unwrap()));
        assert_eq!(input.broker_properties["SITE"], "hall");
    }

    #[test]
    fn a_user_whose_password_is_in_a_secret_is_left_out_with_it() {
        let manifest = "kind: Configuration\nspec:\n  discoveryHandler:\n    name: onvif\n    discoveryProperties:\n\
            \x20   - {name: username_default, value: petiole}\n\
            \x20   - {name: password_default, valueFrom: {secretKeyRef: {name: cams, key: password}}}\n";
        let input = Input::parse(manifest.into()).unwrap();
        assert_eq!(input.properties, BTreeMap::new());
        assert_eq!(input.unread, ["password_default"]);
    }

    #[test]
    fn a_configuration_for_marked_devices_is_the_given_one_or_new_and_finds_these_only() {
        let manifest = "kind: Configuration\nmetadata: {name: cams}\nspec:\n  capacity: 3\n  discoveryHandler:\n    name: onvif\n    discoveryDetails: |-\n      streams: true\n";
        for (text, name) in [
            (manifest, "cams"),
            ("streams: true", "onvif"),
            ("", "onvif"),
        ] {
            let input = Input::parse(text.into()).unwrap();
            let printed = input.only("onvif", "onvif", &["a", "b"]).unwrap();
            let printed = yaml::to_string(&printed).unwrap();
            let again = Input::parse(printed.clone()).unwrap();
            assert_eq!(again.name.as_deref(), Some(name), "{printed}");
            let details = yaml::bounded(&again.details, 1000).unwrap();
            assert_eq!(details[ONLY], json!(["a", "b"]), "{printed}");
            assert_eq!(details["streams"] == true, !text.is_empty(), "{printed}");
            assert_eq!(
                printed.contains("capacity: 3"),
                text == manifest,
                "{printed}"
            );
        }
    }

    #[test]
    fn a_configuration_that_cannot_be_meant_is_refused() {
        for (manifest, place) in [
            ("kind: Configuration", "spec.discoveryHandler.name"),
            ("kind: Configuration\n---\nkind: Configuration", "several"),
            (
                "{kind: Configuration, spec: {discoveryHandler: {name: a, discoveryDetails: {kind: b}}}}",
                "must be text",
            ),
            (
                "{kind: Configuration, spec: {instanceName: A, discoveryHandler: {name: a}}}",
                "spec.instanceName",
            ),
        ] {
            let message = Input::parse(manifest.into()).unwrap_err().to_string();
            assert!(message.contains(place), "{message}");
        }
    }
}
