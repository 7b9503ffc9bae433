//! Describes Configurations without Instances (`instances: false`), of which only the nodes say what they have. Pure.
use super::{slots::Holders, snapshot::Snapshot, words::listed};
use petiole_base::quantity::count;
use petiole_model::{
    api::configuration::Configuration,
    model::{printable::printable, resource_name::ResourceName},
};

/// What a node has of a resource.
pub(crate) struct Offer<'a> {
    pub(crate) node: &'a str,
    slots: u64,
    /// The slots for which Pods of the node ask, as far as Pods can be read.
    in_use: u64,
}

/// Returns the nodes that list the resource of a Configuration without Instances.
pub(crate) fn offering<'a>(
    snapshot: &'a Snapshot,
    configuration: &Configuration,
    resource: &ResourceName,
) -> Vec<Offer<'a>> {
    if configuration.spec.instances {
        return vec![];
    }
    let holders = Holders::new(snapshot);
    let nodes = snapshot.nodes.iter().filter_map(|(name, node)| {
        let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
        let slots = count(&allocatable.get(resource.as_str())?.0)?;
        let asking = holders.asking(name, resource).iter();
        (slots > 0).then(|| Offer {
            node: name,
            slots,
            in_use: asking.map(|its| its.amount).sum(),
        })
    });
    nodes.collect()
}

/// Returns how much of the resource each node has, for a sentence.
pub(crate) fn amounts(offering: &[Offer<'_>]) -> String {
    let amount = |offer: &Offer<'_>| {
        let Offer {
            node,
            slots,
            in_use,
        } = offer;
        match *in_use {
            0 => format!("{node} has {slots}"),
            _ => format!("{node} has {slots} ({in_use} in use)"),
        }
    };
    let amounts: Vec<String> = offering.iter().map(amount).collect();
    format!(
        "have no Instances (spec.instances is false): {}",
        listed(&amounts)
    )
}

/// Returns a sentence about each Configuration without Instances.
pub fn sentences(snapshot: &Snapshot) -> Vec<String> {
    let without = snapshot.configurations.iter();
    let without = without.filter(|(_, configuration)| !configuration.spec.instances);
    let sentences = without.map(|(key, configuration)| {
        let resource = snapshot.configuration_resource(key, configuration);
        let offering = offering(snapshot, configuration, &resource);
        let text = match offering.is_empty() {
            true if snapshot.hidden.nodes => format!(
                "Configuration {key} has no Instances, and the nodes that have {resource} cannot be read."
            ),
            true => {
                format!("Configuration {key} has no Instances, and no node has {resource} now.")
            }
            false => format!(
                "The devices of Configuration {key}, {resource}, {}.",
                amounts(&offering)
            ),
        };
        printable(&text)
    });
    sentences.collect()
}
