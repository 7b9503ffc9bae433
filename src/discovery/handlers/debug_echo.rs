//! Offers devices that exist only as names, for trying things out: the `debugEcho` of Akri.
//!
//! Each entry of `descriptions` becomes a device. While a file with the word OFFLINE exists, all devices are gone.
use crate::{
    discovery::interface::{
        DetailsError, Discovery, DiscoveryError, DiscoveryHandler, Properties, Task,
    },
    files,
    model::{
        device::{Device, DeviceSet, Scope},
        limits,
    },
    yaml,
};
use serde::Deserialize;
use std::{path::PathBuf, time::Duration};
use tokio::task::spawn_blocking;

/// The file in which Akri's users write OFFLINE.
pub const AVAILABILITY_FILE: &str = "/tmp/debug-echo-availability.txt";
/// The longest description, in bytes. It is the device's id, which is stored in an annotation. Beyond it: the
/// Configuration is not used (`BadDiscoveryDetails`).
const DESCRIPTION_MAX: usize = 1024;
/// The most descriptions. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const DESCRIPTIONS_MAX: usize = 1000;
const OFFLINE: &str = "OFFLINE";
/// The largest file `debug-echo-availability`, in bytes: enough for a word and a comment. Beyond it: it counts as
/// missing, and all devices are present.
const AVAILABILITY_MAX: u64 = 4096;
/// The interval at which the file is read.
const POLL: Duration = Duration::from_secs(1);

/// Finds the devices that its details list.
#[derive(Debug)]
pub struct DebugEcho {
    availability: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Details {
    descriptions: Vec<String>,
    /// True if the devices are shared. Akri sets this for a whole agent, by DEBUG_ECHO_INSTANCES_SHARED.
    #[serde(default = "shared_by_default")]
    shared: bool,
}

fn shared_by_default() -> bool {
    true
}

impl DebugEcho {
    pub fn new(availability: impl Into<PathBuf>) -> Self {
        Self {
            availability: availability.into(),
        }
    }
}

impl DiscoveryHandler for DebugEcho {
    fn name(&self) -> &'static str {
        "debugEcho"
    }

    fn prepare(&self, details: &str, _: &Properties) -> Result<Discovery, DetailsError> {
        let details = yaml::bounded(details, limits::DETAILS_BYTES_MAX)
            .map_err(|e| e.to_string())
            .and_then(|value| serde_json::from_value::<Details>(value).map_err(|e| e.to_string()))
            .map_err(|e| {
                DetailsError(format!(
                    "{e}; debugEcho takes `descriptions` (a list, required) and `shared` (true or false)"
                ))
            })?;
        let count = details.descriptions.len();
        if count > DESCRIPTIONS_MAX {
            return Err(DetailsError(format!(
                "`descriptions` has {count} entries; {DESCRIPTIONS_MAX} are the most: divide them among Configurations"
            )));
        }
        if let Some(long) = (details.descriptions.iter()).find(|d| d.len() > DESCRIPTION_MAX) {
            return Err(DetailsError(format!(
                "`descriptions: {}` has {} bytes; {DESCRIPTION_MAX} are the most: shorten it",
                limits::cut(long.clone(), 100),
                long.len()
            )));
        }
        let unfit = |d: &&String| d.is_empty() || d.contains('\0');
        if let Some(description) = details.descriptions.iter().find(unfit) {
            return Err(DetailsError(format!(
                "`descriptions: {description:?}` must be text that is not empty and holds no NUL"
            )));
        }
        let scope = if details.shared {
            Scope::Shared
        } else {
            Scope::Node
        };
        let file = self.availability.clone();
        Ok(Discovery::new(scope, |task| follow(details, file, task)))
    }
}

