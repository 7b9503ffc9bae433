//! Translates what generic-device-plugin and smarter-device-manager were told into Configurations with the same resource names, so
//! that no Pod changes; Akri's Configurations are checked. Pure.
//!
//! `documents` finds what each plugin was told, `generic` and `smarter` make a [`Draft`] of each entry, and this file holds it to what
//! agents accept. What has no counterpart is refused with the reason.
mod converted;
mod documents;
mod draft;
mod generic;
mod smarter;

use crate::{
    agent,
    api::broker,
    discovery::{Properties, handlers},
    model::{
        container_devices::ContainerRules, limits::AGENT_CONFIGURATIONS, printable::printable,
    },
    store::manifest,
    yaml,
};
pub use converted::Converted;
use draft::Draft;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Translates the documents of manifests and of configuration files, and the arguments of a generic-device-plugin.
pub fn convert(documents: Vec<Value>, arguments: &[String]) -> Converted {
    let mut converted = Converted::default();
    let mut written: BTreeMap<String, Draft> = BTreeMap::new();
    let input = documents::read(documents, arguments, &mut converted);
    let entries = (input.sources.iter())
        .flat_map(|source| source.entries.iter().map(move |entry| (source, entry)));
    for (source, entry) in entries {
        let drafts = match entry.get("devicematch") {
            Some(_) => smarter::drafts(entry, &input.offered),
            None => generic::draft(entry, source.domain.as_deref()).map(|draft| vec![draft]),
        };
        let drafts = drafts.unwrap_or_else(|why| {
            converted.refuse(&source.origin, &why);
            vec![]
        });
        for mut draft in drafts {
            if !source.node_selector.is_null() {
                draft.spec["nodeSelector"] = source.node_selector.clone();
            }
            let name = draft.name();
            let from = format!("{}, from {}", draft.resource, source.origin);
            let manifest = json!({"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": {"name": name}, "spec": draft.spec});
            match checked(&manifest) {
                Ok(_) if written.contains_key(&name) => converted.refuse(&from, &format!("another is to be the Configuration {name}: remove one of both, or convert it by itself and rename it")),
                Ok(text) => {
                    converted.manifests += &format!("---\n# {}\n{text}", printable(&from));
                    written.insert(name, draft);
                }
                Err(why) => converted.refuse(&from, &why),
            }
        }
    }
    let has = |resource: &&String| written.values().any(|draft| draft.resource == **resource);
    for resource in input.offered.iter().filter(|resource| !has(resource)) {
        converted.refuse(resource, "a node offers it, and no devicematch that was converted is about it: write one for this device alone, such as ^video0$");
    }
    for (origin, configuration) in &input.configurations {
        match checked(configuration) {
            Ok(_) => converted.note(origin, "works as it is, with the same names. A handler that is not built in needs handlers.enabled of the chart, udev needs udev.enabled and udev.subsystems, and valueFrom needs discoveryProperties"),
            Err(why) => converted.refuse(origin, &why),
        }
    }
    if input.sources.is_empty() && input.configurations.is_empty() && converted.refused == 0 {
        converted.refuse("the input", "it has no device plugin and no Configuration");
    }
    say_values(&Vec::from_iter(written.into_values()), &mut converted);
    converted
}

/// Returns the text of a Configuration; an error if it would not be ready.
fn checked(configuration: &Value) -> Result<String, String> {
    let text = yaml::to_string(configuration).map_err(|e| e.to_string())?;
    let read = manifest::read(&text)?.pop().ok_or("it is empty")?;
    // All that agents can be told to allow: that is for the values of the chart.
    let containers = ContainerRules {
        paths: vec![String::new()],
        cdi_folder: Some("/var/run/cdi".into()),
    };
    let namespace = (configuration.pointer("/metadata/namespace")).and_then(Value::as_str);
    let namespace = namespace.filter(|namespace| !namespace.is_empty());
    agent::check(&read, namespace, &containers).map_err(|problem| problem.message)?;
    broker::check(&read).map_err(|e| e.to_string())?;
    let spec = &read.spec;
    if let (Some(name), None) = (&spec.resource_name, spec.resource()) {
        return Err(format!("{name:?} is not the name of a resource"));
    }
    let info = &spec.discovery_handler;
    let mut handlers = handlers::builtin().into_iter();
    let handler = handlers.find(|handler| handler.name() == info.name);
    if let Some(handler) = handler {
        let prepared = handler.prepare(&info.discovery_details, &Properties::new());
        prepared.map_err(|e| e.to_string())?;
    }
    Ok(text)
}

/// Says which values of the chart the Configurations need, as arguments of `helm upgrade`.
fn say_values(drafts: &[Draft], converted: &mut Converted) {
    let list = |name: &str, mut entries: Vec<&str>| {
        entries.sort_unstable();
        entries.dedup();
        (!entries.is_empty()).then(|| format!("  --set '{name}={{{}}}'", entries.join(",")))
    };
    let all = |text: fn(&Draft) -> Option<&str>| drafts.iter().filter_map(text).collect();
    let prefixes = all(|draft| draft.resource.split('/').next().filter(|p| *p != "akri.sh"));
    let further = all(|draft| {
        let path = draft.text("/containerDevices/path");
        path.filter(|path| !path.starts_with("/dev/"))
    });
    let usb: Vec<&str> = all(|draft| draft.allow.is_empty().then_some("usb"));
    let allow = drafts.iter().flat_map(|draft| &draft.allow);
    if !usb.is_empty() {
        converted.note("USB", "each USB device is a device of its own; in generic-device-plugin all that a group matches are one");
    }
    let values = [
        // Resources without a configured name keep the first prefix.
        list("resourcePrefixes", prefixes).map(|list| list.replace("={", "={akri.sh,")),
        list("paths.allow", allow.map(String::as_str).collect()),
        list("agent.containerPaths", further),
        list("udev.enabled=true,udev.subsystems", usb),
        (drafts.len() > AGENT_CONFIGURATIONS)
            .then(|| format!("  --set agent.maxConfigurations={}", drafts.len())),
    ];
    if !drafts.is_empty() {
        converted.said.push("values of the chart that these Configurations need, beside yours (paths.allow: of a link also what it leads to):".to_owned());
    }
    converted.said.extend(values.into_iter().flatten());
}

#[cfg(test)]
mod tests;
