//! The requests about ConfigMaps.
use super::*;
use crate::controller::fixtures::{Fake, configuration, key, moment, refusal};

const PATH: &str = "/api/v1/namespaces/default/configmaps";
const BY: &str = "fieldManager=petiole-controller";

fn world(is_listed: bool) -> World {
    let fields = json!({ "spec": { "deviceList": is_listed } });
    World::default().with_configuration(configuration("cam", fields))
}

fn config_map() -> (u16, Value) {
    let metadata = json!({ "name": "cam-devices", "namespace": "default", "uid": "u" });
    (
        200,
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata }),
    )
}

/// Plans once and carries out what is planned.
async fn pass(fake: &Fake, lists: &mut Lists, world: &World, seconds: u64) -> Vec<Outcome> {
    let mut all = vec![];
    for action in lists.plan(world, moment(seconds)).0 {
        let written = act(&fake.shared, &action).await;
        lists.settle(&action, &written, moment(seconds));
        all.push(written.outcome);
    }
    all
}

#[tokio::test]
async fn a_config_map_is_patched_created_where_there_is_none_and_left_alone_while_nothing_changes()
{
    let fake = Fake::new(|request| {
        if request.starts_with("PATCH") {
            refusal(404)
        } else {
            config_map()
        }
    });
    let mut lists = Lists::new(moment(0));
    assert_eq!(
        pass(&fake, &mut lists, &world(true), 0).await,
        [Outcome::Done]
    );
    let expected = [
        format!("PATCH {PATH}/cam-devices?&{BY}"),
        format!("POST {PATH}?&{BY}"),
    ];
    assert_eq!(fake.asked(), expected);
    assert_eq!(pass(&fake, &mut lists, &world(true), 3).await, []);
    assert!(lists.problems(&world(true)).is_empty());
}

#[tokio::test]
async fn a_config_map_of_somebody_else_is_never_changed_and_the_configuration_says_so() {
    let fake = Fake::new(|_| refusal(422));
    let mut lists = Lists::new(moment(0));
    assert!(matches!(
        pass(&fake, &mut lists, &world(true), 0).await[..],
        [Outcome::Failed(_)]
    ));
    assert_eq!(fake.asked(), [format!("PATCH {PATH}/cam-devices?&{BY}")]);
    // It may be the one of an earlier Configuration of this name, which is about to go.
    assert!(lists.problems(&world(true)).is_empty());
    pass(&fake, &mut lists, &world(true), 10).await;
    let problem = &lists.problems(&world(true))[&key("cam")];
    assert_eq!(problem.reason, "DeviceListRefused");
    assert!(
        problem.message.starts_with("ConfigMap cam-devices exists"),
        "{problem:?}"
    );
    assert_eq!(fake.asked().len(), 1);
    // The wish is taken back: what is another one's stays.
    assert_eq!(
        pass(&fake, &mut lists, &world(false), 11).await,
        [Outcome::Gone]
    );
    assert_eq!(fake.asked(), [format!("PATCH {PATH}/cam-devices?&{BY}")]);
    assert_eq!(pass(&fake, &mut lists, &world(false), 12).await, []);
}

#[tokio::test]
async fn who_takes_the_wish_back_loses_the_config_map() {
    let fake = Fake::new(|_| config_map());
    let mut lists = Lists::new(moment(0));
    pass(&fake, &mut lists, &world(true), 0).await;
    assert_eq!(
        pass(&fake, &mut lists, &world(false), 1).await,
        [Outcome::Done]
    );
    let asked = fake.asked();
    assert_eq!(asked[2..], [format!("DELETE {PATH}/cam-devices?")]);
    assert_eq!(pass(&fake, &mut lists, &world(false), 2).await, []);
}

