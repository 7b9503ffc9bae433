//! When ConfigMaps are written.
use super::*;
use crate::controller::fixtures::{configuration, instance, key, moment};
use serde_json::json;

fn world(is_listed: bool, instances: usize) -> World {
    let fields = json!({ "spec": { "deviceList": is_listed } });
    let world = World::default().with_configuration(configuration("cam", fields));
    let instances = (0..instances).map(|n| instance(&format!("cam-{n}"), json!({})));
    instances.fold(world, World::with_instance)
}

fn owner() -> Owner {
    Owner {
        key: key("cam"),
        uid: "uid-cam".to_owned(),
    }
}

/// Returns what is known after this action was carried out.
fn kept(action: &Action, seconds: u64) -> Kept {
    let Action::Write(owner, list) = action else {
        panic!("{action:?}");
    };
    let kept = KeptList {
        uid: owner.uid.clone(),
        digest: digest_32(&list.text),
        at: moment(seconds),
        looked: moment(seconds),
        problem: None,
    };
    [(owner.key.clone(), kept)].into()
}

#[test]
fn a_list_is_written_where_it_is_wished_when_it_changes_and_every_five_minutes() {
    assert_eq!(
        plan(&world(false, 1), &mut Kept::new(), moment(0)),
        (vec![], Waits::default())
    );
    let (actions, waits) = plan(&world(true, 1), &mut Kept::new(), moment(0));
    assert_eq!(waits, Waits::default());
    let [action] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(*action.owner(), owner());
    let mut known = kept(action, 0);
    let (none, waits) = plan(&world(true, 1), &mut known, moment(100));
    assert_eq!(
        (none, waits.first()),
        (vec![], Some(Duration::from_secs(200)))
    );
    assert_eq!(plan(&world(true, 1), &mut known, moment(300)).0, actions);
    let changed = plan(&world(true, 2), &mut known, moment(302)).0;
    assert!(changed.len() == 1 && changed != actions, "{changed:?}");
    let (none, waits) = plan(&world(true, 3), &mut known, moment(303));
    assert_eq!(
        (none, waits.first()),
        (vec![], Some(Duration::from_secs(1)))
    );
}

#[test]
fn a_configuration_that_takes_its_wish_back_loses_its_config_map_and_a_new_one_of_its_name_does_not()
 {
    let action = plan(&world(true, 0), &mut Kept::new(), moment(0))
        .0
        .remove(0);
    let mut known = kept(&action, 0);
    assert_eq!(
        plan(&world(false, 0), &mut known, moment(1)).0,
        [Action::Delete(owner())]
    );
    known
        .values_mut()
        .for_each(|kept| kept.uid = "another".to_owned());
    assert_eq!(plan(&world(false, 0), &mut known, moment(1)).0, []);
    assert_eq!(plan(&world(true, 0), &mut known, moment(1)).0, [action]);
    let mut ending = world(true, 0);
    let fields = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": { "deviceList": true } });
    ending = ending.with_configuration(configuration("cam", fields));
    assert_eq!(plan(&ending, &mut Kept::new(), moment(1)).0, []);
}
