//! Names and writes the files of the two folders.
use crate::{
    files,
    model::names::{Key, shortened},
    store::interface::StoreError,
    yaml,
};
use serde::de::DeserializeOwned;
use std::{fmt, fs, io, path::Path};

/// The most bytes of the name of a file, without its ending: file systems take 255. Beyond it: a digest takes the place of its end.
const NAME_BYTES_MAX: usize = 240;
/// The mode of the files, which may contain secrets in `brokerProperties`.
pub(super) const FILE_MODE: u32 = 0o600;

/// Returns the manifests of a folder in the order of their names. Hidden files are left out: they belong to editors, or
/// are our own half-written files.
pub(super) fn manifest_names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = vec![];
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let is_manifest = [".yaml", ".yml", ".json"]
            .iter()
            .any(|end| name.ends_with(end));
        if is_manifest && !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Returns the file name of an object. Namespaces and names contain no underscore, so two keys never share a file. A manifest may have
/// names that are none.
pub(super) fn file_name<Name: fmt::Display>(key: &Key<Name>) -> String {
    let name = format!("{}_{}", key.namespace, key.name).replace('/', "_");
    format!("{}.yaml", shortened(&name, NAME_BYTES_MAX))
}

pub(super) fn read_yaml<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = fs::read_to_string(path)?;
    Ok(serde_json::from_value(yaml::from_str(&text)?)?)
}

pub(super) fn write_yaml(path: &Path, object: &impl serde::Serialize) -> Result<(), StoreError> {
    let text = yaml::to_string(object)
        .map_err(|e| StoreError::Unavailable(format!("{}: {e}", path.display())))?;
    files::write_atomically(path, text.as_bytes(), FILE_MODE).map_err(unavailable)
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
pub(super) fn unavailable(error: io::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_has_a_file_all_the_same() {
        let file = |name: &str| file_name(&Key::<String>::new("lab", name));
        assert_eq!(file("cam"), "lab_cam.yaml");
        assert_eq!(file("hall/front"), "lab_hall_front.yaml");
        assert!(file(&"x".repeat(1000)).len() <= 245);
    }
}