#[tokio::test]
async fn an_api_server_that_is_away_is_no_problem_of_the_configuration_and_one_that_refuses_is() {
    for (code, reason) in [(503, None), (403, Some("DeviceListRefused"))] {
        let fake = Fake::new(move |_| refusal(code));
        let mut lists = Lists::new(moment(0));
        assert!(matches!(
            pass(&fake, &mut lists, &world(true), 0).await[..],
            [Outcome::Failed(_)]
        ));
        // It is tried again.
        assert!(matches!(
            pass(&fake, &mut lists, &world(true), 10).await[..],
            [Outcome::Failed(_)]
        ));
        let problems = lists.problems(&world(true));
        let problem = problems.get(&key("cam"));
        assert_eq!(problem.map(|p| p.reason.as_str()), reason);
        assert!(lists.problems(&world(false)).is_empty());
    }
}

#[tokio::test]
async fn a_deletion_that_is_refused_is_not_tried_again() {
    let fake = Fake::new(|request| {
        if request.starts_with("DELETE") {
            refusal(403)
        } else {
            config_map()
        }
    });
    let mut lists = Lists::new(moment(0));
    pass(&fake, &mut lists, &world(true), 0).await;
    assert_eq!(
        pass(&fake, &mut lists, &world(false), 2).await,
        [Outcome::Gone]
    );
    assert_eq!(pass(&fake, &mut lists, &world(false), 4).await, []);
}

#[test]
fn all_lists_together_are_written_at_a_bounded_rate() {
    let mut lists = Lists::new(moment(0));
    let list = Text {
        text: "x".repeat(WRITTEN_MAX),
        left_out: 0,
    };
    let owner = Owner {
        key: key("tv"),
        uid: String::new(),
    };
    // Two turns that have begun before the first answer have written twice as much.
    let action = Action::Write(owner, list);
    for _ in 0..2 {
        lists.settle(&action, &Written::failed("away"), moment(0));
    }
    let time = u64::try_from(WRITTEN_MAX).unwrap() / u64::from(WRITTEN_PER_SECOND);
    for seconds in [0, 2, time] {
        let (none, waits) = lists.plan(&world(true), moment(seconds));
        assert_eq!(
            (none, waits.first()),
            (vec![], Some(LOOKED_EVERY)),
            "{seconds}"
        );
    }
    assert_eq!(lists.plan(&world(true), moment(time + 2)).0.len(), 1);
}

#[tokio::test]
async fn a_list_that_is_too_large_is_written_in_part_and_the_configuration_says_so() {
    let fake = Fake::new(|_| config_map());
    let mut lists = Lists::new(moment(0));
    let owner = Owner {
        key: key("cam"),
        uid: "uid-cam".to_owned(),
    };
    let list = Text {
        text: "{}".to_owned(),
        left_out: 3,
    };
    let action = Action::Write(owner, list);
    let written = act(&fake.shared, &action).await;
    lists.settle(&action, &written, moment(0));
    let problem = &lists.problems(&world(true))[&key("cam")];
    assert_eq!(problem.reason, "DeviceListTooLarge");
    assert!(
        problem
            .message
            .starts_with("ConfigMap cam-devices lacks 3 devices"),
        "{problem:?}"
    );
}

#[test]
fn the_config_map_belongs_to_its_configuration_by_name_uid_and_namespace() {
    let owner = Owner {
        key: key("cam"),
        uid: "uid-cam".to_owned(),
    };
    let manifest = manifest(&owner, json!({ (FILE): "{}" }));
    let metadata = &manifest["metadata"];
    assert_eq!(
        (&metadata["name"], &metadata["namespace"]),
        (&json!("cam-devices"), &json!("default"))
    );
    let reference = json!([{
        "apiVersion": "akri.sh/v0", "kind": "Configuration", "name": "cam", "uid": "uid-cam", "controller": true,
    }]);
    assert_eq!(metadata["ownerReferences"], reference);
    let parsed: ConfigMap = serde_json::from_value(manifest).unwrap();
    assert_eq!(parsed.data.unwrap()[FILE], "{}");
}
