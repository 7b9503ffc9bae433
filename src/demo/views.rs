//! Shows a running demo until the user ends it: as a live table, or as a line for each event.
use super::{screen, state::Demo};
use petiole_people::screen::{Key, Screen, keys};
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The interval of snapshots. It is short, because the view shows how fast things happen.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(100);

/// Shows the live table until the user presses `q`.
pub(super) async fn live(demo: &mut Demo) -> anyhow::Result<()> {
    let mut screen = Screen::open()?;
    let mut keys = keys();
    let mut ticks = ticks();
    loop {
        tokio::select! {
            _ = ticks.tick() => demo.observe().await,
            key = keys.recv() => match key {
                Some(Key::Letter('k')) if !demo.live.is_typing => demo.restart_kubelet(),
                Some(Key::Letter(digit @ '1'..='9')) if !demo.live.is_typing => {
                    demo.toggle(usize::from(digit as u8 - b'1'))?;
                }
                Some(key) if !demo.live.press(key) => {}
                Some(_) | None => return Ok(()),
            }
        }
        screen.draw(|frame| screen::draw(frame, demo))?;
    }
}

/// Prints a line for each event until the demo is stopped.
pub(super) async fn plain(demo: &mut Demo) -> anyhow::Result<()> {
    demo.print(
        "petiole demo: services on the network become Instances, resources of a node, and variables of a process\n",
    )?;
    demo.print(
        "(no cluster: Pods are plain processes; endpoint grace 5 s instead of 5 min, gracePeriodSeconds 5 instead of 60)\n",
    )?;
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        demo.observe().await;
        demo.print_changes()?;
    }
}

fn ticks() -> Interval {
    let mut ticks = interval(SNAPSHOT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
