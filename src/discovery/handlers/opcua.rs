//! Finds OPC UA servers: asks those that are named, and discovery servers, who is there.
//!
//! Details and properties are those of Akri's handler `opcua`, and a few more. This file connects the parts: `Survey` of the crate
//! `petiole-opcua` decides whom to ask, and `ask` is one conversation, whose messages are there, too. Libraries of the whole protocol were weighed: `opcua`
//! is abandoned with known vulnerabilities, `async-opcua` has a licence that we do not take and 175 crates, and `open62541` is C.
//! Discovery needs six messages of it.
mod announced;
mod ask;
mod details;
mod device;

use super::{
    super::{
        interface::{DetailsError, Discovery, DiscoveryError, DiscoveryHandler, Properties, Task},
        part::{Bytes, Part},
        turns::Turns,
    },
    problems::{NO_MDNS_INTERFACE, problem, share_used_up},
};
use crate::{discovery::publish::publish, model::device::DeviceSet};
use details::Details;
use futures::{StreamExt as _, stream::FuturesUnordered};
use petiole_mdns::{LeftOut, Mdns, Subscription};
use petiole_opcua::{Application, Ask, EndpointUrl, Heard, Survey};
use std::time::Duration;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tracing::{debug, warn};

/// The most conversations and lookups at the same time, of all Configurations. Beyond it: the others wait.
const AT_ONCE_MAX: usize = 16;
/// The most conversations and lookups of one Configuration at the same time: a server that is off holds its turn for a while. Beyond it:
/// the others wait.
const OWN_AT_ONCE_MAX: usize = 8;
/// The most bytes of what is kept of the answers to all Configurations; a namespace, and in it a Configuration, may have half of what
/// the others leave. Beyond it: an answer is not used, and that is said.
const ALL_BYTES_MAX: usize = 8 << 20;
/// The time from one round of questions to the next, as in Akri.
const INTERVAL: Duration = Duration::from_secs(10);
/// The shortest time between two rounds, whatever is announced.
const INTERVAL_MIN: Duration = Duration::from_secs(2);
/// The time after which a server that announces itself has been heard, or is absent.
const SETTLED_AFTER: Duration = Duration::from_secs(5);
/// The longest time of the first look: a server that is new all the time, and fails, holds it up no longer.
const LOOK_MAX: Duration = Duration::from_mins(1);

/// Finds OPC UA servers.
#[derive(Clone)]
pub struct Opcua {
    mdns: Mdns,
    turns: Turns,
    bytes: Bytes,
}

impl Opcua {
    /// Creates the handler. `mdns` is the querier of the process.
    pub fn new(mdns: Mdns) -> Self {
        Self {
            mdns,
            turns: Turns::new(AT_ONCE_MAX),
            bytes: Bytes::new(ALL_BYTES_MAX),
        }
    }
}

impl DiscoveryHandler for Opcua {
    fn name(&self) -> &'static str {
        "opcua"
    }

    fn prepare(&self, details: &str, _: &Properties) -> Result<Discovery, DetailsError> {
        let (details, opcua) = (Details::parse(details)?, self.clone());
        let scope = details.scope;
        Ok(Discovery::new(scope, |task| opcua.follow(details, task)))
    }
}

impl Opcua {
    /// Asks all servers in rounds, and publishes the devices after each answer.
    async fn follow(self, details: Details, task: Task) -> Result<(), DiscoveryError> {
        let start = Instant::now();
        let wanted = details.mdns.map(announced::wanted);
        let mut announced = wanted.map(|wanted| self.mdns.subscribe(wanted));
        let (names, only) = (details.names, details.only);
        let takes = move |application: &Application| names.takes_whole(&application.name);
        let mut survey = Survey::new(details.urls, details.asks_for_network, takes);
        let mut part = Part::new(&self.bytes, &task.configuration);
        let own_turns = Turns::new(OWN_AT_ONCE_MAX);
        let (mut is_complete, mut urls) = (false, vec![]);
        loop {
            let began = Instant::now();
            // What is announced after the beginning of a round is asked in the next one.
            let is_settled = announced.is_none() || began >= start + SETTLED_AFTER;
            urls = urls_now(&mut announced, &urls);
            survey.begin(urls.clone());
            let mut asking = FuturesUnordered::new();
            loop {
                let due = survey.due().into_iter();
                asking.extend(due.map(|ask| answer(&own_turns, &self.turns, ask)));
                let Some(heard) = asking.next().await else {
                    break;
                };
                survey.free_bytes = part.most();
                survey.hear(heard);
                part.set(survey.bytes());
                let devices = devices(&survey, is_complete, announced.as_ref());
                offer(only.of(devices), &task.found);
            }
            is_complete |= is_settled && survey.is_settled() || began >= start + LOOK_MAX;
            survey.end();
            part.set(survey.bytes());
            let devices = devices(&survey, is_complete, announced.as_ref());
            offer(only.of(devices), &task.found);
            let next = began + INTERVAL;
            let next = if is_settled {
                next
            } else {
                next.min(start + SETTLED_AFTER)
            };
            tokio::select! {
                () = sleep_until(next) => {}
                changed = changed(&mut announced, &urls, began + INTERVAL_MIN) => changed?,
            }
        }
    }
}

