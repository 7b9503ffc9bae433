//! Fuzzes the lists of a discovery handler in another process, and the file with the registered handlers.
use petiole::discovery::external::fuzzing::{devices, registrations};

const PROPERTIES: usize = 192;
const DEVICES: usize = 4096;

pub fn run(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        let written = registrations(text);
        assert_eq!(
            registrations(&written),
            written,
            "a second time changes nothing"
        );
    }
    let Some(set) = devices(input) else {
        return;
    };
    assert!(set.complete && set.devices.len() <= DEVICES);
    for device in set.devices.values() {
        let id = device.id.as_str();
        assert!(!id.is_empty() && !id.contains('\0'), "{id:?}");
        assert!(device.properties.len() <= PROPERTIES);
        let is_given =
            |(name, value): (&String, &String)| !value.contains('\0') && !name.contains('\0');
        assert!(device.properties.iter().all(is_given));
        let nodes = device.device_nodes.iter().map(|node| &node.host_path);
        let mounts = device.mounts.iter().map(|mount| &mount.host_path);
        for path in nodes.chain(mounts) {
            assert!(path == "/dev" || path.starts_with("/dev/"), "{path:?}");
            assert!(!path.split('/').any(|part| part == ".."), "{path:?}");
        }
    }
    assert!(
        set.problems
            .iter()
            .all(|problem| problem.len() < 1024 && !problem.contains('\n'))
    );
}
