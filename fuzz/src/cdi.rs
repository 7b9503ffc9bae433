//! CDI files. An input is a line of `discoveryDetails`, then files, a NUL between them.
use crate::{bytes::Reader, device};
use petiole::discovery::handlers::cdi::fuzzing::{
    ANNOTATION_BYTES_MAX, ANNOTATIONS_MAX, devices, file,
};
use serde_json::Value;

/// The number of properties that the handler adds to a device.
const OWN_PROPERTIES: usize = 3;
/// A kind of 317 characters twice, a name, and the names of the variables.
const OWN_BYTES: usize = 1024;

pub fn run(input: &[u8]) {
    let mut input = Reader(input);
    let (Some(details), Ok(files)) = (input.line(), std::str::from_utf8(input.0)) else {
        return;
    };
    let files: Vec<&str> = files.split('\0').collect();
    for text in &files {
        check_file(text);
    }
    let Some(set) = devices(details, &files) else {
        return;
    };
    assert!(set.complete);
    for device in set.devices.values() {
        let most = longest_name(&files);
        device::check(
            device,
            ANNOTATIONS_MAX + OWN_PROPERTIES,
            ANNOTATION_BYTES_MAX + OWN_BYTES + 3 * most,
        );
        let name = &device.properties["CDI_DEVICE"];
        assert_eq!(device.id.as_str(), name);
        assert_eq!(device.cdi_devices, [name.as_str()]);
        let (kind, own) = (
            &device.properties["CDI_KIND"],
            &device.properties["CDI_NAME"],
        );
        assert_eq!(format!("{kind}={own}"), *name);
    }
    // Said a second time, in a folder that wins, it is the same.
    if let [text] = files[..] {
        let twice = devices(details, &[text, text]).expect("the details are the same");
        assert_eq!(twice.devices, set.devices);
    }
}

/// A file may be as long as it likes, and a name in it too.
fn longest_name(files: &[&str]) -> usize {
    files.iter().map(|text| text.len()).max().unwrap_or(0)
}

/// JSON that was written anew says the same.
fn check_file(text: &str) {
    let read = file(text);
    if let (Some(read), Ok(value)) = (read, serde_json::from_str::<Value>(text)) {
        assert_eq!(file(&value.to_string()), Some(read));
    }
}