/// Does what the survey asks for, when it is its turn.
async fn answer(own_turns: &Turns, turns: &Turns, ask: Ask) -> Heard {
    let _own_turn = own_turns.begin().await;
    let _turn = turns.begin().await;
    match ask {
        Ask::Server(url, questions) => {
            let answers = ask::ask(&url, &questions).await;
            match &answers {
                Ok(answers) => debug!("{url}: {} answers", answers.len()),
                Err(why) => debug!("{url}: {why}"),
            }
            // It may have the words of a server, and is kept.
            Heard::Server(url, answers.map_err(problem))
        }
        Ask::Lookup(host) => {
            let is_known = ask::resolves(&host).await;
            Heard::Lookup(host, is_known)
        }
    }
}

fn urls_now(announced: &mut Option<Subscription>, before: &[EndpointUrl]) -> Vec<EndpointUrl> {
    let found = announced.as_mut().map(|s| s.found.borrow_and_update());
    found.map_or_else(Vec::new, |found| announced::urls(&found, before))
}

/// Returns a problem if multicast DNS is wished, and there is no interface for it.
fn no_interface(announced: Option<&Subscription>) -> Option<String> {
    let found = announced?.found.borrow();
    (found.interfaces == Some(0)).then(|| NO_MDNS_INTERFACE.to_owned())
}

/// Waits until other addresses are announced. Whatever others announce, it is looked at seldom.
async fn changed(
    announced: &mut Option<Subscription>,
    before: &[EndpointUrl],
    mut not_before: Instant,
) -> Result<(), DiscoveryError> {
    let Some(subscription) = announced else {
        return std::future::pending().await;
    };
    loop {
        let changed = subscription.found.changed().await;
        changed.map_err(|_| DiscoveryError("the mDNS querier has ended".into()))?;
        sleep_until(not_before).await;
        if announced::urls(&subscription.found.borrow_and_update(), before) != before {
            return Ok(());
        }
        not_before = Instant::now() + INTERVAL_MIN;
    }
}

fn devices(survey: &Survey, is_complete: bool, announced: Option<&Subscription>) -> DeviceSet {
    let (seen, own) = (survey.seen(), no_interface(announced));
    let left_out = announced.and_then(|announced| announced.found.borrow().leaves_out);
    let problems = seen.problems.iter().cloned().map(problem);
    let unheard = left_out.map(|why| match why {
        LeftOut::Total => "servers that announce themselves are left out, because there is no room for the records of more services: check what others announce".to_owned(),
        LeftOut::Share(host) => share_used_up(host),
    });
    DeviceSet {
        complete: is_complete,
        left_out: seen.leaves_out || left_out.is_some(),
        problems: own.into_iter().chain(unheard).chain(problems).collect(),
        ..DeviceSet::complete(seen.servers.values().map(device::device))
    }
}

/// Publishes a set, and logs what is new.
fn offer(devices: DeviceSet, found: &watch::Sender<DeviceSet>) {
    let before = found.borrow();
    let is_new = |(id, _): &(&_, &_)| !before.devices.contains_key(*id);
    for (id, device) in devices.devices.iter().filter(is_new) {
        if let Some(own) = device.properties.get("OPCUA_ADVERTISED_URL") {
            warn!(
                "{id} is offered instead of {own}, whose host this node does not know or cannot reach"
            );
        }
    }
    drop(before);
    publish(devices, found);
}
