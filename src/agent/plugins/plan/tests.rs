use super::*;
use crate::{
    api::instance::{Instance, InstanceSpec},
    model::{
        resource_name::ResourcePrefix, resource_names::ResourceNames,
        typed_names::ConfigurationName,
    },
};
use proptest::prelude::*;
use std::sync::Arc;

fn offers() -> impl Strategy<Value = BTreeMap<PluginName, Offered>> {
    let offer = ("[a-d]", any::<bool>(), "[xy]").prop_map(|(name, is_instance, full_name)| {
        let resource = if is_instance {
            Resource::Instance(name.into())
        } else {
            Resource::Configuration(name.into())
        };
        let full_name = format!("akri.sh/{full_name}").parse().unwrap();
        let offered = Offered {
            resource,
            full_name,
            is_by_claims: false,
        };
        (offered.resource.plugin(), offered)
    });
    prop::collection::vec(offer, 0..5).prop_map(|all| all.into_iter().collect())
}

fn prefix() -> ResourcePrefix {
    "akri.sh".parse().unwrap()
}

fn instances(of: &[(&str, &str)]) -> Instances {
    let instance = |(name, configuration): &(&str, &str)| {
        let spec = InstanceSpec {
            configuration_name: (*configuration).into(),
            nodes: vec!["n".into()],
            ..InstanceSpec::default()
        };
        let key = InstanceKey::new("default", *name);
        (key, Arc::new(Instance::new(name, spec)))
    };
    of.iter().map(instance).collect()
}

#[test]
fn a_configuration_is_offered_by_the_name_it_has_and_no_two_by_one_name() {
    let instances = instances(&[("block-8120fe", "block"), ("cam-1", "cam")]);
    let offered = |names: &ResourceNames| -> Vec<String> {
        let desired = desired(&instances, &NodeOnly::new(), "n", &named(names)).into_values();
        desired.map(|offered| offered.full_name.into()).collect()
    };
    let block = "block".into();
    let mut names = ResourceNames::new(&prefix());
    let instances_alone = ["akri.sh/block-8120fe", "akri.sh/cam-1"];
    for (own, expected) in [
        (
            "pflex.io/block",
            vec![
                "pflex.io/block",
                "akri.sh/block-8120fe",
                "akri.sh/cam",
                "akri.sh/cam-1",
            ],
        ),
        // An Instance's.
        (
            "akri.sh/cam-1",
            vec!["akri.sh/block-8120fe", "akri.sh/cam", "akri.sh/cam-1"],
        ),
    ] {
        names.set(&block, Some(own.parse().unwrap()));
        assert_eq!(offered(&names), expected, "{own}");
    }
    names.set(&block, Some("akri.sh/cam".parse().unwrap()));
    assert_eq!(offered(&names).len(), 3, "one of the two");
    assert_eq!(
        offered(&ResourceNames::before_the_first_read(&prefix())),
        instances_alone
    );
}

#[test]
fn a_resource_stays_while_a_container_here_has_a_slot_of_a_device_that_is_seen_no_more() {
    let mut moved = named(&ResourceNames::new(&prefix()));
    let plugins = moved.clone();
    moved
        .by_claims
        .insert(ConfigurationKey::new("default", "cam"));
    for (usage, expected, expected_by_claims) in [
        ("n", vec!["cam-1"], vec!["cam", "cam-1"]),
        ("C:cam-0:n", vec!["cam"], vec!["cam"]),
        ("other", vec![], vec!["cam"]),
        ("C:cam-0:other", vec![], vec!["cam"]),
        ("claim:1:n", vec![], vec!["cam"]),
    ] {
        let mut all = instances(&[("cam-1", "cam")]);
        for instance in all.values_mut() {
            let spec = &mut Arc::make_mut(instance).spec;
            (spec.device_usage).insert("cam-1-0".to_owned(), usage.to_owned());
        }
        let by_claims = desired(&all, &NodeOnly::new(), "n", &moved);
        let names: Vec<_> = by_claims.keys().collect();
        assert_eq!(names, expected_by_claims, "{usage}, by claims");
        assert!(by_claims[&PluginName::from(&ConfigurationName::from("cam"))].is_by_claims);
        for instance in all.values_mut() {
            Arc::make_mut(instance).spec.nodes.clear();
        }
        let desired = desired(&all, &NodeOnly::new(), "n", &plugins);
        assert_eq!(desired.keys().collect::<Vec<_>>(), expected, "{usage}");
    }
}

