//! Checks what must hold of brokers at rest: every Instance has one for each node that sees the device, and at most one for each
//! slot. None is on another node, and no two are on one.
use super::{World, objects::Pod};
use crate::api::instance::Instance;
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc};

pub(super) fn at_rest(world: &World, instances: &[Arc<Instance>], faults: &mut Vec<String>) {
    let server = world.server.borrow();
    for instance in instances {
        let (key, spec) = (crate::store::key_of(&instance.metadata), &instance.spec);
        let of = spec.configuration_key(&key.namespace).untyped();
        let configuration = server.configurations.objects.get(&of);
        let is_wanted = configuration.is_some_and(|of| of.spec.broker_spec.is_some());
        let uid = instance.metadata.uid.as_deref();
        let is_its = |pod: &&Arc<Pod>| {
            let made = pod.broker.as_ref();
            let owner = made.map(|made| &made["metadata"]["ownerReferences"][0]["uid"]);
            owner.and_then(Value::as_str) == uid && !pod.is_deleting
        };
        let pods: Vec<_> = server.pods.objects.values().filter(is_its).collect();
        let capacity = usize::try_from(spec.capacity).unwrap();
        let expected = if is_wanted {
            capacity.min(spec.nodes.len())
        } else {
            0
        };
        let on: Vec<&String> = (pods.iter().map(|pod| &pod.node))
            .filter(|node| !node.is_empty())
            .collect();
        let is_apart = BTreeSet::from_iter(&on).len() == on.len();
        let are_right = on.iter().all(|node| spec.names_node(node));
        if pods.len() != expected || !is_apart || !are_right {
            let pods: Vec<_> = pods
                .iter()
                .map(|pod| (&pod.name, &pod.node, pod.phase))
                .collect();
            faults.push(format!(
                "at rest {} has the brokers {pods:?} of {expected}",
                key.name
            ));
        }
    }
}
