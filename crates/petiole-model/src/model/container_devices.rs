//! Defines the part of a Configuration that says how the device nodes of its devices appear in containers, and its bounds.
//! Pure.
#![expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
use super::limits;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The folder below which every path may be chosen.
const DEVICES: &str = "/dev";
/// The rights of a device node whose owner is set and whose mode is not.
const DEFAULT_MODE: u32 = 0o660;
/// The rights to read and write. A device node is not executed.
const READ_AND_WRITE: u32 = 0o666;
/// The largest id of a user or group. The one above it means "as it is".
const LAST_ID: i64 = 4_294_967_294;
/// What container runtimes and the kubelet make below `/dev` themselves, and sockets and folders of the system there, each with
/// all that is below it.
const RUNTIMES_OWN: [&str; 20] = [
    "console",
    "core",
    "fd",
    "full",
    "hugepages",
    "initctl",
    "log",
    "mqueue",
    "null",
    "ptmx",
    "pts",
    "random",
    "shm",
    "stderr",
    "stdin",
    "stdout",
    "termination-log",
    "tty",
    "urandom",
    "zero",
];

/// How the device nodes of the devices appear in containers, beside their own names and never instead of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.path) || self.links || has(self.mode) || has(self.uid) || has(self.gid)").message("give containerDevices a path, links, mode, uid or gid, or remove it"))]
pub struct ContainerDevices {
    /// A further path of the device node, such as `/dev/zigbee`. With a slash at its end it is a folder, such as
    /// `/dev/cameras/`: there each node has the last part of its own path as its name, or the name of its Instance where two
    /// nodes of a container would have one name. It is below `/dev`, or where the agents allow it (`--container-paths`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::CONTAINER_PATH_MAX), regex(pattern = r"^(/[^/[:cntrl:]]+)+/?$"))]
    #[x_kube(validation = Rule::new("!self.matches('/[.][.]?(/|$)')").message("the path may have no `.` and `..`"))]
    #[x_kube(validation = Rule::new(format!("!self.matches('^/dev/({})(/|$)') && !self.matches('^/dev/?$')", RUNTIMES_OWN.join("|"))).message("container runtimes make this path themselves: choose another"))]
    pub path: Option<String>,

    /// True if the links that udev made for the node, such as `/dev/serial/by-id/…`, are further paths of it.
    #[serde(default)]
    pub links: bool,

    /// The rights of the device nodes in the container, as octal text: `0660` if `uid` or `gid` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^0?[0246]{3}$"))]
    pub mode: Option<String>,

    /// The user who owns the device nodes in the container; if `mode` or `gid` is set, the container's own user without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = LAST_ID))]
    pub uid: Option<i64>,

    /// The group that owns the device nodes in the container; if `mode` or `uid` is set, the container's own group without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = LAST_ID))]
    pub gid: Option<i64>,
}

/// The mode and the owner of device nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeRights {
    pub mode: u32,
    pub uid: Option<i64>,
    pub gid: Option<i64>,
}

/// What the agent of a node allows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerRules {
    /// The paths, each with all that is below it, that may be chosen besides those below `/dev`.
    pub paths: Vec<String>,
    /// The folder for CDI files, without which no mode and no owner can be set.
    pub cdi_folder: Option<PathBuf>,
}

impl ContainerDevices {
    /// Holds the fields to their bounds. Messages name the field, its value, the bound and what to do.
    pub fn check(&self, rules: &ContainerRules) -> Result<(), String> {
        if *self == Self::default() {
            let message = "containerDevices says nothing: give it a path, links, mode, uid or gid, or remove it";
            return Err(message.to_owned());
        }
        if let Some(path) = &self.path {
            check_path(path, rules)?;
        }
        if let Some(mode) = (self.mode.as_ref()).filter(|mode| parsed_mode(mode).is_none()) {
            return Err(format!(
                "containerDevices.mode is {:?}; it must be octal text of rights to read and write, 0666 at most, such as \"0660\"",
                limits::cut(mode.clone(), limits::WORD_MAX)
            ));
        }
        for (field, id) in [("uid", self.uid), ("gid", self.gid)] {
            if let Some(id) = id.filter(|id| !(0..=LAST_ID).contains(id)) {
                return Err(format!(
                    "containerDevices.{field} is {id}; it must be 0 to {LAST_ID}"
                ));
            }
        }
        if self.rights().is_some() && rules.cdi_folder.is_none() {
            let message = "containerDevices.mode, uid and gid need CDI files, and the agent of this node writes none: set cdi.write of the chart (--cdi-folder), or remove these fields";
            return Err(message.to_owned());
        }
        Ok(())
    }

