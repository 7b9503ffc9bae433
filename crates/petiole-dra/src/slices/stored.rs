//! Follows the slices that the API server has.
use k8s_openapi::api::resource::v1::{ResourceSlice, ResourceSliceSpec};
use kube::{ResourceExt as _, runtime::watcher::Event};
use std::collections::BTreeMap;

/// The slices of one publisher by their names.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) slices: BTreeMap<String, ResourceSlice>,
    /// The slices that the server did not store as they were sent, by name: it lacks some fields.
    trimmed: BTreeMap<String, Trimmed>,
    /// The objects of a list that is not complete, and what was written since it began; `None` between lists.
    listing: Option<BTreeMap<String, ResourceSlice>>,
    pub(crate) is_complete: bool,
}

/// A content that was sent, and what the server stored of it.
#[derive(Debug)]
struct Trimmed {
    sent: ResourceSliceSpec,
    stored: ResourceSliceSpec,
}

/// What an event tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Somebody else wrote another content into a slice.
    Foreign,
    /// Anything else: an own write, or slices that came or went.
    Other,
}

impl Stored {
    /// Applies an event of the watch. Slices that `is_ours` refuses are left out.
    pub(crate) fn apply(
        &mut self,
        event: Event<ResourceSlice>,
        is_ours: impl Fn(&ResourceSlice) -> bool,
    ) -> Change {
        let mut change = Change::Other;
        match event {
            Event::Init => self.listing = Some(BTreeMap::new()),
            Event::InitApply(slice) if is_ours(&slice) => {
                let listing = self.listing.get_or_insert_default();
                let written = listing.get(&slice.name_any());
                if written.is_none_or(|written| version(written) < version(&slice)) {
                    listing.insert(slice.name_any(), without_fields(slice));
                }
            }
            Event::InitDone => {
                self.slices = self.listing.take().unwrap_or_default();
                self.is_complete = true;
            }
            Event::Apply(slice) if is_ours(&slice) => {
                let known = self.slices.get(&slice.name_any());
                // The answer to a later write may be here already.
                if known.is_some_and(|known| version(known) > version(&slice)) {
                    return change;
                }
                if known.is_some_and(|known| known.spec != slice.spec) {
                    change = Change::Foreign;
                }
                self.put(slice);
            }
            Event::Delete(slice) => drop(self.slices.remove(&slice.name_any())),
            Event::InitApply(_) | Event::Apply(_) => {}
        }
        self.forget_trimmed();
        change
    }

    /// Takes the answer to a write, which comes before the event of it.
    pub(crate) fn put(&mut self, slice: ResourceSlice) {
        let slice = without_fields(slice);
        if let Some(listing) = &mut self.listing {
            listing.insert(slice.name_any(), slice.clone());
        }
        self.slices.insert(slice.name_any(), slice);
        self.forget_trimmed();
    }

    /// Takes the answer to a write of `sent` that the server stored in part.
    pub(crate) fn put_trimmed(&mut self, sent: ResourceSliceSpec, answer: ResourceSlice) {
        let stored = answer.spec.clone();
        let trimmed = Trimmed { sent, stored };
        self.trimmed.insert(answer.name_any(), trimmed);
        self.put(answer);
    }

    /// Returns how many slices lack some fields.
    pub(crate) fn lacking(&self) -> usize {
        self.trimmed.len()
    }

    /// Forgets of one slice what it lacks, so that it is sent again: the server may have these fields by now. Returns whether there is
    /// one.
    pub(crate) fn try_again(&mut self) -> bool {
        self.trimmed.pop_first().is_some()
    }

    /// Forgets slices that are gone, or that have another content by now.
    fn forget_trimmed(&mut self) {
        let slices = &self.slices;
        self.trimmed.retain(|name, trimmed| {
            let slice = slices.get(name);
            slice.is_some_and(|slice| slice.spec == trimmed.stored)
        });
    }

    /// Returns the device of this slice that lacks some of its fields.
    pub(crate) fn trimmed_device(&self, name: &str) -> Option<&str> {
        let Trimmed { sent, stored } = self.trimmed.get(name)?;
        let [sent, stored] = [sent, stored].map(|spec| spec.devices.iter().flatten());
        let mut pairs = sent.zip(stored);
        let (device, _) = pairs.find(|(sent, stored)| sent != stored)?;
        Some(&device.name)
    }

    /// Returns whether a slice has the content `wanted`, or as much of it as the server stores.
    pub(crate) fn is_same(
        &self,
        slice: &ResourceSlice,
        wanted: &ResourceSliceSpec,
        is_same: impl Fn(&ResourceSliceSpec, &ResourceSliceSpec) -> bool,
    ) -> bool {
        let trimmed = self.trimmed.get(&slice.name_any());
        is_same(&slice.spec, wanted)
            || trimmed.is_some_and(|t| is_same(&t.stored, &slice.spec) && is_same(&t.sent, wanted))
    }
}

/// Returns the version as a number, which is comparable by Kubernetes' promise since 1.35 and in fact before.
fn version(slice: &ResourceSlice) -> Option<u64> {
    slice.metadata.resource_version.as_ref()?.parse().ok()
}

/// Who wrote which field is longer than the fields.
fn without_fields(mut slice: ResourceSlice) -> ResourceSlice {
    slice.metadata.managed_fields = None;
    slice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, version: &str) -> ResourceSlice {
        let mut slice = ResourceSlice::default();
        slice.metadata.name = Some(name.to_owned());
        slice.metadata.resource_version = Some(version.to_owned());
        slice
    }

    #[test]
    fn what_was_written_while_a_list_came_is_newer_than_the_list() {
        let mut stored = Stored::default();
        let listed = |stored: &mut Stored, slices: &[(&str, &str)], written: &[(&str, &str)]| {
            stored.apply(Event::Init, |_| true);
            let (first, rest) = slices.split_at(1);
            for (name, version) in first {
                stored.apply(Event::InitApply(slice(name, version)), |_| true);
            }
            for (name, version) in written {
                stored.put(slice(name, version));
            }
            for (name, version) in rest {
                stored.apply(Event::InitApply(slice(name, version)), |_| true);
            }
            stored.apply(Event::InitDone, |_| true);
            let names = stored.slices.iter();
            let names = names.map(|(name, slice)| format!("{name} {}", version(slice).unwrap()));
            names.collect::<Vec<_>>()
        };
        assert_eq!(
            listed(&mut stored, &[("a", "3"), ("b", "4")], &[]),
            ["a 3", "b 4"]
        );
        // Before and after the list has them, and one that it does not have.
        let written = [("a", "10"), ("b", "11"), ("c", "9")];
        let there = listed(&mut stored, &[("a", "3"), ("b", "4")], &written);
        assert_eq!(there, ["a 10", "b 11", "c 9"]);
        // The next list has what was written before it, or it is gone.
        assert_eq!(listed(&mut stored, &[("a", "10")], &[]), ["a 10"]);
    }

    #[test]
    fn a_slice_that_was_stored_in_part_is_the_same_until_it_is_to_be_tried_again() {
        let mut stored = Stored::default();
        let there = slice("a", "3");
        let mut sent = there.spec.clone();
        sent.driver = "akri.sh".to_owned();
        stored.put_trimmed(sent.clone(), there.clone());
        let is_same = |stored: &Stored| stored.is_same(&there, &sent, |a, b| a == b);
        assert!(is_same(&stored) && stored.lacking() == 1);
        assert!(stored.try_again());
        assert!(!is_same(&stored) && stored.lacking() == 0);
        assert!(!stored.try_again());
    }
}
