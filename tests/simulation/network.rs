//! Simulates the network between a process and the API server: delays, lost requests and answers, refusals of a busy
//! server, and watches whose events come in order but late, break, resume, and begin again with a list.
//!
//! A request without an answer may have been carried out. A cut link loses the messages in transit.
use super::{
    World,
    api_server::{ApiServer, Entry, Table, refusal},
    invariants,
};
use crate::cluster::REQUEST_TIMEOUT;
use std::{rc::Rc, sync::Arc};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// The quality of the network between two faults, in percent of requests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weather {
    pub(super) slow: u64,
    pub(super) lost: u64,
    pub(super) refused: u64,
}

/// A process's connection to the API server.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) world: Rc<World>,
    pub(super) who: String,
    link: watch::Receiver<bool>,
}

impl Client {
    pub(super) fn new(world: &Rc<World>, who: &str, link: &watch::Sender<bool>) -> Self {
        Self {
            world: world.clone(),
            who: who.to_owned(),
            link: link.subscribe(),
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        *self.link.borrow() && *self.world.is_up.borrow()
    }

    async fn connected(&self) {
        let (mut link, mut server) = (self.link.clone(), self.world.is_up.subscribe());
        while !self.is_connected() {
            tokio::select! {
                biased;
                _ = link.changed() => {}
                _ = server.changed() => {}
            }
        }
    }

    pub(super) async fn disconnected(&self) {
        let (mut link, mut server) = (self.link.clone(), self.world.is_up.subscribe());
        while self.is_connected() {
            tokio::select! {
                biased;
                _ = link.changed() => {}
                _ = server.changed() => {}
            }
        }
    }

    pub(super) async fn hop(&self) {
        let machine = &self.world.machine;
        let millis = if machine.chance(self.world.weather.get().slow) {
            machine.between(100, 6_000)
        } else {
            machine.between(1, 20)
        };
        machine.sleep(millis).await;
    }

    /// Sends a request to the server. `what` is for the history.
    pub(super) async fn request<T>(
        &self,
        what: impl Fn() -> String,
        ask: impl FnOnce(&mut ApiServer) -> kube::Result<T>,
    ) -> kube::Result<T> {
        let machine = &self.world.machine;
        let unreachable = || kube::Error::Service("no answer".into());
        if !self.is_connected() {
            machine.sleep(machine.between(1, 3_000)).await;
            return Err(unreachable());
        }
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        self.hop().await;
        let weather = self.world.weather.get();
        let is_late = || Instant::now() > deadline;
        if self.is_connected() && !is_late() && !machine.chance(weather.lost) {
            if machine.chance(weather.refused) {
                let code = *machine.one_of(&[429, 500, 503, 504]).unwrap();
                return Err(refusal(code, "the server is busy"));
            }
            let answer = ask(&mut self.world.server.borrow_mut());
            self.world.note(|| {
                let said = match &answer {
                    Ok(_) => "ok".to_owned(),
                    Err(e) => crate::cluster::reason(e),
                };
                format!("{}: {} -> {said}", self.who, what())
            });
            invariants::follow(&self.world);
            self.hop().await;
            if self.is_connected() && !is_late() && !machine.chance(weather.lost) {
                return answer;
            }
        }
        sleep_until(deadline).await;
        Err(unreachable())
    }
}

/// An event of a watch.
pub(super) enum Event<T> {
    Init,
    Listed(Arc<T>),
    Complete,
    Applied(Arc<T>),
    /// The object is gone or is no longer selected.
    Deleted(Arc<T>),
}

fn event<T>(entry: &Entry<T>, selects: &impl Fn(&T) -> bool) -> Option<Event<T>> {
    let is_selected = |object: &Option<Arc<T>>| object.as_ref().is_some_and(|o| selects(o));
    match (is_selected(&entry.before), is_selected(&entry.after)) {
        (_, true) => entry.after.clone().map(Event::Applied),
        (true, false) => entry.before.clone().map(Event::Deleted),
        (false, false) => None,
    }
}

/// Follows the selected objects of a table until its process ends.
pub(super) async fn follow<T: 'static>(
    client: Client,
    table: fn(&ApiServer) -> &Table<T>,
    selects: impl Fn(&T) -> bool,
    mut on: impl FnMut(Vec<Event<T>>),
) {
    let machine = &client.world.machine;
    loop {
        on(vec![Event::Init]);
        let list = |server: &mut ApiServer| {
            let table = table(server);
            let objects: Vec<_> = table
                .objects
                .values()
                .filter(|o| selects(o))
                .cloned()
                .collect();
            Ok((objects, table.log.len()))
        };
        let Ok((objects, mut position)) = client.request(|| "list".to_owned(), list).await else {
            machine.sleep(machine.between(100, 2_000)).await;
            continue;
        };
        let listed = objects.into_iter().map(Event::Listed);
        on(listed.chain([Event::Complete]).collect());
        let mut length = table(&client.world.server.borrow()).changed.subscribe();
        loop {
            let has_more = tokio::select! {
                biased;
                () = client.disconnected() => false,
                _ = length.wait_for(|length| *length > position) => true,
            };
            if has_more {
                client.hop().await;
            }
            if !client.is_connected() || machine.chance(client.world.weather.get().lost) {
                client.connected().await;
                machine.sleep(machine.between(1, 2_000)).await;
                if position < table(&client.world.server.borrow()).compacted {
                    client
                        .world
                        .note(|| format!("{}: watch: 410 Gone", client.who));
                    break;
                }
                continue;
            }
            let events: Vec<_> = {
                let server = client.world.server.borrow();
                let log = &table(&server).log;
                let from = std::mem::replace(&mut position, log.len());
                log[from..]
                    .iter()
                    .filter_map(|e| event(e, &selects))
                    .collect()
            };
            if !events.is_empty() {
                on(events);
            }
        }
    }
}
