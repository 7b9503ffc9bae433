//! How many requests there are at a time, and what waits for them.
use super::*;
use crate::controller::open_turns::OPEN_AT_ONCE;

/// Returns an answer about a broker.
fn performed(outcome: Outcome) -> Answer {
    Answer::Written(Written::new(outcome))
}

fn failed() -> Answer {
    performed(Outcome::Failed("the webhook did not answer".to_owned()))
}

impl Controller {
    /// Has a Configuration with so many Instances, none of which has its broker.
    fn wants_brokers(&mut self, name: &str, count: usize) {
        let broker = json!({ "brokerPodSpec": { "containers": [{ "name": "a" }] } });
        let spec = json!({ "spec": { "brokerSpec": broker } });
        self.configures(configuration(name, spec));
        for n in 0..count {
            let fields = json!({
                "metadata": { "labels": { "node.akri.sh/a": "" } },
                "spec": { "configurationName": name, "nodes": ["a"] },
            });
            self.shows(shown(instance(&format!("{name}-{n}"), fields)));
        }
    }

    fn open_brokers(&self) -> usize {
        let requests = self.open.iter().map(|(_, request)| words(request));
        requests.filter(is_of("pod ")).count()
    }
}

#[test]
fn a_turn_that_has_sent_nothing_ends_with_the_lease() {
    let mut controller = Controller::new(&[("default", "cam")]);
    controller.reports("a", json!([view("default", "cam", 1)]));
    let now = controller.now;
    controller.turns.begin("cam".to_owned(), now);
    controller.turns.lead(false, now);
    controller.turns.lead(true, now);
    let sent = controller.sends();
    assert!(sent.iter().any(is_of("create default/cam-")), "{sent:?}");
}

#[test]
fn after_a_broker_that_fails_the_others_wait_for_the_next_turn() {
    let mut controller = Controller::new(&[("default", "tv")]);
    controller.wants_brokers("cam", 40);
    controller.writes_statuses();
    assert_eq!(controller.open_brokers(), SIDE_BY_SIDE);
    controller.passes(10_000);
    controller.answers(0, failed());
    assert_eq!(controller.sends(), [""; 0]);
    controller.reports("b", json!([view("default", "cam", 1)]));
    for _ in 1..SIDE_BY_SIDE {
        controller.answers(0, failed());
    }
    controller.passes(20);
    controller.writes_statuses();
    let sent = controller.waiting();
    assert!(sent.iter().all(is_of("create default/cam-")), "{sent:?}");
    controller.creates(0);
    controller.writes_statuses();
    let tried = controller.open_brokers();
    assert_eq!(tried, SIDE_BY_SIDE, "others than those that have failed");
}

#[test]
fn after_a_change_of_its_part_no_more_brokers_of_an_old_plan_are_created() {
    for (is_changed, sent) in [(true, 0), (false, 1)] {
        let mut controller = Controller::new(&[]);
        controller.wants_brokers("cam", 40);
        controller.writes_statuses();
        if is_changed {
            controller.reports("b", json!([view("default", "cam", 1)]));
        }
        controller.answers(0, performed(Outcome::Done));
        assert_eq!(controller.sends().len(), sent);
    }
}

#[test]
fn brokers_that_hang_leave_room_for_devices_and_statuses_of_all_parts() {
    let mut controller = Controller::new(&[("default", "tv")]);
    for part in ["one", "two", "three", "four"] {
        controller.wants_brokers(part, 20);
    }
    controller.writes_statuses();
    assert_eq!(controller.open_brokers(), OPEN_AT_ONCE - SIDE_BY_SIDE);
    let is_written = |controller: &Controller| {
        let mut known = controller.turns.world().configurations.iter();
        let (_, of) = known.find(|(key, _)| key.name.as_str() == "four").unwrap();
        of.status.is_some()
    };
    assert!(is_written(&controller), "the last one has no place");
    controller.passes(20);
    controller.reports("b", json!([view("default", "tv", 1)]));
    let sent = controller.sends();
    assert!(sent.iter().any(is_of("create default/tv-")), "{sent:?}");
    while controller.open_brokers() > 0 {
        let is_broker = |(_, request): &(_, Request)| matches!(request, Request::Broker(_));
        let n = controller.open.iter().position(is_broker).unwrap();
        controller.answers(n, failed());
    }
    controller.passes(20);
    let sent = controller.sends();
    assert!(sent.iter().any(is_of("pod default/four-")), "{sent:?}");
}

#[test]
fn a_part_is_planned_once_its_requests_can_be_sent() {
    let parts = ["one", "two", "three", "four", "five", "six"].map(|name| ("default", name));
    let mut controller = Controller::new(&parts);
    let views = |devices: usize| parts.map(|(namespace, name)| view(namespace, name, devices));
    controller.reports("a", json!(views(20)));
    assert_eq!(controller.sends().len(), OPEN_AT_ONCE);
    assert_eq!(
        controller.turns.open.turns.len(),
        OPEN_AT_ONCE / SIDE_BY_SIDE
    );
    controller.passes(600_000);
    controller.reports("a", json!(views(0)));
    while !controller.open.is_empty() {
        controller.creates(0);
    }
    controller.passes(20);
    let sent = controller.sends();
    assert!(!sent.iter().any(is_of("create")), "{sent:?}");
}

#[test]
fn services_that_hang_take_no_more_places_than_brokers_and_do_not_wait_for_their_turn() {
    let mut controller = Controller::new(&[]);
    for part in ["cam", "radio", "tv", "vcr"] {
        let mut turn = Turn::new();
        turn.stage = Stage::Services;
        turn.open = SIDE_BY_SIDE;
        controller.turns.open.turns.insert(part.to_owned(), turn);
    }
    assert!(controller.turns.open.has_room());
    assert_eq!(controller.turns.open.places_for_admitted(), 0);
    let turn = &controller.turns.open.turns["cam"];
    assert!(turn.is_outdated(true) && !turn.is_outdated(false));
}

#[test]
fn what_changes_while_devices_are_written_ends_the_creation_of_brokers_too() {
    let mut turn = Turn::new();
    turn.is_touched = true;
    for stage in [
        Stage::Devices,
        Stage::Brokers,
        Stage::Services,
        Stage::Status,
    ] {
        turn.stage = stage;
        for (sent, is_outdated) in [(SIDE_BY_SIDE - 1, false), (SIDE_BY_SIDE, true)] {
            turn.sent = sent;
            assert_eq!(turn.is_outdated(false), is_outdated, "{stage:?}");
        }
    }
}
