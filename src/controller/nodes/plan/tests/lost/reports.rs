//! Tests of the reports while slots of lost nodes are not free.
use super::*;

const NONE: [&str; 0] = [];

/// `cam-1`, whose only slot `b` holds, with what is reported of it.
fn notes(b: Option<NodeState>, configuration: Configuration, pods: Pods) -> Vec<String> {
    let mut held = shared();
    held.spec.capacity = 1;
    held.spec.device_usage = BTreeMap::from([("cam-1-0".to_owned(), "b".to_owned())]);
    let world = with_b(b)
        .with_instance(held)
        .with_configuration(configuration);
    let mut memory = NodeMemory::default();
    memory.notice(&Reported::new(&world), now(0));
    memory.looked(&"b".into(), pods, now(0).instant);
    let planned = looked(&world, &mut memory, 110);
    let notices = planned.notices.into_iter();
    notices.map(|notice| notice.note).collect()
}

#[test]
fn a_device_that_nobody_else_can_have_says_why_and_what_to_do() {
    let by_default = || configuration("cam", json!({}));
    let note = |b, configuration, pods| {
        let notes = notes(b, configuration, pods);
        let [note] = &notes[..] else {
            panic!("{notes:?}")
        };
        assert!(note.len() < 1_000, "{note}");
        note.clone()
    };
    let lost = || Some(not_ready(at(0)));
    let text = note(lost(), by_default(), Pods::Unknown);
    let expected = format!(
        "node b holds cam-1-0: it is not ready since {}, and its containers may still run. Other nodes get its slots in 190 s \
         (spec.slotReleaseSeconds of the Configuration). If the machine is off, give its Node the taint \
         node.kubernetes.io/out-of-service, or delete the Node and its Pods: then they get them at once",
        at(0)
    );
    assert_eq!(text, expected);
    let text = note(lost(), releasing_after(0), Pods::Unknown);
    assert!(text.contains("never by time"), "{text}");
    let text = note(None, by_default(), Pods::Remain);
    assert!(text.contains("at the latest in 190 s"), "{text}");
    let text = note(None, releasing_after(0), Pods::Remain);
    assert!(!text.contains("at the latest"), "{text}");
    assert_eq!(notes(None, by_default(), Pods::Unknown), NONE);
    assert_eq!(notes(Some(ready()), by_default(), Pods::Unknown), NONE);
}

#[test]
fn a_report_has_room_for_what_to_do_whatever_the_names() {
    let long = "n".repeat(253);
    let slots: Vec<String> = (0..5_000)
        .map(|n| format!("{}-{n}", "s".repeat(63)))
        .collect();
    let freed: Vec<_> = slots
        .iter()
        .map(|slot| (slot.clone(), long.as_str().into()))
        .collect();
    let note = notices::released(&freed).unwrap();
    assert!(note.ends_with("and 4996 more"), "{note}");
    let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
    let mut held = shared();
    held.spec.device_usage = BTreeMap::from([("cam-1-0".to_owned(), long.clone())]);
    let mut world = with_b(None).with_instance(held);
    Arc::make_mut(&mut world.nodes).insert(long.as_str().into(), Arc::new(not_ready(at(0))));
    let mut memory = NodeMemory::default();
    memory.notice(&Reported::new(&world), now(70));
    let why = memory.absent[long.as_str()].why;
    for outlook in [
        Outlook::FreeIn(Duration::from_secs(604_800)),
        Outlook::Never,
    ] {
        let note = notices::held(&slots, &long.as_str().into(), why, outlook);
        assert!(note.len() < 1_000 && note.ends_with("at once"), "{note}");
    }
}

#[test]
fn a_device_with_a_free_slot_and_a_node_that_may_be_back_soon_are_no_trouble() {
    // Five of its six slots are in use.
    let mut free = shared();
    free.spec.capacity = 6;
    let world = with_b(Some(not_ready(at(0)))).with_instance(free);
    assert_eq!(looked(&world, &mut NodeMemory::default(), 110).notices, []);
    let world = with_b(Some(not_ready(at(0))));
    assert_eq!(looked(&world, &mut NodeMemory::default(), 59).notices, []);
    assert_eq!(
        looked(&world, &mut NodeMemory::default(), 60).notices.len(),
        1
    );
}

#[test]
fn a_trouble_is_reported_once() {
    let (world, mut memory) = (with_b(Some(not_ready(at(0)))), NodeMemory::default());
    let mut tell = |world: &World, seconds| {
        let planned = looked(world, &mut memory, seconds);
        for notice in &planned.notices {
            memory.tell(&notice.node, &notice.instance, notice.wait);
        }
        planned.notices.len()
    };
    assert_eq!((tell(&world, 60), tell(&world, 61)), (1, 0));
    let never = world.with_configuration(releasing_after(0));
    assert_eq!((tell(&never, 62), tell(&never, 63)), (1, 0));
}

#[test]
fn an_outage_is_reported_on_the_configuration_once_it_lasts() {
    let (world, mut memory) = (cluster(1, 2, 0), NodeMemory::default());
    assert_eq!(looked(&world, &mut memory, 10).outage_on, BTreeSet::new());
    let on = looked(&world, &mut memory, 70).outage_on;
    assert_eq!(on, BTreeSet::from([key("cam")]));
    let note = notices::outage(memory.outage.as_ref().unwrap());
    assert!(note.starts_with("2 of 3 nodes are not ready"), "{note}");
    assert!(note.len() < 1_000);
    // Nothing is promised for an Instance that the node left before.
    let mut left = shared();
    left.spec.nodes = vec!["a".into()];
    let planned = looked(&world.clone().with_instance(left), &mut memory, 71);
    assert_eq!((planned.outage_on, planned.notices), (on, vec![]));
    memory.tell_outage(&key("cam"));
    let planned = looked(&world, &mut memory, 71);
    assert_eq!(
        (planned.outage_on, planned.notices),
        (BTreeSet::new(), vec![])
    );
}
