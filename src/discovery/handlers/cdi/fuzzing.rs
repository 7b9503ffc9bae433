//! The doors through which `fuzz/` reaches this handler: nothing else uses them.
use super::{
    details::Details,
    plan::{self, File},
    spec::Spec,
};
use crate::model::device::DeviceSet;

/// The most variables that a device's annotations become.
pub const ANNOTATIONS_MAX: usize = plan::ANNOTATIONS_MAX;
/// Their names and values together, in bytes.
pub const ANNOTATION_BYTES_MAX: usize = plan::ANNOTATION_BYTES_MAX;

/// The kind and the number of devices of a file that can be used.
pub fn file(text: &str) -> Option<(String, usize)> {
    let spec = Spec::parse(text).ok()?;
    Some((spec.kind.to_string(), spec.devices.len()))
}

/// The devices of one kind that these texts describe, each in a folder of its own: later ones win. `None` where the
/// handler refuses the details.
pub fn devices(details: &str, texts: &[&str]) -> Option<DeviceSet> {
    let details = Details::parse(details).ok()?;
    let file = |(precedence, text): (usize, &&str)| File {
        precedence,
        path: format!("{precedence}.yaml"),
        text: Ok((*text).to_owned()),
    };
    let files: Vec<File> = texts.iter().enumerate().map(file).collect();
    Some(plan::devices(&files, &details))
}
