//! Reads a field of a spec that is one of a few words. Pure.
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, IntoDeserializer as _, value},
};

/// Returns the value of a word. No API server has checked it where there is none, so the error names the field and the `words` that
/// are right.
pub(super) fn word<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    given: D,
    field: &str,
    words: &str,
) -> Result<T, D::Error> {
    let text = String::deserialize(given)?;
    let read = T::deserialize(text.as_str().into_deserializer());
    read.map_err(|_: value::Error| {
        D::Error::custom(format!("spec.{field} is {text:?}: write {words}"))
    })
}
