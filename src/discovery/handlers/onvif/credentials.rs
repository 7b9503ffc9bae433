//! Reads the credentials of cameras from `discoveryProperties`, in the forms of Akri's handler. Pure.
//!
//! | property | value |
//! |---|---|
//! | `device_credential_list` | a JSON list of names of properties; each is `{UUID: {username, password, base64encoded}}` |
//! | `device_credential_ref_list` | the same; each is `{UUID: {username_ref, password_ref}}`, with names of properties |
//! | `username_<UUID>`, `password_<UUID>` | with `_` for `-` in the UUID |
//! | `username_default`, `password_default` | for all other cameras |
//!
//! Later lines win. No message has a value: it may be of a Secret.
use super::super::certificates::unfit;
use crate::{
    discovery::interface::{DetailsError, Properties},
    model::hidden::Hidden,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use petiole_onvif::Credentials;
use serde::{Deserialize, de::DeserializeOwned};
use std::collections::BTreeMap;

const LIST: &str = "device_credential_list";
const REF_LIST: &str = "device_credential_ref_list";
const DEFAULT: &str = "default";

/// Objects by UUID, each with the name of its property.
type Listed<T> = Vec<(String, BTreeMap<String, T>)>;

/// The credentials by the UUIDs of cameras.
#[derive(Debug, Clone, Default)]
pub(super) struct Store(Hidden<BTreeMap<String, Credentials>>);

#[derive(Deserialize)]
struct Named {
    username: String,
    password: Option<String>,
    #[serde(default)]
    base64encoded: bool,
}

#[derive(Deserialize)]
struct References {
    username_ref: String,
    password_ref: Option<String>,
}

impl Store {
    pub(super) fn read(properties: &Properties) -> Result<Self, DetailsError> {
        let mut all = BTreeMap::new();
        for (name, lists) in listed::<Named>(properties, LIST)? {
            for (uuid, named) in lists {
                let (user, password) = (named.username, named.password.unwrap_or_default());
                let password = if named.base64encoded {
                    decoded(&password)
                } else {
                    Some(password)
                };
                let password =
                    password.ok_or_else(|| unfit(&name, "a password is not base64 of UTF-8"))?;
                all.insert(key(&uuid), Credentials { user, password });
            }
        }
        for (_, lists) in listed::<References>(properties, REF_LIST)? {
            for (uuid, references) in lists {
                let value = |name: &String| properties.get(name).cloned();
                let user = value(&references.username_ref).filter(|user| !user.is_empty());
                let password = references.password_ref.as_ref().and_then(value);
                let password = password.unwrap_or_default();
                all.extend(user.map(|user| (key(&uuid), Credentials { user, password })));
            }
        }
        for (name, user) in properties {
            let Some(uuid) = name
                .strip_prefix("username_")
                .filter(|uuid| !uuid.is_empty())
            else {
                continue;
            };
            let password = properties.get(&format!("password_{uuid}"));
            let credentials = Credentials {
                user: user.clone(),
                password: password.cloned().unwrap_or_default(),
            };
            all.insert(key(&uuid.replace('_', "-")), credentials);
        }
        Ok(Self(Hidden::new(all)))
    }

    /// Returns the credentials of the camera with this UUID.
    pub(super) fn of(&self, uuid: &str) -> Option<&Credentials> {
        self.0.get(&key(uuid)).or_else(|| self.0.get(DEFAULT))
    }
}

fn key(uuid: &str) -> String {
    uuid.to_ascii_lowercase()
}

/// Returns the objects that a list of names leads to, each with the name of its property. One that is not there is optional.
fn listed<T: DeserializeOwned>(
    properties: &Properties,
    list: &str,
) -> Result<Listed<T>, DetailsError> {
    let Some(text) = properties.get(list) else {
        return Ok(vec![]);
    };
    let names: Vec<String> = serde_json::from_str(text)
        .map_err(|_| unfit(list, "it must be a JSON list of names of other properties"))?;
    let known = names.into_iter().filter_map(|name| {
        let text = properties.get(&name)?;
        Some((name, text))
    });
    let object = |(name, text): (String, &String)| {
        let object = serde_json::from_str(text).map_err(|_| {
            unfit(
                &name,
                "it must be a JSON object of UUIDs, each with the keys that docs/onvif.md names",
            )
        });
        Ok((name, object?))
    };
    known.map(object).collect()
}

fn decoded(text: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(text.trim()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(properties: &[(&str, &str)]) -> Result<Store, DetailsError> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Store::read(&properties.iter().map(owned).collect())
    }

    fn of(store: &Store, uuid: &str) -> String {
        let found = store.of(uuid);
        found.map_or_else(String::new, |c| format!("{}:{}", c.user, c.password))
    }

    #[test]
    fn all_forms_are_read_and_later_ones_win() {
        let store = store(&[
            (LIST, r#"["one", "absent", "two"]"#),
            (
                "one",
                r#"{"A-1": {"username": "a", "password": "x"}, "b-2": {"username": "b", "password": "eQ==", "base64encoded": true}}"#,
            ),
            (
                "two",
                r#"{"c-3": {"username": "c"}, "d-4": {"username": "old", "password": "old"}}"#,
            ),
            (REF_LIST, r#"["refs"]"#),
            (
                "refs",
                r#"{"d-4": {"username_ref": "du", "password_ref": "dp"}, "e-5": {"username_ref": "absent"}}"#,
            ),
            ("du", "d"),
            ("dp", "z"),
            ("username_b_2", "B"),
            ("password_b_2", "Y"),
            ("username_default", "admin"),
            ("password_default", "word"),
        ]);
        let store = store.unwrap();
        assert_eq!(of(&store, "a-1"), "a:x");
        assert_eq!(of(&store, "b-2"), "B:Y");
        assert_eq!(of(&store, "c-3"), "c:");
        assert_eq!(of(&store, "d-4"), "d:z");
        assert_eq!(of(&store, "e-5"), "admin:word");
        assert!(!format!("{store:?}").contains("word"));
    }

    #[test]
    fn what_cannot_be_read_is_named_without_its_value() {
        for properties in [
            &[(LIST, "hunter2")][..],
            &[(LIST, r#"["one"]"#), ("one", "hunter2")],
            &[
                (LIST, r#"["one"]"#),
                (
                    "one",
                    r#"{"a": {"username": "a", "password": "hunter2!", "base64encoded": true}}"#,
                ),
            ],
        ] {
            let refused = store(properties).unwrap_err().to_string();
            assert!(
                refused.contains("discoveryProperty") && !refused.contains("hunter2"),
                "{refused}"
            );
        }
        assert!(store(&[]).unwrap().of("a").is_none());
    }
}
