//! Tests that a resource that lists other slots than before is touched, and that others are not.
use super::{tests::*, *};
use crate::model::instance_name::InstanceKey;
use std::time::Duration;

/// Returns the lists of two Instances of two Configurations, and of these.
fn lists(table: &SlotTable) -> Vec<(Resource, Vec<ListedSlot>)> {
    let of = |resource: Resource| {
        let list = match &resource {
            Resource::Instance(name) => table.instance_list(name),
            Resource::Configuration(name) => table.configuration_list(name),
        };
        (resource, list)
    };
    let all = [instance("cam-1"), instance("door-1"), cam(), door()];
    all.into_iter().map(of).collect()
}

fn door() -> Resource {
    Resource::Configuration("door".into())
}

fn of_door(usage: &[(u32, &str)]) -> ObservedSlots {
    ObservedSlots {
        configuration: "door".into(),
        ..observed("door-1", 2, usage)
    }
}

/// Makes a change. Returns the touched resources, after a check that every list that is another one is among them.
fn touched_by(table: &mut SlotTable, change: impl FnOnce(&mut SlotTable)) -> Vec<String> {
    let before = lists(table);
    change(table);
    let touched = table.take_touched();
    let now = lists(table);
    for ((resource, before), (_, now)) in before.iter().zip(&now) {
        assert!(before == now || touched.contains(resource), "{resource:?}");
    }
    let resources = now.iter().map(|(resource, _)| resource);
    let touched = resources.filter(|resource| touched.contains(resource));
    touched.map(|resource| format!("{resource:?}")).collect()
}

#[test]
fn the_lists_of_an_instance_and_of_its_configuration_change_together_and_no_others() {
    let of_cam = ["Instance(\"cam-1\")", "Configuration(\"cam\")"];
    let mut table = table([observed("cam-1", 2, &[]), of_door(&[])]);
    table.take_touched();
    let key = InstanceKey::new("default", "cam-1");
    let changes = |table: &SlotTable, resource: &Resource, id: &str| -> Vec<SlotChange> {
        let claim = plan(table, resource, &[id]).unwrap();
        claim.changes().cloned().collect()
    };
    let by_other = observed("cam-1", 2, &[(0, "node-b")]);
    let touched = touched_by(&mut table, |table| table.observe_changes([by_other], []));
    assert_eq!(touched, of_cam);
    let touched = touched_by(&mut table, |table| {
        let changes = changes(table, &instance("cam-1"), "cam-1-1");
        table.begin(&changes);
    });
    assert_eq!(touched, of_cam);
    let touched = touched_by(&mut table, |table| {
        let changes = changes(table, &door(), "door-0");
        table.begin(&changes);
        table.settle(&changes, None);
    });
    assert_eq!(touched, ["Instance(\"door-1\")", "Configuration(\"door\")"]);
    let touched = touched_by(&mut table, |table| table.observe_changes([], [key]));
    assert_eq!(touched, of_cam);
    assert!(touched_by(&mut table, |_| ()).is_empty());
}

#[test]
fn a_device_that_goes_touches_its_instance_and_its_configuration() {
    let table = table([observed("cam-1", 2, &[]), of_door(&[])]);
    let mut touched = Touched::default();
    touched.add([&"cam-1".into()], &table);
    assert!(touched.contains(&instance("cam-1")) && touched.contains(&cam()));
    assert!(!touched.contains(&instance("door-1")) && !touched.contains(&door()));
}

#[test]
fn the_first_look_touches_the_lists_whose_ids_it_moves() {
    for is_own in [true, false] {
        let mut table = table([ObservedSlots {
            is_own,
            ..observed("cam-1", 2, &[])
        }]);
        table.take_touched();
        let gone = Use {
            ids: ["cam-0".parse().unwrap()].into(),
            env_slots: ["cam-9-0".parse().unwrap()].into(),
            ..Use::default()
        };
        let arrivals = table.arrivals();
        let touched = touched_by(&mut table, |table| {
            table.confirm(vec![gone], arrivals, Duration::from_secs(1));
        });
        assert_eq!(touched, ["Configuration(\"cam\")"]);
        assert_eq!(
            table.configuration_list(&"cam".into())[0].id.to_string(),
            "cam-1"
        );
    }
}

#[test]
fn an_id_that_a_container_has_by_another_name_of_the_resource_is_held_and_touches_its_list() {
    let mut table = table([observed(
        "cam-1",
        2,
        &[(1, "C:cam-0:node-a"), (0, "node-a")],
    )]);
    let by = |name: &str, id: &str| Use {
        resource: Some(name.parse().unwrap()),
        ids: [id.parse().unwrap()].into(),
        ..Use::default()
    };
    let former = |table: &SlotTable, resource: &Resource, name: &str| -> Vec<String> {
        let held = table.held_by_former_name(resource, &name.parse().unwrap());
        held.into_iter().map(ToString::to_string).collect()
    };
    let uses = vec![by("akri.sh/cams", "cam-0"), by("akri.sh/cam-1", "cam-1-0")];
    for (n, (uses, touched)) in [
        (
            uses.clone(),
            vec!["Instance(\"cam-1\")", "Configuration(\"cam\")"],
        ),
        (uses, vec![]),
        (
            vec![],
            vec!["Instance(\"cam-1\")", "Configuration(\"cam\")"],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let (arrivals, begun) = (table.arrivals(), Duration::from_secs(n as u64 + 60));
        let is_used = !uses.is_empty();
        if n == 0 {
            table.confirm(vec![], arrivals, Duration::from_secs(1));
            table.take_touched();
        }
        let by_look = touched_by(&mut table, |table| {
            let is_news = table.confirm(uses, arrivals, begun);
            assert_eq!(
                is_news,
                !touched.is_empty(),
                "whoever lists them is woken: {n}"
            );
        });
        assert_eq!(by_look, touched, "{n}");
        let expected: &[&str] = if is_used { &["cam-0"] } else { &[] };
        assert_eq!(former(&table, &cam(), "akri.sh/gates"), expected);
        assert_eq!(former(&table, &cam(), "akri.sh/cams"), [""; 0]);
        assert_eq!(former(&table, &instance("cam-1"), "akri.sh/cam-1"), [""; 0]);
    }
}
