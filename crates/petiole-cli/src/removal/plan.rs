//! Decides which capacity entries and labels are stale, and what is left of an installation that is being removed. Pure.
use crate::model::{
    instance_name::InstanceName,
    node_labels::{LabelChanges, Labels, key, labelled},
    node_resources::{EntryChange, NodeResources},
    printable::listed,
    resource_name::ResourceName,
    typed_names::{ConfigurationName, NodeName},
};
use petiole_base::quantity::count;
use std::collections::{BTreeMap, BTreeSet};

/// The fields of an Instance that are used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InstanceUse {
    /// The key as `<namespace>/<name>`.
    pub(super) key: String,
    pub(super) name: InstanceName,
    pub(super) configuration: ConfigurationName,
    /// The `spec.resourceName` of its Configuration.
    pub(super) resource_name: Option<ResourceName>,
    /// The nodes that see the device. `None` if that is unreadable: it may be any node.
    pub(super) nodes: Option<BTreeSet<NodeName>>,
}

/// A stale entry of one node, or a stale label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub node: NodeName,
    /// The resource, or the key of the label.
    pub resource: ResourceName,
    /// The capacity, `-` if only allocatable has the entry, or `label`.
    pub capacity: String,
}

/// The stale entries and labels of one node, and the changes that remove them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stale {
    pub(super) entries: Vec<Entry>,
    pub(super) changes: Vec<EntryChange>,
    pub(super) labels: LabelChanges,
}

impl Stale {
    /// Adds the labels of Configurations that do not exist. All others are the agents' business.
    pub(super) fn with_labels(
        mut self,
        node: &NodeName,
        labels: &Labels,
        configured: &BTreeSet<ConfigurationName>,
    ) -> Self {
        self.labels.removed = &labelled(labels) - configured;
        let entries = self.labels.removed.iter().filter_map(|name| {
            Some(Entry {
                node: node.clone(),
                resource: key(name).parse().ok()?,
                capacity: "label".to_owned(),
            })
        });
        self.entries.extend(entries);
        self
    }
}

/// The resources on a node that Instances account for.
struct Backed<'a> {
    /// The last segments of names that may have any of our prefixes.
    names: BTreeSet<&'a str>,
    resources: BTreeSet<&'a ResourceName>,
}

impl<'a> Backed<'a> {
    fn on(node: &NodeName, instances: &'a [InstanceUse]) -> Self {
        let here = instances.iter().filter(|instance| {
            let nodes = instance.nodes.as_ref();
            nodes.is_none_or(|nodes| nodes.contains(node))
        });
        Self {
            names: (here.clone())
                .flat_map(|instance| [&*instance.name, &*instance.configuration])
                .collect(),
            resources: here
                .filter_map(|instance| instance.resource_name.as_ref())
                .collect(),
        }
    }

    fn has(&self, resource: &ResourceName) -> bool {
        self.names.contains(resource.last_segment()) || self.resources.contains(resource)
    }
}

/// Returns the entries of a node that belong to no Instance of the node and to no Configuration with an Instance there.
fn unbacked<'a>(
    node: &NodeName,
    resources: &'a NodeResources,
    instances: &[InstanceUse],
) -> Vec<&'a ResourceName> {
    let backed = Backed::on(node, instances);
    (resources.names())
        .filter(|resource| !backed.has(resource))
        .collect()
}

/// Returns the stale entries of a node. `resources` must contain only entries with our prefixes.
pub(super) fn stale(
    node: &NodeName,
    resources: &NodeResources,
    instances: &[InstanceUse],
) -> Stale {
    let unbacked = unbacked(node, resources, instances);
    let entry = |resource: &&ResourceName| Entry {
        node: node.clone(),
        resource: (*resource).clone(),
        capacity: (resources.capacity.get(*resource))
            .map_or("-", String::as_str)
            .to_owned(),
    };
    Stale {
        entries: unbacked.iter().map(entry).collect(),
        changes: (unbacked.iter())
            .flat_map(|resource| resources.removal(resource))
            .collect(),
        labels: LabelChanges::default(),
    }
}

/// The state that is read repeatedly while an installation is being removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The keys as `<namespace>/<name>`.
    pub(super) configurations: Vec<String>,
    pub(super) instances: Vec<InstanceUse>,
    /// The Pods that have devices by claims.
    pub(super) claiming: Vec<String>,
    /// The nodes whose kubelet reports. Other nodes keep their last values for ever.
    pub(super) nodes: BTreeMap<NodeName, NodeResources>,
}

