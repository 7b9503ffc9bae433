//! A Configuration as it is translated, and what both plugins mean by a path. Pure.
use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Draft {
    /// The whole name of the resource.
    pub(super) resource: String,
    pub(super) spec: Value,
    /// The paths of device nodes that agents must be allowed to offer; none of USB devices.
    pub(super) allow: Vec<String>,
}

impl Draft {
    pub(super) fn new(resource: String, handler: &str, details: &str, capacity: u32) -> Self {
        let spec = json!({
            "discoveryHandler": {"name": handler, "discoveryDetails": details.trim_end()},
            "instances": false,
            "capacity": capacity,
            "resourceName": resource,
        });
        Self {
            resource,
            spec,
            allow: vec![],
        }
    }

    /// Returns a text of the spec.
    pub(super) fn text(&self, pointer: &str) -> Option<&str> {
        self.spec.pointer(pointer)?.as_str()
    }

    /// Returns the name of its Configuration: that of the resource, in the letters of names.
    pub(super) fn name(&self) -> String {
        let last = self.resource.rsplit('/').next().unwrap_or_default();
        let is_other = |c: char| !c.is_ascii_alphanumeric();
        last.to_ascii_lowercase().replace(is_other, "-")
    }
}

/// Returns the pattern of the device nodes at a path. Both plugins give a folder of device nodes as one device.
pub(super) fn pattern(path: &str) -> String {
    match path.trim_end_matches('/') {
        folder @ ("/dev/dri" | "/dev/infiniband" | "/dev/input" | "/dev/snd" | "/dev/vfio") => {
            format!("{folder}/*")
        }
        _ => path.to_owned(),
    }
}

/// Returns what agents must be allowed to offer for a path: of a link that udev makes it is where that leads.
pub(super) fn allowed(path: &str) -> Vec<String> {
    let nodes = match path.split_once("/by-") {
        Some(("/dev/serial", _)) => vec!["/dev/ttyACM*", "/dev/ttyUSB*"],
        Some(("/dev/v4l", _)) => vec!["/dev/video*"],
        Some((folder, _)) => vec![folder],
        None => vec![path.trim_end_matches('/')],
    };
    nodes.into_iter().map(str::to_owned).collect()
}
