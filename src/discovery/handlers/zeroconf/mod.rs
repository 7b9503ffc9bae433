//! Services that announce themselves by mDNS and DNS-SD (Bonjour, Avahi, zeroconf): cameras, printers, brokers, hubs.
//!
//! Only the wiring is here: `plan` decides, `browser` is the network.
mod browser;
mod details;
mod environment;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod interfaces;
mod plan;
mod room;
mod service;
mod tracked;

use super::super::{DetailsError, Discovery, DiscoveryError, DiscoveryHandler};
use crate::model::device::{DeviceSet, Scope};
use browser::Browser;
use details::Details;
use futures::future::BoxFuture;
use plan::{Event, Tracker, Turn};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

/// Finds mDNS services of one kind.
#[derive(Debug, Default)]
pub struct Zeroconf;

impl DiscoveryHandler for Zeroconf {
    fn name(&self) -> &'static str {
        "zeroconf"
    }

    fn prepare(&self, details: &str) -> Result<Box<dyn Discovery>, DetailsError> {
        let details = Details::parse(details)?;
        Ok(Box::new(ZeroconfDiscovery { details }))
    }
}

struct ZeroconfDiscovery {
    details: Details,
}

impl Discovery for ZeroconfDiscovery {
    fn scope(&self) -> Scope {
        self.details.scope
    }

    fn run(
        self: Box<Self>,
        found: watch::Sender<DeviceSet>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, Result<(), DiscoveryError>> {
        Box::pin(run(self.details, found, shutdown))
    }
}

async fn run(
    details: Details,
    found: watch::Sender<DeviceSet>,
    shutdown: CancellationToken,
) -> Result<(), DiscoveryError> {
    let start = Instant::now();
    let browsed = details.kind.browse_name();
    let interfaces = details.interfaces.clone();
    let mut tracker = Tracker::new(details, fastrand::u64(..));
    let mut browser: Option<Browser> = None;
    loop {
        let turn = tracker.turn(start.elapsed());
        if turn.browse {
            browser = Some(Browser::start(&browsed, &interfaces)?);
        }
        let wake = turn.wake.map(|wake| start + wake);
        execute(turn, &found, browser.as_mut(), &browsed);
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            event = next(&mut browser) => take(event?, &mut browser, &mut tracker, start)?,
            () = sleep_until(wake) => {}
        }
    }
}

fn execute(
    turn: Turn,
    found: &watch::Sender<DeviceSet>,
    browser: Option<&mut Browser>,
    browsed: &str,
) {
    if let Some(devices) = turn.publish {
        let left_out = devices.left_out;
        let before = found.send_replace(devices);
        if left_out && !before.left_out {
            tracing::warn!(browsed, "{}", found.borrow().problems.join("; "));
        }
    }
    let Some(browser) = browser else {
        return;
    };
    if turn.look_again {
        browser.look_again();
    }
    for fullname in turn.verify {
        browser.verify(fullname);
    }
}

/// Feeds an event, and all that are there with it, to the tracker.
fn take(
    event: Event,
    browser: &mut Option<Browser>,
    tracker: &mut Tracker,
    start: Instant,
) -> Result<(), DiscoveryError> {
    let mut event = Some(event);
    while let Some(current) = event {
        let lapsed = matches!(current, Event::Lapsed);
        tracker.apply(current, start.elapsed());
        if lapsed {
            tracing::warn!("the mDNS browse fell behind and was closed: browsing anew");
            *browser = None;
        }
        event = match browser {
            Some(browser) => browser.next_ready()?,
            None => None,
        };
    }
    Ok(())
}

async fn next(browser: &mut Option<Browser>) -> Result<Event, DiscoveryError> {
    match browser {
        Some(browser) => browser.next().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => std::future::pending().await,
    }
}
