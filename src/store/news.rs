//! Decides whether changes of Instances concern a node. Most changes of shared Instances do not: they say which slots
//! other nodes hold. Pure.
use super::Instances;
use crate::{api::instance::Instance, model::slot::SlotOwner};
use std::sync::Arc;

/// Returns whether anything changed but the slots that other nodes hold.
pub(crate) fn is_news(before: &Instances, now: &Instances, node: &str) -> bool {
    before.len() != now.len()
        || before.iter().zip(now).any(|((a_key, a), (b_key, b))| {
            let is_same =
                a_key == b_key && (Arc::ptr_eq(a, b) || for_node(a, node) == for_node(b, node));
            !is_same
        })
}

/// Returns an Instance without the slots of other nodes, but for whether there are any.
fn for_node(instance: &Instance, node: &str) -> (Instance, bool) {
    let mut instance = instance.clone();
    instance.metadata.resource_version = None;
    instance.metadata.generation = None;
    let mut is_used = false;
    instance.spec.device_usage.retain(|_, usage| {
        let owner = SlotOwner::from_usage(usage);
        is_used |= !matches!(owner, Ok(None));
        // A value that no agent writes can be anybody's.
        owner.is_err() || owner.is_ok_and(|owner| owner.is_some_and(|owner| owner.node() == node))
    });
    (instance, is_used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::instance::InstanceSpec, model::instance_name::InstanceKey};

    const OTHERS: &str = "node-b";

    fn one(change: impl FnOnce(&mut Instance)) -> Instances {
        let mut instance = Instance::new("cam-1", InstanceSpec::default());
        instance.metadata.resource_version = Some("1".to_owned());
        instance.spec.nodes = vec!["node-a".into(), OTHERS.into()];
        use_slot(&mut instance, 0, OTHERS);
        change(&mut instance);
        Instances::from([(InstanceKey::new("default", "cam-1"), Arc::new(instance))])
    }

    fn use_slot(instance: &mut Instance, slot: u8, owner: &str) {
        let usage = &mut instance.spec.device_usage;
        usage.insert(format!("cam-1-{slot}"), owner.to_owned());
    }

    #[test]
    fn the_slots_of_other_nodes_are_no_news_and_anything_else_is() {
        let cases: [(&str, bool, fn(&mut Instance)); 8] = [
            ("nothing", false, |_| ()),
            ("another slot of another node", false, |i| {
                i.metadata.resource_version = Some("2".to_owned());
                i.metadata.generation = Some(2);
                use_slot(i, 1, "C:cam-3:node-c");
                use_slot(i, 2, "");
            }),
            ("a slot of this node", true, |i| use_slot(i, 1, "node-a")),
            ("one by its Configuration", true, |i| {
                use_slot(i, 1, "C:cam-0:node-a");
            }),
            ("a slot that nobody can read", true, |i| {
                use_slot(i, 1, "C:")
            }),
            ("no slot is in use any more", true, |i| {
                i.spec.device_usage.clear();
            }),
            ("its nodes", true, |i| drop(i.spec.nodes.pop())),
            ("its status", true, |i| i.status = Some(Default::default())),
        ];
        for (what, expected, change) in cases {
            let is = is_news(&one(|_| ()), &one(change), "node-a");
            assert_eq!(is, expected, "{what}");
        }
        let (none, some) = (Instances::new(), one(|_| ()));
        assert!(is_news(&none, &some, "node-a"));
        assert!(is_news(&some, &none, "node-a"));
        let other = some
            .values()
            .map(|i| (InstanceKey::new("default", "cam-2"), i.clone()));
        assert!(is_news(&some, &other.collect(), "node-a"));
    }
}
