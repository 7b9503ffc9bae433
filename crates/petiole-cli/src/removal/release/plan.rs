//! Decides whether a Helm release is being removed, from Helm's own records. Pure.
use std::fmt;

/// The number of revisions that are checked. `helm rollback` creates a new revision with the hooks of an old one, by
/// default at most 10 revisions older. The revision that a hook was made for may therefore not be the last.
pub const REVISIONS: u64 = 20;
/// The status that Helm writes before it creates the first hook of `helm uninstall`.
const REMOVED: &str = "uninstalling";

/// A release of Helm, and the revision that an uninstall hook was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    pub name: String,
    pub namespace: String,
    pub revision: u64,
}

impl Release {
    /// Returns the revisions whose records may show that the release is being removed.
    pub fn revisions(&self) -> impl Iterator<Item = u64> + use<> {
        self.revision..self.revision.saturating_add(REVISIONS)
    }

    /// Returns the name of the Secret or ConfigMap in which Helm keeps a revision.
    pub fn record_name(&self, revision: u64) -> String {
        format!("sh.helm.release.v1.{}.v{revision}", self.name)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name, namespace, ..
        } = self;
        write!(f, "release {name} in the namespace {namespace}")
    }
}

/// Helm's record of a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) revision: u64,
    /// The status: `deployed`, `superseded`, `uninstalling` and others.
    pub(super) status: String,
}

/// Returns the reason that the release is not being removed. It is being removed if the newest record says so.
pub(super) fn why_it_stays(release: &Release, records: &[Record]) -> Option<String> {
    match records.iter().max_by_key(|record| record.revision) {
        Some(newest) if newest.status == REMOVED => None,
        Some(Record { revision, status }) => Some(format!(
            "Helm's record of the {release} says {status:?} (revision {revision}), not {REMOVED:?}"
        )),
        None => {
            let last = release.revision.saturating_add(REVISIONS - 1);
            Some(format!(
                "Helm has no record of the {release} (revisions {} to {last})",
                release.revision
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(records: &[(u64, &str)]) -> Option<String> {
        let release = Release {
            name: "petiole".to_owned(),
            namespace: "leaf".to_owned(),
            revision: 3,
        };
        let records: Vec<_> = (records.iter())
            .map(|&(revision, status)| Record {
                revision,
                status: status.to_owned(),
            })
            .collect();
        why_it_stays(&release, &records)
    }

    #[test]
    fn a_release_is_removed_while_its_newest_record_says_so() {
        assert_eq!(why(&[(3, "uninstalling")]), None);
        // A rollback to 3 has created 5.
        assert_eq!(
            why(&[(5, "uninstalling"), (4, "superseded"), (3, "superseded")]),
            None
        );
    }

    #[test]
    fn a_release_that_is_not_being_removed_stays_with_the_reason() {
        assert_eq!(
            why(&[(3, "deployed")]).unwrap(),
            "Helm's record of the release petiole in the namespace leaf says \"deployed\" (revision 3), not \"uninstalling\""
        );
        // The removal of revision 3 failed, and another revision was deployed after it.
        assert!(why(&[(3, "uninstalling"), (4, "deployed")]).is_some());
        for status in [
            "uninstalled",
            "failed",
            "pending-upgrade",
            "",
            "Uninstalling",
        ] {
            assert!(why(&[(3, status)]).is_some(), "{status}");
        }
    }

    #[test]
    fn without_a_record_nothing_was_installed_by_helm() {
        assert_eq!(
            why(&[]).unwrap(),
            "Helm has no record of the release petiole in the namespace leaf (revisions 3 to 22)"
        );
    }
}
