use super::*;
use proptest::prelude::*;

fn instance(name: &str, version: u64) -> Instance {
    let mut instance = Instance::new(name, Default::default());
    instance.metadata.namespace = Some("default".to_owned());
    instance.metadata.uid = Some(format!("uid of {name}"));
    instance.metadata.resource_version = Some(version.to_string());
    instance.spec.nodes = vec!["".into()]; // the node of the default view
    instance
}

fn listed(known: &mut KnownInstances, instances: &[Instance]) {
    known.follow(&None, Event::Init);
    for instance in instances {
        known.follow(&None, Event::Listed(Box::new(instance.clone())));
    }
    known.follow(&None, Event::Complete);
}

fn versions(known: &KnownInstances) -> Vec<(String, String)> {
    let all = known.published().into_iter();
    all.map(|(key, i)| {
        (
            key.name.into(),
            i.metadata.resource_version.clone().unwrap(),
        )
    })
    .collect()
}

fn at(name: &str, version: &str) -> (String, String) {
    (name.to_owned(), version.to_owned())
}

#[test]
fn what_was_written_is_not_undone_by_an_older_event_or_list() {
    let mut known = KnownInstances::default();
    listed(&mut known, &[instance("a", 1)]);
    known.written(instance("a", 5));
    known.follow(&None, Event::Applied(Box::new(instance("a", 3))));
    listed(&mut known, &[instance("a", 4)]);
    assert_eq!(versions(&known), [at("a", "5")]);
    known.follow(&None, Event::Applied(Box::new(instance("a", 6))));
    assert_eq!(versions(&known), [at("a", "6")]);
}

#[test]
fn a_server_that_was_restored_from_a_backup_is_believed() {
    let mut known = KnownInstances::default();
    listed(&mut known, &[instance("a", 90), instance("b", 91)]);
    known.written(instance("a", 95));
    known.follow(&None, Event::Applied(Box::new(instance("a", 95))));
    // It may also be read again, and the watch may be first.
    known.read(instance("a", 95));
    known.written(instance("b", 96));
    listed(&mut known, &[instance("a", 40), instance("b", 41)]);
    assert_eq!(
        versions(&known),
        [at("a", "40"), at("b", "96")],
        "a list may be older than an answer"
    );
    known.follow(&None, Event::Applied(Box::new(instance("a", 50))));
    listed(&mut known, &[instance("a", 50), instance("b", 41)]);
    assert_eq!(versions(&known), [at("a", "50"), at("b", "96")]);
    listed(&mut known, &[instance("a", 50), instance("b", 41)]);
    assert_eq!(versions(&known), [at("a", "50"), at("b", "41")]);
}

#[test]
fn a_list_of_what_is_known_takes_no_second_copy_of_it() {
    let mut known = KnownInstances::default();
    listed(&mut known, &[instance("a", 1)]);
    let key = instance_key(&instance("a", 1).metadata);
    let first = known.stored(&key).unwrap();
    listed(&mut known, &[instance("a", 1)]);
    assert!(Arc::ptr_eq(&known.stored(&key).unwrap(), &first));
    listed(&mut known, &[instance("a", 2)]);
    assert_eq!(versions(&known), [at("a", "2")]);
}

#[test]
fn an_instance_created_during_a_list_outlives_it_and_one_that_is_gone_does_not() {
    let mut known = KnownInstances::default();
    listed(&mut known, &[instance("gone", 1)]);
    known.follow(&None, Event::Init);
    known.written(instance("new", 9));
    known.follow(&None, Event::Complete);
    assert_eq!(versions(&known), [at("new", "9")]);
}

#[test]
fn what_was_deleted_does_not_come_back_with_an_older_event() {
    let mut known = KnownInstances::default();
    listed(&mut known, &[instance("a", 1)]);
    known.deleted(&instance("a", 1));
    known.follow(&None, Event::Applied(Box::new(instance("a", 2))));
    assert_eq!(versions(&known), []);
    known.follow(&None, Event::Deleted(Box::new(instance("a", 3))));
    let mut successor = instance("a", 4);
    successor.metadata.uid = Some("another".to_owned());
    known.follow(&None, Event::Applied(Box::new(successor)));
    assert_eq!(versions(&known), [at("a", "4")]);
}

#[test]
fn a_late_answer_says_nothing_of_another_one_of_the_name() {
    let mut known = KnownInstances::default();
    let asked = instance("a", 1);
    listed(&mut known, std::slice::from_ref(&asked));
    let mut successor = instance("a", 3);
    successor.metadata.uid = Some("another".to_owned());
    known.follow(&None, Event::Deleted(Box::new(instance("a", 2))));
    known.follow(&None, Event::Applied(Box::new(successor)));
    known.deleted(&asked);
    assert_eq!(versions(&known), [at("a", "3")]);
}