    /// Returns the mode and the owner of the device nodes; `None` if they stay as the container runtime makes them.
    pub fn rights(&self) -> Option<NodeRights> {
        let is_set = self.mode.is_some() || self.uid.is_some() || self.gid.is_some();
        is_set.then(|| NodeRights {
            mode: (self.mode.as_deref())
                .and_then(parsed_mode)
                .unwrap_or(DEFAULT_MODE),
            uid: self.uid,
            gid: self.gid,
        })
    }

    /// Returns the folder with a slash at its end, if the path is one.
    pub fn folder(&self) -> Option<&str> {
        self.path.as_deref().filter(|path| path.ends_with('/'))
    }
}

fn parsed_mode(text: &str) -> Option<u32> {
    let is_octal = matches!(text.len(), 3 | 4) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| is_octal)?;
    (mode & !READ_AND_WRITE == 0).then_some(mode)
}

fn check_path(path: &str, rules: &ContainerRules) -> Result<(), String> {
    let most = limits::CONTAINER_PATH_MAX;
    let characters = path.chars().count();
    if characters > most {
        return Err(format!(
            "containerDevices.path has {characters} characters; {most} are the most: shorten it"
        ));
    }
    let plain = path.strip_suffix('/').unwrap_or(path);
    let field = format!("containerDevices.path is {path:?}");
    if !is_plain(plain) {
        return Err(format!(
            "{field}; it must be absolute, without `.`, `..`, `//` and control characters, such as \"/dev/zigbee\" or \"/dev/cameras/\""
        ));
    }
    if is_runtimes_own(plain) {
        return Err(format!(
            "{field}, which container runtimes make themselves: choose another path"
        ));
    }
    let is_allowed = is_below(plain, DEVICES)
        || (rules.paths.iter()).any(|allowed| plain == allowed || is_below(plain, allowed));
    if !is_allowed {
        let further = rules.paths.iter().map(|path| format!(" or {path}"));
        return Err(format!(
            "{field}; it must be below {DEVICES}{}: choose such a path, or let the agents allow it (agent.containerPaths of the chart, --container-paths)",
            further.collect::<String>()
        ));
    }
    Ok(())
}

/// Returns whether a path in a container is one below `/dev` at which a device node can be: of bounded length, plain, and none
/// that the container runtime makes itself.
pub fn is_below_dev(path: &str) -> bool {
    path.chars().count() <= limits::CONTAINER_PATH_MAX
        && is_plain(path)
        && is_below(path, DEVICES)
        && !is_runtimes_own(path)
}

