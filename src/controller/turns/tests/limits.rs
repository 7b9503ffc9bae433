//! How many requests there are at a time, and what waits for them.
use super::*;

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
fn pods_that_a_replica_may_not_create_any_more_do_not_count() {
    let mut controller = Controller::new(&[]);
    controller.wants_brokers("cam", 40);
    controller.writes_statuses();
    assert_eq!(controller.turns.open["cam"].coming.len(), 40);
    controller.turns.lead(false, controller.now);
    assert_eq!(controller.turns.open["cam"].coming, [""; 0]);
}
