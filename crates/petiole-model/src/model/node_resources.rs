//! Models our resources in the status of a Node, and changes to them.
use super::resource_name::ResourceName;
use petiole_base::quantity::count;
use std::collections::BTreeMap;

/// The quantities of our resources in the two maps of a Node's status, by resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeResources {
    pub capacity: BTreeMap<ResourceName, String>,
    pub allocatable: BTreeMap<ResourceName, String>,
}

/// A map of the Node's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Capacity,
    Allocatable,
}

/// A change of an entry. It is written only if the entry still has the value `from`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryChange {
    pub part: Part,
    pub resource: ResourceName,
    pub from: Option<String>,
    pub to: Option<String>,
}

impl EntryChange {
    /// Returns whether the entry gets a smaller number.
    pub fn sinks(&self) -> bool {
        let [from, to] = [&self.from, &self.to].map(|value| value.as_deref().and_then(count));
        from.zip(to).is_some_and(|(from, to)| to < from)
    }
}

impl NodeResources {
    /// Keeps only the resources that `is_ours` selects.
    pub fn retain(&mut self, is_ours: impl Fn(&ResourceName) -> bool) {
        self.capacity.retain(|resource, _| is_ours(resource));
        self.allocatable.retain(|resource, _| is_ours(resource));
    }

    pub fn part(&self, part: Part) -> &BTreeMap<ResourceName, String> {
        match part {
            Part::Capacity => &self.capacity,
            Part::Allocatable => &self.allocatable,
        }
    }

    /// Iterates over every resource with an entry in either map, once: those of capacity first.
    pub fn names(&self) -> impl Iterator<Item = &ResourceName> {
        let only_allocatable =
            (self.allocatable.keys()).filter(|resource| !self.capacity.contains_key(*resource));
        self.capacity.keys().chain(only_allocatable)
    }

    /// Returns the change that sets an entry to `to`; `None` if it already has that value.
    pub fn change(&self, part: Part, resource: &ResourceName, to: u64) -> Option<EntryChange> {
        let from = self.part(part).get(resource);
        (from.and_then(|from| count(from)) != Some(to)).then(|| EntryChange {
            part,
            resource: resource.clone(),
            from: from.cloned(),
            to: Some(to.to_string()),
        })
    }

    /// Returns the changes that remove a resource from both maps.
    pub fn removal(&self, resource: &ResourceName) -> impl Iterator<Item = EntryChange> {
        [Part::Capacity, Part::Allocatable]
            .into_iter()
            .filter_map(|part| {
                let from = self.part(part).get(resource)?;
                Some(EntryChange {
                    part,
                    resource: resource.clone(),
                    from: Some(from.clone()),
                    to: None,
                })
            })
    }

    /// Applies the changes as the API server does. If an entry has changed meanwhile, it changes nothing and returns
    /// `false`.
    pub fn apply(&mut self, changes: &[EntryChange]) -> bool {
        let is_still = |c: &EntryChange| self.part(c.part).get(&c.resource) == c.from.as_ref();
        if !changes.iter().all(is_still) {
            return false;
        }
        for EntryChange {
            part, resource, to, ..
        } in changes
        {
            let map = match part {
                Part::Capacity => &mut self.capacity,
                Part::Allocatable => &mut self.allocatable,
            };
            match to {
                Some(to) => drop(map.insert(resource.clone(), to.clone())),
                None => drop(map.remove(resource)),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_says_the_same_in_other_words_is_left_alone() {
        let mut node = NodeResources::default();
        let cam: ResourceName = "akri.sh/cam".parse().unwrap();
        (node.capacity).insert(cam.clone(), "1k".to_owned());
        assert_eq!(node.change(Part::Capacity, &cam, 1000), None);
        let change = node.change(Part::Capacity, &cam, 999).unwrap();
        assert_eq!(
            (change.from.as_deref(), change.to.as_deref()),
            (Some("1k"), Some("999"))
        );
    }
}
