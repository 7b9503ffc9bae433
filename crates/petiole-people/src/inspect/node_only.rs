//! Describes Configurations without Instances (`instances: false`), of which only the nodes say what they have. Pure.
use super::{snapshot::Snapshot, words::listed};
use petiole_base::quantity::count;
use petiole_model::{
    api::configuration::Configuration,
    model::{printable::printable, resource_name::ResourceName},
};

/// Returns the nodes that list the resource of a Configuration without Instances, each with how much of it.
pub(crate) fn offering<'a>(
    snapshot: &'a Snapshot,
    configuration: &Configuration,
    resource: &ResourceName,
) -> Vec<(&'a str, u64)> {
    let nodes = snapshot.nodes.iter();
    let nodes = nodes.filter(|_| !configuration.spec.instances);
    let nodes = nodes.filter_map(|(name, node)| {
        let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
        let amount = count(&allocatable.get(resource.as_str())?.0)?;
        (amount > 0).then_some((name.as_str(), amount))
    });
    nodes.collect()
}

/// Returns how much of the resource each node has, for a sentence.
pub(crate) fn amounts(offering: &[(&str, u64)]) -> String {
    let amount = |(node, amount): &(&str, u64)| format!("{node} has {amount}");
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