#[test]
fn a_deletion_that_no_watch_tells_of_is_forgotten_after_two_lists_of_its_namespace() {
    let mut known = KnownInstances::default();
    let of = |namespace: &str| Some(namespace.to_owned());
    for n in 0..100 {
        let mut one = instance("a", 1);
        one.metadata.uid = Some(n.to_string());
        known.follow(&of("default"), Event::Init);
        known.follow(&of("default"), Event::Listed(Box::new(one.clone())));
        known.follow(&of("default"), Event::Complete);
        known.deleted(&one);
        // This list began before the write.
        known.follow(&of("default"), Event::Init);
        known.follow(&of("default"), Event::Listed(Box::new(one)));
        known.follow(&of("default"), Event::Complete);
        assert_eq!(versions(&known), []);
    }
    assert_eq!(known.deleted.len(), 1);
    for namespace in ["other", "default"] {
        known.follow(&of(namespace), Event::Init);
        known.follow(&of(namespace), Event::Complete);
        assert_eq!(known.deleted.len(), usize::from(namespace == "other"));
    }
    for n in 0..DELETED_MAX + 5 {
        let mut one = instance("a", 1);
        one.metadata.uid = Some(n.to_string());
        known.follow(&of("default"), Event::Applied(Box::new(one.clone())));
        known.deleted(&one);
    }
    assert_eq!(known.deleted.len(), DELETED_MAX);
}

#[test]
fn a_list_of_one_namespace_says_nothing_of_the_others() {
    let mut known = KnownInstances::default();
    known.follow(&Some("default".to_owned()), Event::Init);
    known.follow(
        &Some("default".to_owned()),
        Event::Listed(Box::new(instance("a", 1))),
    );
    known.follow(&Some("default".to_owned()), Event::Complete);
    known.follow(&Some("other".to_owned()), Event::Init);
    known.follow(&Some("other".to_owned()), Event::Complete);
    assert_eq!(versions(&known), [at("a", "1")]);
}

#[test]
fn an_instance_that_was_left_and_joined_again_outlives_the_event_of_the_leaving() {
    let mut known = KnownInstances::default();
    listed(&mut known, &[instance("a", 1)]);
    known.written(instance("a", 5));
    known.follow(&None, Event::Deleted(Box::new(instance("a", 3))));
    assert_eq!(versions(&known), [at("a", "5")]);
    known.follow(&None, Event::Deleted(Box::new(instance("a", 6))));
    assert_eq!(versions(&known), []);
}

#[test]
fn an_instance_that_cannot_be_read_stays_as_it_was() {
    let mut known = KnownInstances::default();
    listed(&mut known, &[instance("a", 1)]);
    known.follow(&None, Event::Init);
    known.follow(&None, Event::Unreadable(InstanceKey::new("default", "a")));
    known.follow(&None, Event::Complete);
    assert_eq!(versions(&known), [at("a", "1")]);
}

#[test]
fn an_earlier_life_says_nothing_of_what_was_listed_in_this_one() {
    let mut known = KnownInstances::default();
    listed(&mut known, &[instance("a", 7)]);
    let earlier = [instance("a", 1), instance("gone", 2)];
    let earlier = earlier
        .map(|i| (instance_key(&i.metadata), Arc::new(i)))
        .into();
    known.begin_with(earlier, |namespace| namespace == "default");
    assert_eq!(versions(&known), [at("a", "7")]);
}

#[test]
fn an_instance_that_is_being_deleted_is_gone() {
    let mut known = KnownInstances::default();
    let mut leaving = instance("a", 1);
    leaving.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
        ));
    listed(&mut known, &[leaving, instance("b", 2)]);
    assert_eq!(versions(&known), [at("b", "2")]);
}

