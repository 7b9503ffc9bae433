//! Shows a running demo until the user ends it: as a live table, or as a line for each event.
use super::{
    screen::{self, Key, View},
    state::Demo,
};
use petiole_people::screen::{Screen, keys};
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The interval of snapshots. It is short, because the view shows how fast things happen.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(100);

/// Shows the live table until the user presses `q`.
pub(super) async fn live(demo: &mut Demo) -> anyhow::Result<()> {
    let mut screen = Screen::open()?;
    let mut keys = keys(screen::meaning);
    let mut ticks = ticks();
    loop {
        demo.observe().await;
        let view = View {
            snapshot: &demo.snapshot,
            services: demo.publisher.services(),
            events: &demo.events,
        };
        screen.draw(|frame| screen::draw(frame, &view))?;
        tokio::select! {
            _ = ticks.tick() => {}
            key = keys.recv() => match key {
                Some(Key::Quit) | None => return Ok(()),
                Some(Key::RestartKubelet) => demo.restart_kubelet(),
                Some(Key::Toggle(n)) => demo.toggle(n)?,
            }
        }
    }
}

/// Prints a line for each event until the demo is stopped.
pub(super) async fn plain(demo: &mut Demo) -> anyhow::Result<()> {
    println!(
        "petiole demo: services on the network become Instances, resources of a node, and variables of a process"
    );
    println!(
        "(no cluster: Pods are plain processes; endpoint grace 5 s instead of 5 min, gracePeriodSeconds 5 instead of 60)"
    );
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        demo.observe().await;
        for event in demo.events.drain(..) {
            println!("{:>7.2} s  {}", event.at.as_secs_f64(), event.text);
        }
    }
}

fn ticks() -> Interval {
    let mut ticks = interval(SNAPSHOT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