/// Returns the entries that belong to no Instance. There may be no agent that sets them to 0.
pub(super) fn unbacked_entries(state: &State) -> BTreeSet<(NodeName, ResourceName)> {
    let entries = state.nodes.iter().flat_map(|(node, resources)| {
        let unbacked = unbacked(node, resources, &state.instances).into_iter();
        unbacked.map(|resource| (node.clone(), resource.clone()))
    });
    entries.collect()
}

/// Returns what is left besides the entries that are ignored, one line per kind. It is empty once the agents have stopped their
/// plugins.
pub(super) fn left(state: &State, ignored: &BTreeSet<(NodeName, ResourceName)>) -> Vec<String> {
    const SHOWN: usize = 5;
    let allocatable = state.nodes.iter().flat_map(|(node, resources)| {
        let above_0 = (resources.allocatable.iter()).filter(|(_, n)| count(n) != Some(0));
        above_0.map(move |(resource, _)| (node.clone(), resource.clone()))
    });
    let allocatable = allocatable
        .filter(|entry| !ignored.contains(entry))
        .map(|(node, resource)| format!("{resource} on {node}"))
        .collect();
    let instances = state.instances.iter().map(|i| i.key.clone()).collect();
    [
        ("Configurations", state.configurations.clone()),
        ("Instances", instances),
        ("allocatable", allocatable),
        (
            "Pods with claims, which cannot end without the agents: delete them first",
            state.claiming.clone(),
        ),
    ]
    .into_iter()
    .filter(|(_, names)| !names.is_empty())
    .map(|(what, names)| format!("{what}: {}", listed(&names, SHOWN)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{
        collection::{btree_map, btree_set, vec},
        prelude::*,
    };

    fn instance(name: &str, nodes: &[&str]) -> InstanceUse {
        let name = InstanceName::from(name);
        InstanceUse {
            key: format!("default/{name}"),
            configuration: name.configuration().unwrap(),
            name,
            resource_name: None,
            nodes: Some(nodes.iter().map(|&node| node.into()).collect()),
        }
    }

    fn map(entries: &[(&str, &str)]) -> BTreeMap<ResourceName, String> {
        let entry = |(resource, n): &(&str, &str)| (akri(resource), (*n).to_owned());
        entries.iter().map(entry).collect()
    }

    fn akri(name: &str) -> ResourceName {
        format!("akri.sh/{name}").parse().unwrap()
    }

    fn resources(entries: &[(&str, &str)]) -> NodeResources {
        NodeResources {
            capacity: map(entries),
            allocatable: map(entries),
        }
    }

    fn stale_names(node: &str, resources: &NodeResources, instances: &[InstanceUse]) -> String {
        let entries = stale(&node.into(), resources, instances)
            .entries
            .into_iter();
        let names: Vec<_> = entries
            .map(|e| format!("{}={}", e.resource, e.capacity))
            .collect();
        names.join(" ")
    }

    #[test]
    fn an_entry_is_stale_where_no_instance_on_that_node_has_its_name() {
        let entries = resources(&[("cam", "2"), ("cam-1", "1"), ("cam-2", "0"), ("old-3", "5")]);
        let both = [instance("cam-1", &["a", "b"]), instance("cam-2", &["b"])];
        assert_eq!(
            stale_names("a", &entries, &both),
            "akri.sh/cam-2=0 akri.sh/old-3=5"
        );
        assert_eq!(stale_names("b", &entries, &both), "akri.sh/old-3=5");
        assert_eq!(
            stale_names("c", &entries, &both),
            "akri.sh/cam=2 akri.sh/cam-1=1 akri.sh/cam-2=0 akri.sh/old-3=5"
        );
    }

    #[test]
    fn an_instance_that_cannot_be_read_backs_its_entries_everywhere() {
        let mut unreadable = instance("cam-1", &[]);
        unreadable.nodes = None;
        let entries = resources(&[("cam", "2"), ("cam-1", "1")]);
        assert_eq!(stale_names("a", &entries, &[unreadable]), "");
    }

    #[test]
    fn a_name_that_a_configuration_gives_is_backed_with_its_prefix_and_no_other() {
        let mut named = instance("cam-1", &["a"]);
        named.resource_name = Some("pflex.io/block".parse().unwrap());
        let one = |resource: &str| NodeResources {
            capacity: BTreeMap::from([(resource.parse().unwrap(), "3".to_owned())]),
            ..NodeResources::default()
        };
        let stale_on = |node, resource| stale_names(node, &one(resource), &[named.clone()]);
        assert_eq!(stale_on("a", "pflex.io/block"), "");
        assert_eq!(stale_on("a", "akri.sh/block"), "akri.sh/block=3");
        assert_eq!(stale_on("b", "pflex.io/block"), "pflex.io/block=3");
    }

    #[test]
    fn an_entry_of_one_map_only_is_removed_from_that() {
        let node = NodeResources {
            capacity: map(&[]),
            allocatable: map(&[("cam-1", "3")]),
        };
        let Stale {
            entries, changes, ..
        } = stale(&"a".into(), &node, &[]);
        assert_eq!((entries[0].capacity.as_str(), changes.len()), ("-", 1));
    }

    #[test]
    fn a_label_is_stale_where_its_configuration_does_not_exist() {
        let label = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let labels: Labels = [
            ("akri.sh/has-cam", "true"),
            ("akri.sh/has-theirs", "yes"),
            ("akri.sh/has-usb", "true"),
        ]
        .map(label)
        .into();
        let node = "a".into();
        let stale = stale(&node, &NodeResources::default(), &[]);
        let stale = stale.with_labels(&node, &labels, &["cam".into()].into());
        assert_eq!(stale.labels.removed, ["usb".into()].into());
        let told = stale.entries.iter().map(|e| (&*e.resource, &*e.capacity));
        assert_eq!(told.collect::<Vec<_>>(), [("akri.sh/has-usb", "label")]);
    }

    fn entries() -> impl Strategy<Value = BTreeMap<ResourceName, String>> {
        let name = "[a-c](-[1-3])?".prop_map(|name| akri(&name));
        btree_map(name, "[0-3]", 0..6)
    }

    proptest! {
        #[test]
        fn executing_the_plan_leaves_nothing_stale_and_all_that_is_backed(
            capacity in entries(),
            allocatable in entries(),
            instances in vec(("[a-c]-[1-3]", btree_set("[nm]", 0..2)), 0..4),
        ) {
            let instances: Vec<_> = instances
                .iter()
                .map(|(name, nodes)| instance(name, &nodes.iter().map(String::as_str).collect::<Vec<_>>()))
                .collect();
            let node = NodeName::from("n");
            let before = NodeResources { capacity, allocatable };
            let mut after = before.clone();
            prop_assert!(after.apply(&stale(&node, &before, &instances).changes));
            prop_assert_eq!(stale(&node, &after, &instances).entries, vec![]);
            let backed = Backed::on(&node, &instances);
            for resource in before.names().filter(|name| backed.has(name)) {
                prop_assert_eq!(before.capacity.get(resource), after.capacity.get(resource));
                prop_assert_eq!(before.allocatable.get(resource), after.allocatable.get(resource));
            }
        }
    }

    #[test]
    fn what_is_left_is_named() {
        let mut state = State {
            claiming: vec![],
            configurations: vec!["default/cam".to_owned()],
            instances: (1..=7)
                .map(|n| instance(&format!("cam-{n}"), &["a"]))
                .collect(),
            nodes: BTreeMap::from([("a".into(), resources(&[("cam-1", "1"), ("cam-2", "0")]))]),
        };
        let initial = unbacked_entries(&state);
        let shown =
            "default/cam-1, default/cam-2, default/cam-3, default/cam-4, default/cam-5 and 2 more";
        let expected = [
            "Configurations: default/cam".to_owned(),
            format!("Instances: {shown}"),
            "allocatable: akri.sh/cam-1 on a".to_owned(),
        ];
        assert_eq!(left(&state, &initial), expected);
        state.configurations.clear();
        state.instances.clear();
        assert_eq!(left(&state, &initial), [&*expected[2]]);
        state.nodes = BTreeMap::from([("a".into(), resources(&[("cam-1", "0")]))]);
        assert_eq!(left(&state, &BTreeSet::new()), [""; 0]);
    }

    #[test]
    fn what_was_stale_before_is_not_waited_for_without_end() {
        let state = State {
            claiming: vec![],
            nodes: BTreeMap::from([("a".into(), resources(&[("ghost", "5")]))]),
            ..State::default()
        };
        let initial = unbacked_entries(&state);
        assert_eq!(left(&state, &BTreeSet::new()).len(), 1);
        assert_eq!(left(&state, &initial), [""; 0]);
    }
}
