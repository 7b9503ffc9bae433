//! Decides which CDI files to write and to remove. Pure.
use crate::model::container_nodes::is_own_cdi_file;
use std::{collections::BTreeMap, time::Duration};

const FILE_START: &str = "petiole-";
const FILE_END: &str = ".json";
/// A file that nobody holds stays for this time after it was written: a claim writes its file before it holds the slot. An agent
/// removes nothing for the same time after its start, because it has not read yet what containers hold.
const REMOVED_AFTER: Duration = Duration::from_secs(60);

/// The files that containers need, each with its text, if that is known.
pub(super) type Needed = BTreeMap<String, Option<String>>;

/// A file of the folder that has a name like ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Existing {
    /// `None` if it cannot be read.
    pub(super) text: Option<String>,
    /// The time since it was written.
    pub(super) age: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Write { file: String, text: String },
    Remove { file: String },
}

/// Returns the name of an Instance's file. An object of the API server has no name that is a path, and a store may have any.
pub(super) fn file_name(instance: &str) -> Result<String, String> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    match instance.bytes().all(is_plain) {
        true => Ok(format!("{FILE_START}{instance}{FILE_END}")),
        false => Err(format!("{instance:?} is no name of a file")),
    }
}

/// Returns whether a file with a name like ours is ours. After a power failure it may be empty.
pub(super) fn is_ours(text: &str) -> bool {
    text.is_empty() || is_own_cdi_file(text)
}

impl Existing {
    fn is_ours(&self) -> bool {
        self.text.as_deref().is_some_and(is_ours)
    }
}

pub(super) fn is_like_ours(file: &str) -> bool {
    file.starts_with(FILE_START) && file.ends_with(FILE_END)
}

/// Returns what to do. A file of somebody else is neither replaced nor removed, whatever its name is.
pub(super) fn plan(
    needed: &Needed,
    existing: &BTreeMap<String, Existing>,
    uptime: Duration,
) -> Vec<Action> {
    let writes = needed.iter().filter_map(|(file, text)| {
        let text = text.as_ref()?;
        let there = existing.get(file);
        let is_due = there.is_none_or(|there| there.is_ours() && there.text.as_ref() != Some(text));
        is_due.then(|| Action::Write {
            file: file.clone(),
            text: text.clone(),
        })
    });
    let removals = existing.iter().filter(|(file, there)| {
        let is_settled = uptime >= REMOVED_AFTER && there.age >= REMOVED_AFTER;
        is_settled && !needed.contains_key(*file) && there.is_ours()
    });
    let remove = |(file, _): (&String, &Existing)| Action::Remove { file: file.clone() };
    writes.chain(removals.map(remove)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = r#"{"cdiVersion": "0.5.0", "kind": "akri.sh/petiole", "devices": []}"#;
    const THEIRS: &str = r#"{"cdiVersion": "0.5.0", "kind": "vendor.com/petiole", "devices": []}"#;
    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_secs(59);

    fn there(text: &str, age: Duration) -> BTreeMap<String, Existing> {
        let text = Some(text.to_owned());
        [("petiole-a.json".to_owned(), Existing { text, age })].into()
    }

    fn needed(text: Option<&str>) -> Needed {
        [("petiole-a.json".to_owned(), text.map(str::to_owned))].into()
    }

    fn write(text: &str) -> Action {
        Action::Write {
            file: "petiole-a.json".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_file_that_a_container_needs_is_written_again_if_it_is_missing_or_another_one() {
        let new = OURS.replace("[]", "[1]");
        let none = BTreeMap::new();
        assert_eq!(plan(&needed(Some(&new)), &none, SHORT), [write(&new)]);
        assert_eq!(
            plan(&needed(Some(&new)), &there(OURS, LONG), LONG),
            [write(&new)]
        );
        assert_eq!(plan(&needed(Some(OURS)), &there(OURS, LONG), LONG), []);
        // The device is not seen yet: its file stays as it is.
        assert_eq!(plan(&needed(None), &there(OURS, LONG), LONG), []);
        assert_eq!(plan(&needed(None), &none, LONG), []);
    }

    #[test]
    fn a_file_that_no_container_needs_is_removed_when_it_is_certain() {
        let nothing = Needed::new();
        let remove = || Action::Remove {
            file: "petiole-a.json".to_owned(),
        };
        assert_eq!(plan(&nothing, &there(OURS, LONG), LONG), [remove()]);
        // A claim has just written it, or the agent has just started.
        assert_eq!(plan(&nothing, &there(OURS, SHORT), LONG), []);
        assert_eq!(plan(&nothing, &there(OURS, LONG), SHORT), []);
    }

    #[test]
    fn a_file_of_somebody_else_is_not_touched_whatever_its_name() {
        for text in [THEIRS, "{", "[]"] {
            assert_eq!(plan(&Needed::new(), &there(text, LONG), LONG), [], "{text}");
            assert_eq!(
                plan(&needed(Some(OURS)), &there(text, LONG), LONG),
                [],
                "{text}"
            );
        }
        let unreadable = [(
            "petiole-a.json".to_owned(),
            Existing {
                text: None,
                age: LONG,
            },
        )]
        .into();
        assert_eq!(plan(&Needed::new(), &unreadable, LONG), []);
        assert_eq!(
            plan(&needed(Some(OURS)), &there("", LONG), LONG),
            [write(OURS)]
        );
        assert!(is_like_ours("petiole-cam-0a1b2c.json"));
        assert!(!is_like_ours("nvidia.json") && !is_like_ours(".petiole-a.json.tmp"));
    }

    #[test]
    fn a_name_that_is_a_path_has_no_file() {
        assert_eq!(file_name("cam-0a1b2c").unwrap(), "petiole-cam-0a1b2c.json");
        for bad in ["../cam", "a/b", "a\0"] {
            assert!(file_name(bad).is_err(), "{bad:?}");
        }
    }
}
