//! Whatever happens: once the parts that it touches have had their turns, a plan of the whole cluster finds nothing to do.
use super::*;
use crate::{
    cluster::watch::Objects,
    controller::{
        fixtures::{
            cluster,
            events::{CONFIGURATIONS, Event, NODES, event},
            server::Server,
            shown,
        },
        parts,
        services::plan::Action as ServiceAction,
        throttle::Throttle,
        world::World,
    },
};
use proptest::prelude::*;

struct Cluster {
    server: Server,
    turns: Turns,
    begun: Instant,
    now: Now,
    /// The world as the watches have shown it.
    shown: World,
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
        self.passes(match event {
            Event::Passes(seconds) => *seconds,
            _ => 1,
        });
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
        let passed = (instant - self.begun).as_secs();
        self.now = Now {
            clock: at(i64::try_from(passed).unwrap()),
            instant,
        };
    }

    /// Has the controller do one step. Returns what it does.
    fn step(&mut self) -> Vec<Request> {
        let requests: Vec<_> = self.turns.step(self.now);
        // Nothing waits because it was done a moment ago, but for what is done for ever.
        self.turns.throttle = Throttle::new();
        for (part, request) in requests.clone() {
            if is_report(&request) {
                self.turns.throttle.sent(&request, self.now.instant);
            }
            let answer = self.server.answer(&request);
            self.shows();
            self.turns.answered(part, &request, answer, self.now);
        }
        requests.into_iter().map(|(_, request)| request).collect()
    }

    /// Plans the whole cluster, and returns what is done then.
    fn plans_all(&mut self) -> Vec<Request> {
        self.turns.touch_all();
        let end = self.now.instant + Duration::from_millis(100);
        let mut done = vec![];
        while let Some(at) = self
            .turns
            .wakes_at(self.now.instant)
            .filter(|at| *at <= end)
        {
            self.is_at(at);
            done.extend(self.step());
        }
        done
    }
}

/// That somebody else's Service has a name is said again and again.
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
    format!(
        "{configurations:?} {instances:?} {pods:?} {jobs:?} {views:?} {:?}",
        world.loads()
    )
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
        let always = self::cluster(&cluster.server.world);
        prop_assert_eq!(parts(&cluster.turns.cluster), parts(&always));
    }
    // What has failed is done, too.
    cluster.server.failing = 0;
    cluster.passes(1);
    let reports = cluster.turns.brokers.reports.clone();
    let memory = cluster.turns.brokers.memory.clone();
    let world = cluster.server.world.clone();
    let problems = cluster.turns.devices.problems(&world);
    let mut done = cluster.plans_all();
    done.retain(|request| !is_report(request));
    prop_assert!(done.is_empty(), "{:?}", done);
    prop_assert_eq!(&reports, &cluster.turns.brokers.reports);
    prop_assert_eq!(&memory, &cluster.turns.brokers.memory);
    prop_assert_eq!(problems, cluster.turns.devices.problems(&world));
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

proptest! {
    #[test]
    fn what_a_plan_of_the_whole_cluster_does_the_touched_parts_have_done(
        events in prop::collection::vec(event(), 1..40)
    ) {
        holds(&events)?;
    }
}
