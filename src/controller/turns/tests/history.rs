//! Whatever happens: once the parts that it touches have had their turns, a plan of the whole cluster finds nothing to do.
use super::{
    events::{CONFIGURATIONS, Event, NODES, event},
    server::Server,
    *,
};
use crate::{
    cluster::watch::Objects,
    controller::{
        fixtures::{cluster, shown},
        parts,
        services::{TAKEN_AGAIN, action::Action as ServiceAction},
    },
};
use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;
use std::collections::BTreeMap;

struct Cluster {
    server: Server,
    turns: Turns,
    begun: Instant,
    now: Now,
    /// The world as the watches have shown it.
    shown: World,
    /// The reports that were sent.
    reports: Throttle,
}

impl Cluster {
    fn new() -> Self {
        let now = Now {
            clock: at(0),
            instant: Instant::now(),
        };
        let mut cluster = Self {
            server: Server::default(),
            turns: Turns::new("akri.sh".parse().unwrap(), now),
            begun: now.instant,
            now,
            shown: World::default(),
            reports: Throttle::new(),
        };
        let of = 0..CONFIGURATIONS.len();
        let configured = of.flat_map(|of| {
            [
                Event::Configuration(of, 3, 3),
                Event::Report(0, of, vec![2, 2], true),
            ]
        });
        for event in (0..NODES.len())
            .map(|n| Event::Node(n, 4))
            .chain(configured)
        {
            cluster.server.happen(&event, at(0));
        }
        cluster.shows();
        assert!(cluster.turns.is_listed());
        cluster.turns.lead(true, now);
        cluster.passes(1);
        // From now on only what is touched is planned.
        cluster.turns.all_again_at = Some(now.instant + Duration::from_hours(1_000));
        cluster
    }

    /// Shows what is another than it was.
    fn shows(&mut self) {
        shown(&self.shown, &self.server.world, |news| self.turns.see(news));
        let listed = Objects {
            objects: self.server.world.configurations.clone(),
            unreadable: self.server.world.unreadable.clone(),
            ..Objects::default()
        };
        self.turns.see_configurations(Some(&listed));
        self.shown = self.server.world.clone();
    }

    fn happens(&mut self, event: &Event) {
        self.server.happen(event, self.now.clock);
        self.shows();
        let Event::Passes(seconds) = event else {
            return self.passes(1);
        };
        self.passes(*seconds);
    }

    /// Has the controller do what is due within this time.
    fn passes(&mut self, seconds: u64) {
        let end = self.now.instant + Duration::from_secs(seconds);
        while let Some(at) = self
            .turns
            .wakes_at(self.now.instant)
            .filter(|at| *at <= end)
        {
            self.is_at(at);
            self.step();
        }
        self.is_at(end);
    }

    fn is_at(&mut self, instant: Instant) {
        let passed = SignedDuration::try_from(instant - self.begun).unwrap();
        self.now = Now {
            clock: at(0) + passed,
            instant,
        };
    }

    /// Has the controller do what is due now. Returns what it does.
    fn step(&mut self) -> Vec<String> {
        let mut done = vec![];
        loop {
            let requests = self.turns.step(self.now);
            if requests.is_empty() {
                return done;
            }
            // Nothing waits because it was done a moment ago, but for what is done for ever.
            self.turns.throttle = self.reports.clone();
            for (part, request) in requests {
                if is_report(&request) {
                    self.reports.sent(&request, self.now.instant);
                } else {
                    done.push(words(&request));
                }
                let answer = self.server.answer(&request);
                self.shows();
                self.turns.answered(part, &request, answer, self.now);
            }
        }
    }
}

/// Returns whether a request only says that somebody else's Service has a name, which is said again and again.
fn is_report(request: &Request) -> bool {
    matches!(request, Request::Service(ServiceAction::Report(..)))
}

/// Returns all that a part shows of its own.
fn words_of(world: &World) -> String {
    let views: Vec<_> = world.views().collect();
    let World {
        configurations,
        instances,
        pods,
        jobs,
        ..
    } = world;
    format!("{configurations:?} {instances:?} {pods:?} {jobs:?} {views:?}")
}

fn parts(cluster: &parts::Cluster) -> BTreeMap<String, String> {
    let part = |name: String| (name.clone(), words_of(&cluster.part(&name)));
    cluster.names().into_iter().map(part).collect()
}

fn holds(events: &[Event]) -> Result<(), TestCaseError> {
    let mut cluster = Cluster::new();
    for event in events {
        cluster.happens(event);
        // The parts are what they would be if the cluster had always been so.
        let always = parts(&self::cluster(&cluster.server.world));
        for (name, part) in parts(&cluster.turns.cluster) {
            prop_assert_eq!(Some(&part), always.get(&name));
        }
    }
    // What has failed is done, too.
    cluster.server.failing = 0;
    // A name that another's Service has had is looked at again, too.
    cluster.passes(TAKEN_AGAIN.as_secs());
    let world = cluster.server.world.clone();
    let now = cluster.now;
    let known = |turns: &Turns| {
        let Brokers {
            reports, memory, ..
        } = &turns.brokers;
        // What time alone makes old is forgotten when its part is looked at, and decides nothing until then.
        let mut memory = memory.clone();
        memory.observe(&world, now);
        let problems = turns.devices.problems(&world);
        format!("{reports:?} {memory:?} {problems:?}")
    };
    let before = known(&cluster.turns);
    cluster.turns.touch_all();
    let done = cluster.step();
    prop_assert!(done.is_empty(), "{:?}", done);
    prop_assert_eq!(before, known(&cluster.turns));
    Ok(())
}

#[test]
fn two_instances_that_are_created_again_leave_nothing_to_do() {
    let events = [
        Event::Report(0, 2, vec![0, 1], true),
        Event::Report(0, 0, vec![1, 1], false),
        Event::Instance(1, 2, 0),
        Event::Passes(57),
        Event::Instance(1, 2, 0),
        Event::Pod(0, 4, 0),
    ];
    holds(&events).unwrap();
}

#[test]
fn failures_of_a_broker_that_has_run_well_are_no_difference() {
    let events = [
        Event::Local(2, 0, 1),
        Event::Configuration(2, 2, 0),
        Event::Pod(7, 6, 0),
        Event::Local(2, 0, 1),
        Event::Pod(0, 7, 0),
        Event::Passes(249),
        Event::Passes(349),
    ];
    holds(&events).unwrap();
}

#[test]
fn what_is_said_of_a_taken_name_is_not_changed_by_another_configuration() {
    let events = [
        Event::Local(0, 0, 0),
        Event::Instance(4, 1, 1),
        Event::Report(1, 1, vec![2, 0], false),
    ];
    holds(&events).unwrap();
}

#[test]
fn the_name_of_anothers_service_is_taken_when_that_is_gone() {
    let events = [
        Event::Pod(4, 8, 2),
        Event::Service(0, 3, 2),
        Event::Service(0, 1, 2),
        Event::Passes(1),
        Event::Service(0, 0, 2),
    ];
    holds(&events).unwrap();
}

proptest! {
    #[test]
    fn what_a_plan_of_the_whole_cluster_does_the_touched_parts_have_done(
        events in prop::collection::vec(event(), 1..40)
    ) {
        holds(&events)?;
    }
}
