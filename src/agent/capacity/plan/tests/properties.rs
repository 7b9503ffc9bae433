use super::*;
use proptest::{
    collection::{btree_map, btree_set},
    prelude::*,
};

fn names() -> impl Strategy<Value = ResourceName> {
    "[a-d]".prop_map(|last| name(&format!("akri.sh/{last}")))
}

fn quantities() -> impl Strategy<Value = BTreeMap<ResourceName, String>> {
    let foreign = Just(name("example.com/a"));
    btree_map(prop_oneof![4 => names(), 1 => foreign], "[0-3]", 0..5)
}

prop_compose! {
    fn stories()(
        offers in btree_map(names(), ("[h-]{0,3}", any::<bool>()), 0..4),
        capacity in quantities(),
        allocatable in quantities(),
        kubelet in btree_map(names(), btree_set(0..3, 1..3), 0..4),
        agrees in any::<bool>(),
        kubelet_started in proptest::option::of(0_u64..9_999),
        (offered, stopped, unbacked) in (
            btree_set(names(), 0..4),
            btree_map(names(), 9_980_u64..10_000, 0..4),
            btree_map(names(), 9_000_u64..10_000, 0..4),
        ),
    ) -> Story {
        let offers: BTreeMap<_, _> = offers
            .into_iter()
            .map(|(name, (health, is_registered))| offer(&name, &health, is_registered))
            .collect();
        let id = |name: &str, n| format!("{name}-{n}");
        let mut kubelet: IdsByResource = kubelet
            .into_iter()
            .map(|(name, ids)| (name.clone(), ids.into_iter().map(|n| id(&name, n)).collect()))
            .collect();
        if agrees {
            for (name, offer) in &offers {
                let healthy = offer.slots.iter().filter(|slot| slot.is_healthy);
                kubelet.insert(name.clone(), healthy.map(|slot| slot.id.clone()).collect());
            }
            kubelet.retain(|_, ids| !ids.is_empty());
        }
        let times = |map: BTreeMap<ResourceName, u64>| {
            map.into_iter().map(|(name, at)| (name, secs(at))).collect()
        };
        Story {
            offers,
            node: NodeResources { capacity, allocatable },
            kubelet,
            kubelet_started: kubelet_started.map(secs),
            now: LONG,
            memory: CapacityMemory { offered, stopped: times(stopped), unbacked: times(unbacked) },
        }
    }
}

proptest! {
    #[test]
    fn executing_the_plan_leaves_nothing_to_do_and_others_alone(mut story in stories()) {
        let ours: ResourcePrefixes = "akri.sh".parse().unwrap();
        let is_ours = |name: &ResourceName| ours.owns(name);
        let whole = story.node.clone();
        story.node.retain(is_ours);
        let first = story.plan();
        prop_assert!(first.changes.iter().all(|change| is_ours(&change.resource)));
        let mut patched = whole.clone();
        prop_assert!(patched.apply(&first.changes), "{:?}", first.changes);
        let foreign = |mut node: NodeResources| {
            node.retain(|name| !is_ours(name));
            node
        };
        prop_assert_eq!(foreign(patched.clone()), foreign(whole));
        story.node = patched;
        story.node.retain(is_ours);
        let second = story.plan();
        prop_assert_eq!(second.changes, vec![]);
        prop_assert_eq!(second.asks_kubelet, first.asks_kubelet);
    }

    #[test]
    fn waiting_as_long_as_was_said_removes_what_is_stale(mut story in stories()) {
        story.node.retain(|name| name.prefix() == "akri.sh");
        story.offers.clear();
        story.kubelet.clear();
        while let Some(wait) = story.plan().wake_in {
            story.round();
            story.plugins_have_ended();
            story.now += wait;
        }
        story.round();
        if story.kubelet_started.is_some() {
            prop_assert_eq!(values(&story.node), vec![]);
        }
    }
}
