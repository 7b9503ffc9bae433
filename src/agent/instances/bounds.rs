//! Keeps the slots and the report of a Configuration within their limits. Pure.
use crate::{
    agent::{
        node_only::plan::{NodeOnly, slot_limits},
        values::Accepted,
    },
    api::{configuration::Problem, reason::Reason},
    model::{limits, typed_names::ConfigurationKey},
    store::{Instances, Report},
};
use std::collections::BTreeMap;

/// Completes the reports: Configurations whose devices offer fewer slots than their capacity say so.
pub(super) fn complete(
    instances: &Instances,
    node_only: &NodeOnly,
    accepted: &Accepted,
    reports: &mut BTreeMap<ConfigurationKey, Report>,
) {
    let slots = slot_limits(instances, node_only);
    for (key, report) in reports {
        let configuration = accepted.get(key);
        let limit = slots.of(&key.namespace);
        let capacity = configuration.map_or(0, |a| a.configuration.spec.capacity);
        let offer = node_only.get(&key.name);
        let has_devices = report.instances > 0 || offer.is_some_and(|offer| !offer.is_empty());
        if has_devices && u32::try_from(capacity).is_ok_and(|capacity| capacity > limit) {
            let message = format!(
                "capacity is {capacity}, and this node offers {limit} slots of each device only: all its devices together may have {}, and those of a namespace their part; lower the capacity, or narrow what is found",
                limits::SLOTS_MAX
            );
            report
                .problems
                .push(Problem::new(Reason::TooManySlots, message));
        }
        report.problems.truncate(limits::PROBLEMS_MAX);
    }
}
