//! Tests of the cost of a network that does not come to rest: plans, their pace and a store that counts.
use super::*;
use crate::{
    agent::instances::writes::{Outcome, Writes},
    discovery::damping::{Belief, Damper},
    store::StoreError,
};
use tokio::time::Instant;

struct Storm {
    fixture: Fixture,
    damper: Damper,
    belief: Option<Belief>,
    writes: Writes,
    began: Instant,
    /// The second of each write.
    written: Vec<u64>,
    /// True if the API server refuses creations.
    refuses: bool,
    said: usize,
}

impl Storm {
    fn new(spec: &str) -> Self {
        let began = Instant::now();
        let mut fixture = Fixture::new(spec);
        fixture.max_instances = 5000;
        Self {
            fixture,
            damper: Damper::default(),
            belief: None,
            writes: Writes::new(NODE, began),
            began,
            written: vec![],
            refuses: false,
            said: 0,
        }
    }

    fn say(&mut self, said: &Arc<DeviceSet>) {
        let belief = self.damper.turn(said, |_| true, self.fixture.now());
        let discovery = DiscoveryState {
            set: belief.set.clone(),
            flapping: Arc::new(belief.flapping.clone()),
            ..DiscoveryState::default()
        };
        self.fixture.discoveries.insert(key("cam"), discovery);
        self.belief = Some(belief);
    }

    /// Runs one round of the agent's loop. Returns the time until the next one.
    fn round(&mut self) -> Option<Duration> {
        let now = self.began + self.fixture.now();
        self.fixture.failing = self.writes.failing();
        let planned = self.fixture.plan();
        self.fixture.absences = planned.absences;
        self.fixture.arrivals = planned.arrivals;
        let due = (self.writes).due(planned.changes, &self.fixture.instances, now);
        for change in due.changes {
            self.written.push(self.fixture.now().as_secs());
            let is_creation = matches!(change, InstanceChange::Create(_));
            let outcome = match self.refuses && is_creation {
                true => Err(StoreError::Refused("the quota is used up".to_owned())),
                false => Ok(()),
            };
            if outcome.is_ok() {
                self.fixture.carry_out(std::slice::from_ref(&change));
            }
            let outcome = self.writes.done(&change, outcome, now);
            self.said += usize::from(matches!(outcome, Outcome::Fails(_)));
        }
        let waits = [planned.wake_in, due.wake_in].into_iter().flatten();
        waits.min()
    }

    /// Rounds each 50 ms.
    fn pass(&mut self, said: &Arc<DeviceSet>, millis: u64) {
        for _ in 0..millis / 50 {
            self.say(said);
            self.round();
            self.fixture.millis += 50;
        }
    }

    fn written_since(&self, second: u64) -> usize {
        self.written.iter().filter(|at| **at >= second).count()
    }
}

fn devices(count: usize) -> Arc<DeviceSet> {
    let device = |n| Device::new(format!("s{n:04}"));
    Arc::new(DeviceSet::complete((0..count).map(device)))
}

#[test]
fn of_three_hundred_services_that_flap_at_four_hertz_a_few_changes_each_are_written_and_the_last() {
    let mut storm = Storm::new("");
    let (there, gone) = (devices(300), devices(0));
    for _ in 0..40 {
        storm.pass(&there, 100);
        storm.pass(&gone, 150);
    }
    let first = storm.written.iter().filter(|at| **at < 4).count();
    // Created, and a change of health a second.
    assert!(first <= 300 * 5, "{first}");
    assert_eq!(storm.written_since(4), 0, "then it is held back");
    storm.pass(&there, 5000);
    assert!(
        storm
            .fixture
            .instances
            .values()
            .all(|i| health(i) == "Healthy")
    );
    assert!(storm.written.len() <= 300 * 6, "{}", storm.written.len());
}

#[test]
fn of_a_dead_switch_all_is_written_at_once_and_of_its_return() {
    let mut storm = Storm::new("");
    storm.pass(&devices(300), 1000);
    let before = storm.written.len();
    storm.say(&devices(0));
    storm.round();
    assert_eq!(storm.written.len(), before + 300);
    storm.pass(&devices(0), 2000);
    storm.say(&devices(300));
    storm.round();
    assert_eq!(storm.written.len(), before + 600);
}

#[test]
fn refused_creations_are_not_repeated_at_each_change_of_the_world() {
    let mut storm = Storm::new("");
    storm.refuses = true;
    for _ in 0..240 {
        storm.say(&devices(200));
        storm.round();
        storm.fixture.millis += 250;
    }
    // Of 240 tries that there would be without a pace.
    assert!(storm.written.len() <= 200 * 12, "{}", storm.written.len());
    let in_the_end = storm.written_since(50);
    assert!(in_the_end <= 200, "{in_the_end} in 10 s");
    assert_eq!(storm.said, 200, "once each");
    assert_eq!(storm.fixture.problems(), ["NotCreated"]);
    // It ends, and nobody has to do anything for that.
    storm.refuses = false;
    for _ in 0..70 {
        storm.round();
        storm.fixture.millis += 1000;
    }
    assert_eq!(storm.fixture.instances.len(), 200);
    storm.round();
    assert_eq!(storm.fixture.problems(), [""; 0]);
}

#[test]
fn a_refused_write_does_not_hold_up_another() {
    let mut storm = Storm::new("");
    storm.refuses = true;
    storm.pass(&devices(3), 30_000);
    storm.refuses = false;
    let before = storm.written.len();
    storm.say(&devices(4));
    storm.round();
    assert_eq!(storm.written.len(), before + 1);
    assert_eq!(storm.fixture.instances.len(), 1);
}

#[test]
fn where_nothing_happens_nothing_is_written_and_nothing_is_waited_for() {
    let mut storm = Storm::new("");
    storm.pass(&devices(300), 1000);
    let before = storm.written.len();
    storm.pass(&devices(300), 2000);
    assert_eq!(storm.written.len(), before);
    assert_eq!(storm.round(), None);
    assert_eq!(storm.belief.unwrap().wake, None);
}
