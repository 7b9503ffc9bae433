//! Decides why a Pod does not get a device without Instance (`instances: false`). Pure.
use super::{
    super::finding::{Cause, Finding, first_of},
    nodes::{Request, allows, blocker},
};
use crate::inspect::{node_only::Offer, snapshot::Snapshot, words::listed};

/// The most nodes whose troubles are reported.
const TROUBLES_MAX: usize = 3;

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
    let mut findings = vec![];
    for node in reachable {
        match blocker(snapshot, node, request) {
            Some(finding) => findings.push(finding),
            None => return vec![],
        }
    }
    let what = "nodes that have the device and cannot take the Pod";
    first_of(findings, TROUBLES_MAX, what)
}
