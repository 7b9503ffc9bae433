//! Finds what device plugins were told in manifests, files and arguments, and what nodes offer. Pure.
use super::{converted::Converted, smarter};
use crate::yaml;
use serde_json::Value;
use std::collections::BTreeSet;

/// The origin of what stands in no object.
const FILE: &str = "the file";

/// What a plugin was told in one place.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Source {
    /// The object, for messages.
    pub(super) origin: String,
    /// The prefix of the resources of generic-device-plugin.
    pub(super) domain: Option<String>,
    /// The labels of the nodes where it runs, or null.
    pub(super) node_selector: Value,
    pub(super) entries: Vec<Value>,
    /// The ConfigMaps that its Pod has as volumes; of a file the ConfigMap that it is of.
    config_maps: Vec<ConfigMapName>,
}

/// A ConfigMap as a manifest names it, which may leave out the namespace.
#[derive(Debug, Clone, PartialEq)]
struct ConfigMapName {
    namespace: Option<String>,
    name: String,
}

#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) sources: Vec<Source>,
    /// The resources of smarter-device-manager that nodes offer.
    pub(super) offered: BTreeSet<String>,
    pub(super) configurations: Vec<(String, Value)>,
    /// The containers that read a file, and the files, which may be in other documents.
    readers: Vec<Source>,
    files: Vec<Source>,
}

pub(super) fn read(
    documents: Vec<Value>,
    arguments: &[String],
    converted: &mut Converted,
) -> Input {
    let mut input = Input::default();
    for document in documents {
        input.add(document, converted);
    }
    if !arguments.is_empty() {
        let words = arguments.iter().map(String::as_str);
        input.container(Source::new("the arguments"), words, converted);
    }
    input.give_files_to_readers(converted);
    input.sources.append(&mut input.files);
    input
}

impl Source {
    fn new(origin: &str) -> Self {
        Self {
            origin: origin.to_owned(),
            ..Self::default()
        }
    }

    /// Returns whether this plugin may have this file: by its volumes, or because nothing says whose it is.
    fn may_read(&self, file: &Self) -> bool {
        self.config_maps.is_empty() || file.config_maps.is_empty() || self.has(file)
    }

    fn has(&self, file: &Self) -> bool {
        let mut own = self.config_maps.iter();
        own.any(|own| file.config_maps.iter().any(|of| own.may_be(of)))
    }
}

impl ConfigMapName {
    fn of(metadata: &Value, name: &str) -> Self {
        Self {
            namespace: metadata["namespace"].as_str().map(str::to_owned),
            name: name.to_owned(),
        }
    }

    fn may_be(&self, other: &Self) -> bool {
        let namespaces = self.namespace.as_ref().zip(other.namespace.as_ref());
        self.name == other.name && namespaces.is_none_or(|(own, other)| own == other)
    }
}

impl Input {
    /// Gives each file what the plugin that reads it was told beside it. A file without a name, such as that of an image, is the only
    /// plugin's.
    fn give_files_to_readers(&mut self, converted: &mut Converted) {
        let readers = std::mem::take(&mut self.readers);
        let has_file = |reader: &Source| self.files.iter().any(|file| reader.may_read(file));
        for reader in readers.iter().filter(|reader| !has_file(reader)) {
            converted.refuse(&reader.origin, "it reads a file that is not in the input: add its ConfigMap, or the file of its image");
        }
        self.files.retain_mut(|file| {
            let named = readers.iter().filter(|reader| reader.has(file));
            let named: Vec<&Source> = named.collect();
            let may_read = readers.iter().filter(|reader| reader.may_read(file));
            let its = if named.is_empty() { may_read.collect() } else { named };
            let told = |reader: &Source| (reader.domain.clone(), reader.node_selector.clone());
            let [first, others @ ..] = its.as_slice() else {
                return true;
            };
            if others.iter().any(|other| told(other) != told(first)) {
                converted.refuse(&file.origin, "several plugins that were told different nodes or domains may read it: convert each with its file by itself");
                return false;
            }
            file.domain = first.domain.clone().or(file.domain.take());
            file.node_selector = first.node_selector.clone();
            true
        });
    }