#[test]
fn an_instance_that_this_node_has_left_is_forgotten_however_its_event_and_the_answer_come() {
    let seen_by = |nodes: &[&str], version| {
        let mut instance = instance("a", version);
        instance.spec.nodes = nodes.iter().map(|&node| node.into()).collect();
        if nodes.contains(&"node-a") {
            let label = crate::api::names::node_label("node-a");
            instance.metadata.labels = Some([(label, String::new())].into());
        }
        instance
    };
    let left = seen_by(&["node-b"], 5);
    let its_event = Event::Deleted(Box::new(left.clone()));
    for is_answer_first in [true, false] {
        let mut known = KnownInstances::new("node-a");
        listed(&mut known, &[seen_by(&["node-a", "node-b"], 1)]);
        if is_answer_first {
            known.written(left.clone());
            known.follow(&None, its_event.clone());
        } else {
            known.follow(&None, its_event.clone());
            known.written(left.clone());
        }
        assert_eq!(versions(&known), [], "{is_answer_first}");
    }
    // It was joined again before the answer came.
    let mut known = KnownInstances::new("node-a");
    let again = seen_by(&["node-a", "node-b"], 6);
    known.follow(&None, Event::Applied(Box::new(again.clone())));
    known.follow(&None, Event::Init);
    known.follow(&None, Event::Listed(Box::new(again)));
    known.written(left.clone());
    assert_eq!(versions(&known), [at("a", "6")]);
    known.follow(&None, Event::Complete);
    assert_eq!(versions(&known), [at("a", "6")]);
    // An Instance that is about to be joined was read, and stays until then.
    let mut known = KnownInstances::new("node-a");
    known.read(left);
    assert_eq!(versions(&known), [at("a", "5")]);
}

#[test]
fn an_answer_that_comes_after_the_instance_has_left_the_watch_does_not_bring_it_back() {
    let mut known = KnownInstances::default();
    listed(&mut known, &[instance("a", 1)]);
    // It is joined as version 5, and the controller removes this node as version 6: the event arrives before the
    // answer.
    known.follow(&None, Event::Deleted(Box::new(instance("a", 6))));
    known.written(instance("a", 5));
    known.read(instance("a", 4));
    assert_eq!(versions(&known), []);
    known.written(instance("a", 7));
    assert_eq!(versions(&known), [at("a", "7")]);
}

/// Returns whether anything changed but the slots of other nodes.
fn is_news(before: &Instances, now: &Instances) -> bool {
    let is_same = |(a, b): ((&InstanceKey, &Arc<Instance>), _)| {
        let (key, instance): (&InstanceKey, &Arc<Instance>) = b;
        a.0 == key && is_same_for(a.1, instance, "here")
    };
    before.len() != now.len() || !before.iter().zip(now).all(is_same)
}

fn used(name: &str, version: u64, owners: &[&str]) -> Instance {
    let mut instance = instance(name, version);
    instance.spec.nodes = vec!["here".into(), "there".into()];
    let owners = owners.iter().enumerate();
    instance.spec.device_usage = owners
        .map(|(n, owner)| (format!("{name}-{n}"), (*owner).to_owned()))
        .collect();
    instance
}

#[test]
fn slots_of_other_nodes_are_no_news_and_those_of_this_node_are() {
    let mut known = KnownInstances::new("here");
    for (version, owners, expected) in [
        (2, ["", "there"], true),
        (3, ["afar", "there"], false),
        (4, ["here", "there"], true),
        (5, ["", "there"], true),
    ] {
        let event = Event::Applied(Box::new(used("a", version, &owners)));
        known.follow(&None, event);
        assert_eq!(known.take_news(), expected, "{owners:?}");
    }
}

/// Changes the view in one of all ways.
fn change(known: &mut KnownInstances, way: u8, instance: Instance) {
    let key = instance_key(&instance.metadata);
    match way {
        0 => known.follow(&None, Event::Init),
        1 => known.follow(&None, Event::Listed(Box::new(instance))),
        2 => known.follow(&None, Event::Complete),
        3 => known.follow(&None, Event::Unreadable(key)),
        4 => known.follow(&None, Event::Deleted(Box::new(instance))),
        5 => known.written(instance),
        6..=8 => known.deleted(&instance),
        9 => known.begin_with(Instances::from([(key, Arc::new(instance))]), |_| false),
        _ => known.follow(&None, Event::Applied(Box::new(instance))),
    }
}

proptest! {
    #[test]
    fn nothing_that_concerns_this_node_is_published_without_news(
        steps in proptest::collection::vec((0_u8..14, 0_usize..2, 0_u64..20, 0_usize..4, 0_usize..4), 1..30),
    ) {
        const OWNERS: [&str; 4] = ["", "here", "there", "afar"];
        let mut known = KnownInstances::new("here");
        known.begin();
        let mut before = known.published();
        known.take_news();
        for (way, name, version, first, second) in steps {
            let mut instance = used(["a", "b"][name], version, &[OWNERS[first], OWNERS[second]]);
            if first == second {
                instance.spec.nodes.remove(0);
            }
            change(&mut known, way, instance);
            let now = known.published();
            prop_assert!(known.take_news() || !is_news(&before, &now), "way {way}");
            before = now;
        }
    }
}