fn named(names: &ResourceNames) -> ValidatedConfigurations {
    ValidatedConfigurations {
        names: names.clone(),
        ..ValidatedConfigurations::default()
    }
}

proptest! {
    #[test]
    fn two_sets_are_compared_by_their_keys(
        before in proptest::collection::btree_set(0..12_u8, 0..8),
        now in proptest::collection::btree_set(0..12_u8, 0..8),
        same in proptest::collection::btree_set(0..12_u8, 0..8),
    ) {
        let one = |n: &u8| {
            let instance = Arc::new(Instance::new("", InstanceSpec::default()));
            (InstanceKey::new("default", format!("cam-{n}")), instance)
        };
        let before: Instances = before.iter().map(one).collect();
        let mut now: Instances = now.iter().map(one).collect();
        for (key, _) in same.iter().map(one) {
            if let (Some(before), Some(now)) = (before.get(&key), now.get_mut(&key)) {
                *now = before.clone();
            }
        }
        let Compared { pairs, gone } = compare(&before, &now);
        prop_assert!(pairs.iter().map(|pair| pair.key).eq(now.keys()));
        for pair in pairs {
            prop_assert_eq!(pair.now, &now[pair.key]);
            prop_assert_eq!(pair.before, before.get(pair.key));
            let is_same = before.get(pair.key).is_some_and(|b| Arc::ptr_eq(b, pair.now));
            prop_assert_eq!(pair.is_changed(), !is_same);
        }
        let expected = before.keys().filter(|key| !now.contains_key(*key));
        prop_assert!(gone.iter().eq(expected));
    }

    #[test]
    fn executing_the_plan_leaves_nothing_to_do(desired in offers(), running in offers()) {
        let mut after = running.clone();
        for action in plan(&desired, &running) {
            match action {
                Action::Stop(name) => prop_assert!(after.remove(&name).is_some()),
                Action::Start(offered) => {
                    let name = offered.resource.plugin();
                    prop_assert!(after.insert(name, offered).is_none());
                }
            }
        }
        prop_assert_eq!(plan(&desired, &after), vec![]);
    }

    #[test]
    fn socket_names_fit_and_are_known_again(
        resource in "[a-z0-9-]{1,63}",
        folder in 1_usize..75,
        now in prop_oneof![Just(57), Just(1_700_000_000)],
    ) {
        let plugin = PluginName::from(&InstanceName::from(resource));
        let stem = socket_stem(&plugin, folder).unwrap();
        let (name, _) = socket_name(&stem, now, |_| false);
        prop_assert!(name.len() <= 75 && folder + 1 + name.len() <= 107, "{}", name);
        prop_assert!(is_socket_of(&stem, &name));
    }
}

#[test]
fn a_folder_too_deep_for_any_socket_is_said_to_be_so() {
    let cam = Resource::Configuration("cam".into()).plugin();
    assert_eq!(socket_stem(&cam, 100), None);
}

#[test]
fn a_second_socket_in_one_second_gets_a_name_of_its_own() {
    let taken = "cam-1700000000.sock";
    let named = socket_name("cam", 1_700_000_000, |name| name == taken);
    assert_eq!(named, ("cam-1700000001.sock".to_owned(), 1_700_000_001));
}

#[test]
fn the_sockets_of_others_are_not_ours() {
    for name in [
        "cam-8120fe-1700000000.sock",
        "cam-1700000000.sock.bak",
        "cam-17.sock",
        "kubelet.sock",
    ] {
        assert!(!is_socket_of("cam", name), "{name}");
    }
}
