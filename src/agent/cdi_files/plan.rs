//! Decides which CDI files to write and to remove. Pure.
use crate::model::{
    container_nodes::is_own_cdi_file, instance_name::InstanceName, slot_table::Use,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

const FILE_START: &str = "petiole-";
const FILE_END: &str = ".json";
/// A file that nobody holds stays for this time after it was written: a claim writes its file before it holds the slot. An agent
/// removes nothing for the same time after it knows for the first time what containers hold.
const REMOVED_AFTER: Duration = Duration::from_secs(60);

/// The files that containers need, each with its text, if that is known.
pub(super) type Needed = BTreeMap<String, Option<String>>;

/// What the agent knows about the containers of its node.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownContainers {
    pub(super) needed: Needed,
    /// What containers use by the kubelet's records. A slot of theirs may be of an Instance that the store does not have now.
    pub(super) uses: Arc<[Use]>,
    /// The Instances of prepared claims. One that only looks at a device has no slot of it.
    pub(super) claimed: BTreeSet<InstanceName>,
    /// The time since all this was known for the first time; `None` while a part of it is not known.
    pub(super) since: Option<Duration>,
}

impl KnownContainers {
    fn may_be_needed(&self, file: &str) -> bool {
        let instance = file
            .strip_prefix(FILE_START)
            .and_then(|name| name.strip_suffix(FILE_END))
            .map(InstanceName::new);
        let is_used =
            |name| self.claimed.contains(name) || self.uses.iter().any(|one| one.may_be_of(name));
        self.needed.contains_key(file) || instance.as_ref().is_some_and(is_used)
    }
}

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
    if instance.bytes().all(is_plain) {
        Ok(format!("{FILE_START}{instance}{FILE_END}"))
    } else {
        Err(format!("{instance:?} is no name of a file"))
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
pub(super) fn plan(known: &KnownContainers, existing: &BTreeMap<String, Existing>) -> Vec<Action> {
    let writes = known.needed.iter().filter_map(|(file, text)| {
        let text = text.as_ref()?;
        let there = existing.get(file);
        let is_due = there.is_none_or(|there| there.is_ours() && there.text.as_ref() != Some(text));
        is_due.then(|| Action::Write {
            file: file.clone(),
            text: text.clone(),
        })
    });
    let is_known = known.since.is_some_and(|since| since >= REMOVED_AFTER);
    let removals = existing.iter().filter(|(file, there)| {
        let is_settled = is_known && there.age >= REMOVED_AFTER;
        is_settled && there.is_ours() && !known.may_be_needed(file)
    });
    let remove = |(file, _): (&String, &Existing)| Action::Remove { file: file.clone() };
    writes.chain(removals.map(remove)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::slot::SlotId;

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

    fn plan(
        needed: &Needed,
        existing: &BTreeMap<String, Existing>,
        since: Duration,
    ) -> Vec<Action> {
        let known = KnownContainers {
            needed: needed.clone(),
            since: Some(since),
            ..KnownContainers::default()
        };
        super::plan(&known, existing)
    }

    fn write(text: &str) -> Action {
        Action::Write {
            file: "petiole-a.json".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_file_of_a_device_that_a_claim_only_looks_at_stays() {
        let mut known = KnownContainers {
            since: Some(LONG),
            ..KnownContainers::default()
        };
        let remove = Action::Remove {
            file: "petiole-a.json".to_owned(),
        };
        assert_eq!(super::plan(&known, &there(OURS, LONG)), [remove]);
        known.claimed.insert("a".into());
        assert_eq!(super::plan(&known, &there(OURS, LONG)), []);
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
        // It does not know now what containers hold.
        assert_eq!(
            super::plan(&KnownContainers::default(), &there(OURS, LONG)),
            []
        );
    }

    #[test]
    fn the_file_of_a_container_whose_instance_is_not_there_stays() {
        let file = |name: &str| {
            BTreeMap::from([(
                name.to_owned(),
                there(OURS, LONG).remove("petiole-a.json").unwrap(),
            )])
        };
        let known = KnownContainers {
            uses: [Use {
                env_slots: [SlotId::new("cam-0a1b2c", 0)].into(),
                ..Use::default()
            }]
            .into(),
            since: Some(LONG),
            ..KnownContainers::default()
        };
        assert_eq!(super::plan(&known, &file("petiole-cam-0a1b2c.json")), []);
        assert_eq!(
            super::plan(&known, &file("petiole-cam-ffffff.json")).len(),
            1
        );
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
