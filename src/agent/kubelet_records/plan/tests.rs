use super::*;
use crate::model::{instance_name::InstanceKey, slot::SlotOwner};
use petiole_kubelet_api::checkpoint::{self, Data, encoded};

fn entries(data: Data, prefixes: &ResourcePrefixes) -> Vec<Entry> {
    let all = data.pod_device_entries.into_iter().flatten();
    all.filter_map(|one| entry(&one, prefixes)).collect()
}

/// Returns the entries of two containers: one of an Instance's resource, and one of a Configuration's without slots in
/// its environment.
fn file() -> Data {
    let entry = |resource: &str, id: &str, env: &[(&str, &str)]| checkpoint::Entry {
        pod_uid: "uid".to_owned(),
        container_name: "main".to_owned(),
        resource_name: resource.to_owned(),
        device_ids: Some([(-1, Some(vec![id.to_owned()]))].into()),
        alloc_resp: Some(encoded(
            &ContainerAllocateResponse {
                envs: (env.iter())
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                    .collect(),
                ..ContainerAllocateResponse::default()
            }
            .encode_to_vec(),
        )),
    };
    Data {
        pod_device_entries: Some(vec![
            entry(
                "akri.sh/cam-3b4293",
                "cam-3b4293-0",
                &[("AKRI_SLOT", "cam-3b4293-0")],
            ),
            entry(
                "akri.sh/cam",
                "cam-4",
                &[("URL_3B4293", "x"), ("A_FEEDS", "y"), ("B_12", "z")],
            ),
            entry("example.com/gpu", "gpu-0", &[]),
        ]),
        registered_devices: None,
    }
}

fn records(listed: &[(&str, &str)], is_fresh: bool) -> KubeletRecords {
    let mut list = PodList::default();
    for (resource, id) in listed {
        let ids = (list.by_resource.entry(resource.parse().unwrap())).or_default();
        ids.insert((*id).to_owned());
    }
    let entries = entries(file(), &"akri.sh".parse().unwrap());
    KubeletRecords {
        list,
        checkpoint: Checkpoint::Read { entries, is_fresh },
        claims: Prepared::default(),
    }
}

fn used(records: &KubeletRecords) -> Vec<String> {
    let ids = records.uses().into_iter().flat_map(|one| one.ids);
    ids.map(|id| id.to_string()).collect()
}

#[test]
fn the_checkpoint_says_what_containers_were_given() {
    let entries = entries(file(), &"akri.sh".parse().unwrap());
    let shown: Vec<_> = entries
        .iter()
        .map(|entry| {
            (
                entry.resource.as_str(),
                entry.env_slots.len(),
                entry.digests.len(),
            )
        })
        .collect();
    assert_eq!(shown, [("akri.sh/cam-3b4293", 1, 0), ("akri.sh/cam", 0, 1)]);
    assert!(entries[1].digests.contains("3b4293"));
}

#[test]
fn an_answer_that_cannot_be_read_still_holds_its_ids() {
    let mut data = file();
    for entry in data.pod_device_entries.iter_mut().flatten() {
        entry.alloc_resp = Some("no base64".to_owned());
    }
    let entries = entries(data, &"akri.sh".parse().unwrap());
    assert_eq!(entries.len(), 2);
    assert!(
        entries
            .iter()
            .all(|entry| entry.ids.len() == 1 && entry.env_slots.is_empty())
    );
}

#[test]
fn what_the_checkpoint_alone_has_is_held_and_is_in_use_for_certain_once_it_is_fresh() {
    let stale = records(&[("akri.sh/cam", "cam-4"), ("akri.sh/cam", "cam-5")], false);
    let held = stale.held().unwrap();
    let all = ["cam-3b4293-0", "cam-4", "cam-5"];
    assert_eq!(held.iter().collect::<Vec<_>>(), all);
    assert_eq!(used(&stale), ["cam-4", "cam-5"]);
    assert_eq!(used(&records(&[], true)), ["cam-3b4293-0", "cam-4"]);
}

#[test]
fn what_containers_got_under_an_earlier_prefix_is_theirs() {
    let entries = entries(file(), &"edge.io".parse().unwrap());
    let ids: Vec<&str> = (entries.iter().flat_map(|entry| &entry.ids))
        .map(String::as_str)
        .collect();
    assert_eq!(ids, ["cam-3b4293-0"], "the other names no slot of ours");
}

#[test]
fn a_checkpoint_that_cannot_be_read_lets_nothing_be_released_and_the_list_be_used() {
    let mut records = records(&[("akri.sh/cam", "cam-4")], false);
    records.checkpoint = Checkpoint::Unreadable(Unreadable("no".to_owned()));
    assert_eq!(records.held(), None);
    assert_eq!(used(&records), ["cam-4"]);
    records.checkpoint = Checkpoint::Missing;
    assert_eq!(records.held().unwrap().len(), 1);
}

#[test]
fn what_the_books_do_not_agree_on_is_in_doubt() {
    let held = |slot: &str, owner: SlotOwner| Held {
        key: InstanceKey::new("default", "cam-3b4293"),
        slot: slot.parse().unwrap(),
        owner,
        answered: Duration::ZERO,
    };
    let by_configuration = SlotOwner::Configuration {
        slot: "cam-9".to_owned(),
        node: "a".into(),
    };
    let slots = [
        held("cam-3b4293-0", SlotOwner::Node("a".into())),
        held("cam-3b4293-1", by_configuration),
    ];
    let records = records(&[("akri.sh/cam-3b4293", "cam-3b4293-0")], false);
    let doubts = records.doubts(&slots);
    assert_eq!(doubts.into_iter().collect::<Vec<_>>(), ["cam-4", "cam-9"]);
}

