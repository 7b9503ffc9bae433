//! Writes CDI files, by which a container runtime gives devices to containers: one file for each claim.
//!
//! Source: `SPEC.md` of github.com/cncf-tags/container-device-interface, version 0.5.0, which has been in containerd since 1.7 and in
//! CRI-O since 1.26.
use petiole_base::files;
use serde::Serialize;
use serde_json::json;
use std::{fs, io, path::PathBuf};

/// What a container gets with a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Edits {
    /// Environment variables, as `NAME=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Mounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
}

/// A device node in a container. The runtime reads its kind and numbers from the node of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceNode {
    /// The path in the container.
    pub path: String,
    /// The path on the host; without it, the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// Any of `r`, `w` and `m` (mknod); without it, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// The mode of the node in the container; without it, the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    /// The owner in the container; without it, the container's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The group in the container; without it, the container's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// A mount in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// The path on the host.
    pub host_path: String,
    /// The path in the container.
    pub container_path: String,
    /// The options, such as `ro`, `bind`, `nosuid`.
    pub options: Vec<String>,
}

/// The files of one driver.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The folder, `/var/run/cdi` unless the runtime has another one.
    pub path: PathBuf,
    /// The first part of the names: `example.com` of `example.com/camera=1`.
    pub vendor: String,
    /// The second part of the names: `camera` of `example.com/camera=1`.
    pub class: String,
}

impl Folder {
    /// Writes the file of a claim with these devices, and returns the full name of each. It replaces the file that the claim had.
    /// A device without edits is an error, because runtimes refuse its file. Other errors name the path.
    pub fn write(&self, claim_uid: &str, devices: &[Edits]) -> io::Result<Vec<String>> {
        if devices.contains(&Edits::default()) {
            let message =
                "a CDI device needs an edit: give it a variable, a device node or a mount";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let kind = format!("{}/{}", self.vendor, self.class);
        let name = |n: usize| format!("{claim_uid}-{n}");
        let listed = devices.iter().enumerate();
        let content = json!({
            "cdiVersion": "0.5.0",
            "kind": kind,
            "devices": listed.map(|(n, edits)| json!({"name": name(n), "containerEdits": edits})).collect::<Vec<_>>(),
        });
        let path = self.file(claim_uid);
        fs::create_dir_all(&self.path).map_err(|e| files::at(&self.path, &e))?;
        files::write_atomically(&path, content.to_string().as_bytes(), 0o644)?;
        Ok((0..devices.len())
            .map(|n| format!("{kind}={}", name(n)))
            .collect())
    }

    /// Removes the file of a claim. A claim without one is no error.
    pub fn remove(&self, claim_uid: &str) -> io::Result<()> {
        files::remove(&self.file(claim_uid))
    }

    fn file(&self, claim_uid: &str) -> PathBuf {
        let name = format!("{}-{}-{claim_uid}.json", self.vendor, self.class);
        self.path.join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_claim_has_one_file_as_the_specification_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder {
            path: dir.path().join("cdi"),
            vendor: "example.com".to_owned(),
            class: "lamp".to_owned(),
        };
        let lamp = Edits {
            env: vec!["LAMP=a".to_owned()],
            device_nodes: vec![DeviceNode {
                path: "/dev/lamp".to_owned(),
                host_path: Some("/dev/lamp7".to_owned()),
                ..DeviceNode::default()
            }],
            mounts: vec![],
        };
        let bare = Edits {
            env: vec!["LAMP=b".to_owned()],
            ..Edits::default()
        };
        let names = folder.write("u", &[lamp, bare]).unwrap();
        assert_eq!(names, ["example.com/lamp=u-0", "example.com/lamp=u-1"]);
        let file = folder.path.join("example.com-lamp-u.json");
        let content: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let expected = json!({"cdiVersion": "0.5.0", "kind": "example.com/lamp", "devices": [
            {"name": "u-0", "containerEdits": {"env": ["LAMP=a"],
                "deviceNodes": [{"path": "/dev/lamp", "hostPath": "/dev/lamp7"}]}},
            {"name": "u-1", "containerEdits": {"env": ["LAMP=b"]}},
        ]});
        assert_eq!(content, expected);
        assert!(folder.write("v", &[Edits::default()]).is_err());
        folder.remove("u").unwrap();
        folder.remove("u").unwrap();
        assert_eq!(fs::read_dir(&folder.path).unwrap().count(), 0);
    }
}
