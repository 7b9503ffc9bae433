//! Gives `fuzz/` access to the private parsers of this handler. Nothing else uses this file.
use super::{
    details::Details,
    plan::{self, File},
    spec::Spec,
};
use crate::model::device::DeviceSet;

/// The most variables that a device's annotations become.
pub const ANNOTATIONS_MAX: usize = plan::ANNOTATIONS_MAX;
/// The most bytes of the names and values of these variables together.
pub const ANNOTATION_BYTES_MAX: usize = plan::ANNOTATION_BYTES_MAX;

/// Returns the kind and the number of devices of a valid file.
pub fn file(text: &str) -> Option<(String, usize)> {
    let spec = Spec::parse(text).ok()?;
    Some((spec.kind.to_string(), spec.devices.len()))
}

/// Returns the devices of one kind that these texts describe. Each text is in a folder of its own; later folders win.
/// Returns `None` if the handler rejects the details.
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
