//! Defines the fields of a CDI file and the rules for their values. Pure.
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The major and the minor number of a `cdiVersion`. The third number of every release is 0.
pub(super) type Version = (u64, u64);

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct SpecFile {
    pub(super) cdi_version: String,
    pub(super) kind: String,
    annotations: Option<Annotations>,
    pub(super) devices: Vec<Device>,
    container_edits: Option<ContainerEdits>,
}

pub(super) type Annotations = BTreeMap<String, String>;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) annotations: Option<Annotations>,
    container_edits: ContainerEdits,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct ContainerEdits {
    env: Option<Vec<String>>,
    device_nodes: Option<Vec<DeviceNode>>,
    net_devices: Option<Vec<NetDevice>>,
    hooks: Option<Vec<Hook>>,
    mounts: Option<Vec<Mount>>,
    intel_rdt: Option<IntelRdt>,
    additional_gids: Option<Vec<u32>>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "fields whose type alone is held to the schema")]
struct DeviceNode {
    path: String,
    host_path: Option<String>,
    r#type: Option<String>,
    major: Option<i64>,
    minor: Option<i64>,
    file_mode: Option<u32>,
    permissions: Option<String>,
    uid: Option<u32>,
    gid: Option<u32>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct NetDevice {
    host_interface_name: String,
    name: String,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "fields whose type alone is held to the schema")]
struct Mount {
    host_path: String,
    container_path: String,
    options: Option<Vec<String>>,
    r#type: Option<String>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "fields whose type alone is held to the schema")]
struct Hook {
    hook_name: String,
    path: String,
    args: Option<Vec<String>>,
    env: Option<Vec<String>>,
    timeout: Option<u32>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "fields whose type alone is held to the schema")]
struct IntelRdt {
    #[serde(rename = "closID")]
    clos_id: Option<String>,
    l3_cache_schema: Option<String>,
    mem_bw_schema: Option<String>,
    schemata: Option<Vec<String>>,
    enable_monitoring: Option<bool>,
    /// This field and `enableMBM` exist until version 1.0.0.
    #[serde(rename = "enableCMT")]
    enable_cmt: Option<bool>,
    #[serde(rename = "enableMBM")]
    enable_mbm: Option<bool>,
}

impl SpecFile {
    pub(super) fn check(&self, version: Version) -> Result<(), String> {
        if self.devices.is_empty() {
            return Err("devices is empty; a CDI file describes one device at least".to_owned());
        }
        check_annotations("annotations", self.annotations.as_ref())?;
        if let Some(edits) = &self.container_edits {
            edits.check("containerEdits", version)?;
        }
        let mut names = BTreeSet::new();
        for device in &self.devices {
            let at = format!("device {:?}", device.name);
            let is_first = |c: char| c.is_ascii_alphanumeric();
            let is_inner = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
            if !is_name(&device.name, is_first, is_inner) {
                return Err(format!(
                    "{at}: a name has letters, digits, `_`, `-`, `.` and `:`, a letter or digit first and last"
                ));
            }
            if !names.insert(&device.name) {
                return Err(format!("{at} is there twice"));
            }
            if device.container_edits.is_empty() {
                return Err(format!(
                    "{at}: containerEdits is empty, it would change nothing"
                ));
            }
            check_annotations(&at, device.annotations.as_ref())?;
            device.container_edits.check(&at, version)?;
        }
        self.check_version(version)
    }

    /// Rejects a file that uses a field which its version did not have yet, as container runtimes do.
    fn check_version(&self, version: Version) -> Result<(), String> {
        let annotated = |a: &Option<Annotations>| a.as_ref().is_some_and(|a| !a.is_empty());
        let class = self.kind.split_once('/').map(|(_, class)| class);
        let is_digit = |c: char| c.is_ascii_digit();
        let own = [
            (
                (0, 6),
                "annotations",
                annotated(&self.annotations)
                    || self.devices.iter().any(|d| annotated(&d.annotations)),
            ),
            (
                (0, 6),
                "a class with a dot",
                class.is_some_and(|class| class.contains('.')),
            ),
            (
                (0, 5),
                "a device name that begins with a digit",
                self.devices.iter().any(|d| d.name.starts_with(is_digit)),
            ),
        ];
        let edits = self.devices.iter().map(|device| &device.container_edits);
        let of_edits = edits
            .chain(&self.container_edits)
            .flat_map(ContainerEdits::newer);
        let too_new = (own.into_iter().chain(of_edits))
            .find(|(since, _, is_used)| *is_used && version < *since);
        match too_new {
            Some(((major, minor), what, _)) => Err(format!(
                "cdiVersion {}: {what} came with {major}.{minor}.0; write that version",
                self.cdi_version
            )),
            None => Ok(()),
        }
    }
}

fn is_none<T>(list: &Option<Vec<T>>) -> bool {
    list.as_ref().is_none_or(Vec::is_empty)
}