    fn add(&mut self, mut document: Value, converted: &mut Converted) {
        let kind = document["kind"].as_str().unwrap_or(FILE).to_owned();
        let of = |field: &str| document["metadata"][field].as_str().unwrap_or_default();
        let origin = format!("{kind} {}/{}", of("namespace"), of("name")).replace(" /", " ");
        let origin = origin.trim_end();
        let taken = |input: &Self| input.sources.len() + input.readers.len() + input.files.len();
        let before = taken(self) + converted.refused;
        match kind.as_str() {
            "List" => {
                let items = document.get_mut("items").and_then(Value::as_array_mut);
                let items = items.into_iter().flatten().map(Value::take);
                return items.for_each(|item| self.add(item, converted));
            }
            "Configuration" => return self.configurations.push((origin.to_owned(), document)),
            "Node" => {
                let capacity = document["status"]["capacity"].as_object();
                let names = capacity.into_iter().flatten().map(|(name, _)| name);
                let names = names.filter(|name| name.starts_with(smarter::PREFIX));
                return self.offered.extend(names.cloned());
            }
            "DaemonSet" | "Deployment" | "Pod" => self.workload(&document, origin, converted),
            "ConfigMap" => {
                let texts = document["data"].as_object().into_iter().flatten();
                let texts = texts.filter_map(|(_, text)| yaml::from_str(text.as_str()?).ok());
                let files = texts.filter_map(|text| file(origin, &text));
                let config_maps = vec![ConfigMapName::of(&document["metadata"], of("name"))];
                self.files.extend(files.map(|file| Source {
                    config_maps: config_maps.clone(),
                    ..file
                }));
            }
            _ if document.is_null() => return,
            _ => self.files.extend(file(origin, &document)),
        }
        match before == taken(self) + converted.refused {
            true if kind == FILE => converted.refuse(
                origin,
                "it is no manifest, and no file of a device plugin that is known here",
            ),
            true => converted.note(origin, "left out, it is about no device plugin"),
            false => {}
        }
    }

    /// Takes the plugins among the containers of a Pod, or of an object that makes Pods.
    fn workload(&mut self, object: &Value, origin: &str, converted: &mut Converted) {
        let spec = object
            .pointer("/spec/template/spec")
            .unwrap_or(&object["spec"]);
        for container in array(&spec["containers"]) {
            let words = array(&container["command"]).chain(array(&container["args"]));
            let words = words.filter_map(Value::as_str);
            let all = container.to_string();
            let names = ["generic-device-plugin", "smarter-device-manage"];
            // An image of another name is known by its arguments.
            let has_devices = all.contains("--device") && all.contains("groups");
            if !has_devices && !names.iter().any(|name| all.contains(name)) {
                continue;
            }
            let mut source = Source::new(origin);
            source.node_selector = spec["nodeSelector"].clone();
            let projected = array(&spec["volumes"]).flat_map(|v| array(&v["projected"]["sources"]));
            let names = array(&spec["volumes"]).chain(projected);
            let names = names.filter_map(|volume| volume["configMap"]["name"].as_str());
            let names = names.map(|name| ConfigMapName::of(&object["metadata"], name));
            source.config_maps = names.collect();
            self.container(source, words, converted);
            if spec["affinity"]["nodeAffinity"].is_object() {
                converted.note(origin, "its node affinity has no counterpart: label its nodes, and add nodeSelector to the Configurations");
            }
        }
    }

    /// Takes the arguments of a plugin. All flags but two are about other things than devices.
    fn container<'a>(
        &mut self,
        mut source: Source,
        mut words: impl Iterator<Item = &'a str>,
        converted: &mut Converted,
    ) {
        while let Some(word) = words.next() {
            let parts = word.split_once('=');
            let (flag, value) = parts.map_or((word, None), |(flag, value)| (flag, Some(value)));
            if !matches!(flag, "--device" | "--domain") {
                continue;
            }
            let Some(value) = value.or_else(|| words.next()) else {
                return converted.refuse(&source.origin, &format!("{flag} has no value"));
            };
            match yaml::from_str(value) {
                _ if flag == "--domain" => source.domain = Some(value.to_owned()),
                Ok(device) => source.entries.push(device),
                Err(why) => return converted.refuse(&source.origin, &format!("--device: {why}")),
            }
        }
        if source.entries.is_empty() {
            self.readers.push(source)
        } else {
            self.sources.push(source)
        }
    }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns what a configuration file tells a plugin; `None` if it is of another program.
fn file(origin: &str, file: &Value) -> Option<Source> {
    // The values of smarter-device-manager's chart have its file in `config`.
    let lists = [file, &file["config"], &file["devices"], &file["device"]];
    let list = lists.into_iter().find_map(Value::as_array).cloned();
    let entries = list.or_else(|| Some(vec![file.get("groups").map(|_| file.clone())?]))?;
    let is_entry = |entry: &Value| entry.get("devicematch").or(entry.get("groups")).is_some();
    entries.iter().any(is_entry).then(|| Source {
        domain: file["domain"].as_str().map(str::to_owned),
        entries,
        ..Source::new(origin)
    })
}