fn is_below(path: &str, folder: &str) -> bool {
    let rest = path.strip_prefix(folder);
    rest.is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

/// Returns whether the container runtime makes this path, or a folder above it.
fn is_runtimes_own(path: &str) -> bool {
    let below = path.strip_prefix(DEVICES);
    let Some(name) = below.and_then(|rest| rest.strip_prefix('/')) else {
        return below == Some("");
    };
    let first = name.split('/').next().unwrap_or_default();
    RUNTIMES_OWN.contains(&first)
}

/// Returns whether a path names one place whatever is in the folders: it is absolute, no part of it is empty, `.` or `..`, and it
/// has no control characters.
pub fn is_plain(path: &str) -> bool {
    let is_name = |part: &str| !matches!(part, "" | "." | "..");
    let parts = path.strip_prefix('/');
    parts.is_some_and(|parts| parts.split('/').all(is_name)) && !path.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn wish(fields: Value) -> ContainerDevices {
        serde_json::from_value(fields).unwrap()
    }

    fn refused(fields: Value) -> Option<String> {
        let rules = ContainerRules {
            paths: vec!["/opt/devices".to_owned()],
            cdi_folder: Some("/var/run/cdi".into()),
        };
        wish(fields).check(&rules).err()
    }

    #[test]
    fn what_may_be_wished_is_taken() {
        for good in [
            json!({"path": "/dev/zigbee"}),
            json!({"path": "/dev/cameras/"}),
            json!({"path": "/dev/ttyS9"}),
            json!({"path": "/dev/shmem/fd"}),
            json!({"path": "/dev/logger"}),
            json!({"path": "/opt/devices"}),
            json!({"path": "/opt/devices/a/"}),
            json!({"path": format!("/dev/{}", "é".repeat(250))}),
            json!({"links": true}),
            json!({"mode": "0666", "uid": 0, "gid": 4_294_967_294_i64}),
            json!({"mode": "440"}),
        ] {
            assert_eq!(refused(good.clone()), None, "{good}");
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn each_refusal_names_the_field_the_value_the_bound_and_what_to_do() {
        for (bad, parts) in [
            (json!({}), ["says nothing", "give it a path"]),
            (json!({"links": false}), ["says nothing", "or remove it"]),
            (
                json!({"path": format!("/dev/{}", "é".repeat(251))}),
                ["path has 256 characters; 255", "shorten"],
            ),
            (
                json!({"path": "dev/a"}),
                ["path is \"dev/a\"", "must be absolute"],
            ),
            (
                json!({"path": "/dev/../etc/shadow"}),
                ["/dev/../etc/shadow", "without `.`, `..`"],
            ),
            (json!({"path": "/dev//a"}), ["/dev//a", "`//`"]),
            (json!({"path": "/dev/a//"}), ["/dev/a//", "`//`"]),
            (
                json!({"path": "/dev/a\n"}),
                ["/dev/a\\n", "control characters"],
            ),
            (json!({"path": ""}), ["path is \"\"", "must be absolute"]),
            (json!({"path": "/"}), ["path is \"/\"", "must be absolute"]),
            (
                json!({"path": "/etc/passwd"}),
                ["below /dev or /opt/devices", "agent.containerPaths"],
            ),
            (
                json!({"path": "/device"}),
                ["below /dev", "choose such a path"],
            ),
            (
                json!({"path": "/opt/devices2"}),
                ["below /dev", "--container-paths"],
            ),
            (json!({"path": "/dev"}), ["\"/dev\"", "choose another"]),
            (json!({"path": "/dev/"}), ["\"/dev/\"", "choose another"]),
            (
                json!({"path": "/dev/null"}),
                ["/dev/null", "make themselves"],
            ),
            (
                json!({"path": "/dev/shm/a"}),
                ["/dev/shm/a", "make themselves"],
            ),
            (
                json!({"path": "/dev/pts/"}),
                ["/dev/pts/", "make themselves"],
            ),
            (json!({"path": "/dev/log"}), ["/dev/log", "make themselves"]),
            (
                json!({"path": "/dev/initctl"}),
                ["/dev/initctl", "make themselves"],
            ),
            (
                json!({"path": "/dev/hugepages/a"}),
                ["/dev/hugepages/a", "make themselves"],
            ),
            (
                json!({"path": "/dev/termination-log"}),
                ["/dev/termination-log", "make themselves"],
            ),
            (
                json!({"mode": "0777"}),
                ["mode is \"0777\"", "0666 at most"],
            ),
            (json!({"mode": "1660"}), ["mode is \"1660\"", "octal text"]),
            (json!({"mode": "0668"}), ["mode is \"0668\"", "octal text"]),
            (json!({"mode": "+66"}), ["mode is \"+66\"", "octal text"]),
            (
                json!({"mode": "rw"}),
                ["mode is \"rw\"", "such as \"0660\""],
            ),
            (json!({"uid": -1}), ["uid is -1", "0 to 4294967294"]),
            (
                json!({"gid": 4_294_967_295_i64}),
                ["gid is 4294967295", "0 to 4294967294"],
            ),
        ] {
            let message = refused(bad.clone()).unwrap_or_else(|| panic!("{bad} is taken"));
            for part in parts {
                assert!(message.contains(part), "{bad}: {part:?} in {message:?}");
            }
        }
    }

    #[test]
    fn rights_need_an_agent_that_writes_cdi_files() {
        let rules = ContainerRules::default();
        for field in [
            json!({"mode": "0660"}),
            json!({"uid": 1000}),
            json!({"gid": 1000}),
        ] {
            let message = wish(field).check(&rules).unwrap_err();
            assert!(message.contains("cdi.write of the chart"), "{message}");
        }
        assert_eq!(
            wish(json!({"path": "/dev/a", "links": true})).check(&rules),
            Ok(())
        );
    }

    #[test]
    fn an_owner_without_a_mode_may_read_and_write_with_its_group() {
        let rights = |fields| wish(fields).rights();
        assert_eq!(rights(json!({"path": "/dev/a"})), None);
        assert_eq!(rights(json!({"uid": 7})).unwrap().mode, 0o660);
        assert_eq!(rights(json!({"mode": "0444"})).unwrap().mode, 0o444);
    }
}