impl ContainerEdits {
    /// Returns the fields that later versions added: the version, the name, and whether the file uses the field.
    fn newer(&self) -> [(Version, &'static str, bool); 6] {
        let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let rdt = self.intel_rdt.as_ref();
        let mut nodes = self.device_nodes.iter().flatten();
        let mut mounts = self.mounts.iter().flatten();
        [
            ((1, 1), "netDevices", !is_none(&self.net_devices)),
            (
                (1, 1),
                "intelRdt.schemata or intelRdt.enableMonitoring",
                rdt.is_some_and(|rdt| rdt.schemata.is_some() || rdt.enable_monitoring.is_some()),
            ),
            ((0, 7), "intelRdt", rdt.is_some()),
            ((0, 7), "additionalGids", !is_none(&self.additional_gids)),
            (
                (0, 5),
                "deviceNodes.hostPath",
                nodes.any(|node| is_set(&node.host_path)),
            ),
            (
                (0, 4),
                "mounts.type",
                mounts.any(|mount| is_set(&mount.r#type)),
            ),
        ]
    }

    fn is_empty(&self) -> bool {
        is_none(&self.env)
            && is_none(&self.device_nodes)
            && is_none(&self.net_devices)
            && is_none(&self.hooks)
            && is_none(&self.mounts)
            && is_none(&self.additional_gids)
            && self.intel_rdt.is_none()
    }

    fn check(&self, at: &str, version: Version) -> Result<(), String> {
        check_env(at, self.env.as_deref())?;
        for node in self.device_nodes.iter().flatten() {
            node.check()
                .map_err(|why| format!("{at}: deviceNodes {:?}: {why}", node.path))?;
        }
        for mount in self.mounts.iter().flatten() {
            if mount.host_path.is_empty() || mount.container_path.is_empty() {
                return Err(format!("{at}: mounts: hostPath or containerPath is empty"));
            }
        }
        for hook in self.hooks.iter().flatten() {
            hook.check()
                .map_err(|why| format!("{at}: hooks {:?}: {why}", hook.hook_name))?;
        }
        check_net_devices(self.net_devices.as_deref().unwrap_or_default())
            .map_err(|why| format!("{at}: netDevices: {why}"))?;
        match &self.intel_rdt {
            Some(rdt) => rdt
                .check(version)
                .map_err(|why| format!("{at}: intelRdt: {why}")),
            None => Ok(()),
        }
    }
}

impl DeviceNode {
    fn check(&self) -> Result<(), String> {
        let kind = self.r#type.as_deref().unwrap_or_default();
        let permissions = self.permissions.as_deref().unwrap_or_default();
        let number = self.major.into_iter().chain(self.minor).find(|n| *n < 0);
        match () {
            () if self.path.is_empty() => Err("path is empty".to_owned()),
            () if !matches!(kind, "" | "b" | "c" | "u" | "p") => {
                Err(format!("type {kind:?} must be b, c, u or p"))
            }
            () if permissions != "none" && !permissions.chars().all(|c| "rwm".contains(c)) => Err(
                format!("permissions {permissions:?} must be of r, w and m, or none"),
            ),
            () => match number {
                Some(number) => Err(format!("device number {number} is negative")),
                None => Ok(()),
            },
        }
    }
}

impl Hook {
    fn check(&self) -> Result<(), String> {
        const NAMES: [&str; 6] = [
            "prestart",
            "createRuntime",
            "createContainer",
            "startContainer",
            "poststart",
            "poststop",
        ];
        if !NAMES.contains(&self.hook_name.as_str()) {
            return Err(format!("hookName must be one of {}", NAMES.join(", ")));
        }
        if self.path.is_empty() {
            return Err("path is empty".to_owned());
        }
        check_env("it", self.env.as_deref())
    }
}

impl IntelRdt {
    fn check(&self, version: Version) -> Result<(), String> {
        if version >= (1, 1) && (self.enable_cmt.is_some() || self.enable_mbm.is_some()) {
            return Err("enableCMT and enableMBM are enableMonitoring since 1.1.0".to_owned());
        }
        let id = self.clos_id.as_deref().unwrap_or_default();
        // The id is a file name, or the root.
        let is_bad = id.len() >= 4096 || matches!(id, "." | "..") || id.contains(['/', '\n']);
        if id != "/" && is_bad {
            Err(format!("closID {id:?} must be a file name or /"))
        } else {
            Ok(())
        }
    }
}

fn check_env(at: &str, env: Option<&[String]>) -> Result<(), String> {
    let is_bad = |entry: &&String| entry.find('=').is_none_or(|at| at == 0);
    match env.unwrap_or_default().iter().find(is_bad) {
        Some(entry) => Err(format!("{at}: env {entry:?} must be NAME=value")),
        None => Ok(()),
    }
}

fn check_net_devices(devices: &[NetDevice]) -> Result<(), String> {
    for (n, device) in devices.iter().enumerate() {
        let (host, name) = (&device.host_interface_name, &device.name);
        if host.is_empty() || name.is_empty() {
            return Err("hostInterfaceName or name is empty".to_owned());
        }
        let is_twin = |d: &NetDevice| d.host_interface_name == *host || d.name == *name;
        if devices[..n].iter().any(is_twin) {
            return Err(format!("{host:?} or {name:?} is there twice"));
        }
    }
    Ok(())
}

/// Checks that the keys have the form of Kubernetes: a name, optionally after a DNS subdomain and a slash.
fn check_annotations(at: &str, annotations: Option<&Annotations>) -> Result<(), String> {
    let is_label = |c: char| c.is_ascii_alphanumeric();
    let is_key = |key: &str| {
        let (domain, name) = key.split_once('/').unwrap_or(("x", key));
        let is_inner = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        domain.len() <= 253
            && domain
                .split('.')
                .all(|label| is_name(label, is_label, |c| c.is_ascii_alphanumeric() || c == '-'))
            && name.len() <= 63
            && is_name(name, is_label, is_inner)
    };
    match annotations
        .into_iter()
        .flatten()
        .find(|(key, _)| !is_key(key))
    {
        Some((key, _)) => Err(format!(
            "{at}: annotation {key:?} is not a valid key, such as vendor.com/model"
        )),
        None => Ok(()),
    }
}

/// Returns whether a name begins as required, contains only allowed characters, and ends with a letter or digit.
pub(super) fn is_name(
    name: &str,
    is_first: impl Fn(char) -> bool,
    is_inner: impl Fn(char) -> bool,
) -> bool {
    name.starts_with(is_first)
        && name.chars().all(is_inner)
        && name.ends_with(|c: char| c.is_ascii_alphanumeric())
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