/// Reads the file again and again, and publishes the devices when it has changed.
async fn follow(details: Details, file: PathBuf, task: Task) -> Result<(), DiscoveryError> {
    let mut was_offline = None;
    loop {
        // Without the file, or if it cannot be read, all devices are present.
        let file = file.clone();
        let read = spawn_blocking(move || files::read_text(&file, AVAILABILITY_MAX));
        let text = read.await.map_err(|e| DiscoveryError(e.to_string()))?;
        let is_offline = text.is_ok_and(|text| text.contains(OFFLINE));
        if was_offline.replace(is_offline) != Some(is_offline) {
            task.found.send_replace(devices(&details, is_offline));
        }
        tokio::time::sleep(POLL).await;
    }
}

fn devices(details: &Details, is_offline: bool) -> DeviceSet {
    if is_offline {
        return DeviceSet::complete([]);
    }
    DeviceSet::complete(details.descriptions.iter().map(|description| {
        let mut device = Device::new(description.as_str());
        let property = ("DEBUG_ECHO_DESCRIPTION".to_owned(), description.clone());
        device.properties.extend([property]);
        device
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(details: &str) -> Result<Discovery, DetailsError> {
        DebugEcho::new("/nowhere").prepare(details, &Properties::new())
    }

    #[test]
    fn details_are_read_as_akri_does_and_the_scope_is_a_setting() {
        let scope = |details| prepare(details).unwrap().scope;
        assert_eq!(scope("descriptions: [a]"), Scope::Shared);
        assert_eq!(scope("descriptions:\n- a\nshared: false"), Scope::Node);
    }

    #[test]
    fn bad_details_are_refused_with_their_place() {
        for (details, place) in [
            ("", "descriptions"),
            ("description: [a]", "description"),
            ("descriptions: a", "sequence"),
            ("descriptions: ['']", "not empty"),
            (
                &format!("descriptions: [{}]", "x".repeat(1025)),
                "1025 bytes",
            ),
            (
                &format!("descriptions: [{}]", "x, ".repeat(1001)),
                "1001 entries",
            ),
        ] {
            let message = prepare(details).err().unwrap().to_string();
            assert!(message.contains(place), "{details} said {message}");
        }
    }

    #[tokio::test]
    async fn a_pipe_or_a_huge_file_in_the_place_of_the_file_takes_nothing_away_and_stops_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, huge) = (folder.path().join("pipe"), folder.path().join("huge"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        std::fs::write(&huge, OFFLINE.repeat(1000)).unwrap();
        for file in [pipe, huge] {
            let discovery = DebugEcho::new(file)
                .prepare("descriptions: [a]", &Properties::new())
                .unwrap();
            let (task, mut seen) = Task::alone();
            tokio::select! {
                ended = discovery.run(task) => panic!("{ended:?}"),
                set = seen.wait_for(|set| set.complete) => {
                    assert_eq!(set.unwrap().devices.len(), 1);
                }
                () = tokio::time::sleep(POLL * 5) => panic!("no devices"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_word_offline_takes_the_devices_away_and_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("availability.txt");
        let discovery = DebugEcho::new(&file)
            .prepare("descriptions: [a, b, a]", &Properties::new())
            .unwrap();
        let (task, mut seen) = Task::alone();
        let test = async {
            let set = seen.wait_for(|s| s.complete).await.unwrap().clone();
            let names: Vec<&str> = set.devices.keys().map(|id| id.as_str()).collect();
            assert_eq!(names, ["a", "b"]);
            let device = set.devices.values().next().unwrap();
            assert_eq!(device.properties["DEBUG_ECHO_DESCRIPTION"], "a");
            std::fs::write(&file, "OFFLINE\n").unwrap();
            seen.wait_for(|s| s.devices.is_empty()).await.unwrap();
            assert!(seen.borrow().complete);
            std::fs::write(&file, "ONLINE").unwrap();
            seen.wait_for(|s| s.devices.len() == 2).await.unwrap();
        };
        tokio::select! {
            ended = discovery.run(task) => panic!("{ended:?}"),
            () = test => {}
        }
    }
}