#[test]
fn a_fresh_checkpoint_is_believed_until_a_pod_goes_or_something_else_is_in_doubt() {
    let seconds = Duration::from_secs;
    let pods = |names: &[&str]| -> BTreeSet<ObjectKey> {
        names
            .iter()
            .map(|name| ObjectKey::new("default", *name))
            .collect()
    };
    let doubts: BTreeSet<String> = ["cam-4".to_owned()].into();
    let confirmed = Confirmed {
        begun: seconds(10),
        pods: pods(&["a", "b"]),
        doubts: doubts.clone(),
        seen: doubts.clone(),
    };
    let holds = |names: &[&str], doubts: &BTreeSet<String>, at: u64| {
        let mut records = records(&[], false);
        records.list.pods = pods(names);
        let at = At {
            begun: seconds(at),
            at_most: seconds(60),
        };
        confirmed.still_holds(&records, doubts, at)
    };
    assert!(holds(&["a", "b", "new"], &doubts, 69));
    assert!(holds(&["a", "b"], &BTreeSet::new(), 11));
    assert!(!holds(&["a"], &doubts, 11));
    assert!(!holds(&["a", "b"], &["cam-5".to_owned()].into(), 11));
    assert!(!holds(&["a", "b"], &doubts, 70));
}

#[test]
fn what_is_in_doubt_for_the_first_time_is_not_confirmed() {
    // Its Pod was admitted after the list was made, so that the list does not say when it goes.
    let began = records(&[], true);
    let first = Confirmed::by(&began, &[], Duration::from_secs(1), None);
    let doubts = began.doubts(&[]);
    assert!(!doubts.is_empty());
    let at = |begun| At {
        begun: Duration::from_secs(begun),
        at_most: Duration::from_secs(60),
    };
    assert!(!first.still_holds(&began, &doubts, at(2)));
    let second = Confirmed::by(&began, &[], Duration::from_secs(2), Some(&first));
    assert!(second.still_holds(&began, &doubts, at(3)));
}

/// Returns a look with this checkpoint, of a kubelet that lists no Pod.
fn looked(checkpoint: Checkpoint, is_trusted: bool, has_started: bool) -> RecordsLook {
    RecordsLook {
        records: KubeletRecords {
            list: PodList::default(),
            checkpoint,
            claims: Prepared::default(),
        },
        is_trusted,
        has_started,
    }
}

#[test]
fn a_checkpoint_that_can_be_read_has_all_that_containers_may_have_and_one_that_cannot_says_nothing()
{
    // A kubelet that has started lists nothing, and keeps its checkpoint; an init container is in no list.
    let KubeletRecords { checkpoint, .. } = records(&[], false);
    let look = looked(checkpoint, false, false);
    let all = look.all_uses().unwrap();
    let all: Vec<String> = all
        .iter()
        .flat_map(|one| &one.ids)
        .map(ToString::to_string)
        .collect();
    assert_eq!(all, ["cam-3b4293-0", "cam-4"]);
    assert!(look.records.uses().is_empty(), "none is certain");

    let unreadable = || Checkpoint::Unreadable(Unreadable("cut".to_owned()));
    for (checkpoint, is_trusted, has_started, expected) in [
        (unreadable(), true, true, None),
        (Checkpoint::Missing, true, false, None),
        (Checkpoint::Missing, false, true, None),
        // A kubelet that keeps none.
        (Checkpoint::Missing, true, true, Some(vec![])),
    ] {
        let look = looked(checkpoint, is_trusted, has_started);
        assert_eq!(look.all_uses(), expected, "{look:?}");
    }
}

/// The kubelet has no list of the slots of claims: it says when one is not needed any more.
#[test]
fn a_slot_of_a_claim_is_in_use_until_it_is_unprepared_and_makes_the_kubelet_write_nothing() {
    let held = |uid: &str| Held {
        key: InstanceKey::new("default", "cam-1"),
        slot: SlotId::new("cam-1", 0),
        owner: SlotOwner::Claim {
            uid: uid.to_owned(),
            node: "n".into(),
        },
        answered: Duration::ZERO,
    };
    let mut records = records(&[], true);
    records.claims.uids.insert("u-1".to_owned());
    records.claims.uses.push(Use {
        ids: ["cam-1-0".parse().unwrap()].into(),
        claim: Some("u-1".to_owned()),
        ..Use::default()
    });
    assert!(records.is_prepared(&held("u-1")) && !records.is_prepared(&held("u-2")));
    let by_plugin = Held {
        owner: SlotOwner::Node("n".into()),
        ..held("u-1")
    };
    assert!(!records.is_prepared(&by_plugin));
    let id = by_plugin.id();
    assert!(!records.doubts(&[held("u-1")]).contains(&id));
    assert!(records.doubts(&[by_plugin]).contains(&id));
    assert!(used(&records).contains(&id));
    // An agent that prepares no claims any more knows nothing of them.
    records.claims = Prepared {
        are_unknown: true,
        ..Prepared::default()
    };
    assert!(records.is_prepared(&held("u-2")));
}
