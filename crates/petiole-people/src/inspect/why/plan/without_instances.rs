//! Decides why a Pod does not get a device without Instance (`instances: false`). Pure.
use super::{
    super::finding::{Cause, Finding},
    nodes::{Request, allows, on_nodes},
};
use crate::inspect::{node_only::Offer, snapshot::Snapshot, words::listed};

/// Returns what keeps a Pod from a resource that these nodes list.
pub(super) fn explain(
    snapshot: &Snapshot,
    request: Request<'_>,
    offering: &[Offer<'_>],
) -> Vec<Finding> {
    let names = offering.iter().map(|offer| offer.node);
    let is_allowed = |name: &&str| allows(request.spec, &snapshot.nodes[*name]);
    let reachable: Vec<&str> = names.clone().filter(is_allowed).collect();
    if reachable.is_empty() {
        let text = format!(
            "The Pod may run on no node that has {}; {} offers it. Change the node selector or the affinity of the Pod.",
            request.resource,
            listed(&names.collect::<Vec<_>>())
        );
        let finding = Finding::new(Cause::NodeDoesNotSee, text);
        return vec![finding.then("kubectl get nodes --show-labels")];
    }
    on_nodes(snapshot, request, reachable)
}
