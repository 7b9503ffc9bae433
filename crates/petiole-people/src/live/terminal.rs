//! Shows the devices on a terminal.
use super::{
    source::{self, Look, Source},
    state::State,
    view,
};
use crate::screen::{Screen, keys};
use jiff::Timestamp;
use std::time::Duration;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

/// The interval at which ages are drawn again. A changed window is noticed by then, too.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

/// Shows the devices until the user presses `q`, or until `shutdown`.
pub async fn run(source: Source, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (sender, looks) = watch::channel(None);
    let state = State::new(source.name(), source.hint());
    let stop = shutdown.child_token();
    tokio::select! {
        ended = source::run(source, sender, stop.clone()) => ended,
        ended = stop.run_until_cancelled(show(state, looks)) => ended.unwrap_or(Ok(())),
    }
}

async fn show(mut state: State, mut looks: watch::Receiver<Option<Look>>) -> anyhow::Result<()> {
    let mut screen = Screen::open()?;
    let mut keys = keys();
    let mut ticks = interval(REDRAW_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => state.now = Timestamp::now(),
            Ok(()) = looks.changed() => {
                if let Some(look) = looks.borrow_and_update().as_deref() {
                    state.take(look.as_ref(), Timestamp::now());
                }
            }
            key = keys.recv() => match key {
                Some(key) if !state.press(key) => {}
                Some(_) | None => return Ok(()),
            }
        }
        screen.draw(|frame| view::draw(frame, frame.area(), "petiole top", &state))?;
    }
}
