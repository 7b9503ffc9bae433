//! Holds one session with a broker, and publishes the devices that it hears of.
use super::{
    super::{super::part::Part, problems::problem, tcp::Stream},
    connection,
    credentials::Credentials,
    details::Details,
};
use crate::{
    discovery::publish::publish,
    model::device::{Device, DeviceId, DeviceSet},
};
use petiole_mqtt::{
    Code, Directory, Event, Failure, Found, Login, Session, Step,
    limits::{ANSWER_WITHIN, DEVICES_MAX, PAYLOAD_MAX},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    io,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};

/// The most bytes of what is kept of the messages of all Configurations; a namespace, and in it a Configuration, may have half of what
/// the others leave. Beyond it: devices that come later are left out (`DiscoveryIncomplete`).
pub(super) const ALL_BYTES_MAX: usize = 16 << 20;
const READ_BYTES: usize = 64 << 10;
/// The pause after bytes were read. It bounds the work that others cause.
const AFTER_READ: Duration = Duration::from_millis(1);
/// The shortest time between two sets of devices. The first change is published at once.
const BETWEEN_SETS: Duration = Duration::from_millis(200);
/// The time after which the broker is asked again for what it has refused, and for what was left out.
const AGAIN: Duration = Duration::from_mins(1);
/// The most refused subscriptions that are asked for again. Beyond it: the others are when the next session begins.
const REFUSED_MAX: usize = 1000;
/// What is retained has come when nothing new has come for this time, or after the longest.
const QUIET: Duration = Duration::from_secs(1);
const LOOK_MAX: Duration = Duration::from_secs(5);

/// Why a session ended.
pub(super) struct Ended {
    pub(super) why: String,
    /// Another version of the protocol may help.
    pub(super) is_of_protocol: bool,
    /// The broker has not answered CONNECT as it should.
    pub(super) is_of_connect: bool,
}

impl Ended {
    fn because(why: String) -> Self {
        Self {
            why,
            is_of_protocol: false,
            is_of_connect: false,
        }
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self {
            why: format!("{failure}: {}", failure.remedy()),
            is_of_protocol: failure.is_of_protocol(),
            is_of_connect: failure.step == Step::Connect,
        }
    }
}

/// One session, and what it has heard.
pub(super) struct Talk<'a> {
    details: &'a Details,
    directory: Directory,
    devices: BTreeMap<DeviceId, Arc<Device>>,
    part: Part,
    skipped: usize,
    /// The subscriptions that the broker has refused.
    refused: BTreeMap<Arc<str>, Code>,
    /// The topics of availability for which the session has no space.
    unfit: BTreeSet<Arc<str>>,
    /// Something other than devices has changed.
    has_news: bool,
}

impl<'a> Talk<'a> {
    pub(super) fn new(details: &'a Details, part: Part) -> Self {
        Self {
            details,
            directory: Directory::new(details.rule.clone()),
            devices: BTreeMap::new(),
            part,
            skipped: 0,
            refused: BTreeMap::new(),
            unfit: BTreeSet::new(),
            has_news: false,
        }
    }

    /// Runs the session until it ends.
    pub(super) async fn run(
        mut self,
        credentials: &Credentials,
        login: &Login,
        found: &watch::Sender<DeviceSet>,
    ) -> Ended {
        match connection::connect(&self.details.broker, credentials).await {
            Ok(stream) => {
                let Err(ended) = self.listen(stream, login, found).await;
                ended
            }
            Err(why) => Ended::because(why),
        }
    }

    async fn listen(
        &mut self,
        mut stream: Box<dyn Stream>,
        login: &Login,
        found: &watch::Sender<DeviceSet>,
    ) -> Result<Infallible, Ended> {
        let start = Instant::now();
        let mut session = Session::start(login, Duration::ZERO);
        for filter in self.directory.filters() {
            session.subscribe(filter);
        }
        let mut bytes = vec![0; READ_BYTES];
        let mut look = FirstLook::new(start);
        let (mut publish_at, mut again_at) = (start, start + AGAIN);
        // What this session has found after its first look is published once, also if it is nothing: a problem may be over.
        let mut is_told = false;
        loop {
            if Instant::now() >= again_at {
                again_at = Instant::now() + AGAIN;
                self.ask_again(&mut session);
            }
            let turn = session.turn(start.elapsed())?;
            let sent = timeout(ANSWER_WITHIN, stream.write_all(&turn.send)).await;
            let sent = sent.unwrap_or_else(|_late| Err(io::ErrorKind::TimedOut.into()));
            sent.map_err(|e| broken(&session, &e))?;
            let now = Instant::now();
            let has_changes = self.directory.has_changes() || self.has_news;
            let ends = look.turn(now, has_changes, session.is_settled());
            let is_due = has_changes || look.is_over && !is_told;
            if is_due && now >= publish_at {
                self.update();
                let is_complete = look.is_over || found.borrow().complete;
                publish(self.set(is_complete), found);
                is_told = look.is_over;
                publish_at = now + BETWEEN_SETS;
                continue;
            }
            let publish_at = is_due.then_some(publish_at);
            let wakes = [Some(start + turn.wake), Some(again_at), publish_at, ends];
            let wake = wakes.into_iter().flatten().min();
            tokio::select! {
                count = stream.read(&mut bytes) => {
                    match count.map_err(|e| broken(&session, &e))? {
                        0 => return Err(session.hung_up().into()),
                        count => self.receive(&mut session, &bytes[..count])?,
                    }
                    sleep(AFTER_READ).await;
                }
                () = sleep_until(wake.unwrap_or(now)) => {}
            }
        }
    }

    fn receive(&mut self, session: &mut Session, bytes: &[u8]) -> Result<(), Ended> {
        self.directory
            .limit_to(self.part.most().saturating_sub(session.bytes()));
        session.receive(bytes, |event| match event {
            Event::Message { topic, payload } => {
                tracing::debug!("{topic}: {} bytes", payload.len());
                self.directory.hear(topic, payload);
            }
            Event::Skipped => {
                self.skipped += 1;
                self.has_news |= self.skipped.is_power_of_two();
            }
            Event::Subscribed { filter } => self.has_news |= self.refused.remove(filter).is_some(),
            Event::Refused { filter, code } => {
                if self.refused.len() < REFUSED_MAX {
                    self.has_news |= self.refused.insert(filter.into(), code).is_none();
                }
            }
        })?;
        for (topic, is_watched) in self.directory.take_topics() {
            self.has_news |= self.refused.remove(&topic).is_some() | self.unfit.remove(&topic);
            if !is_watched {
                session.unsubscribe(&topic);
            } else if !session.subscribe(topic.clone()) {
                self.has_news |= self.unfit.insert(topic);
            }
        }
        self.part.set(self.directory.bytes() + session.bytes());
        Ok(())
    }

    /// Asks again for what was refused, and for what was left out if there is room now. A broker says nothing when it allows more.
    fn ask_again(&mut self, session: &mut Session) {
        for filter in self.refused.keys() {
            session.subscribe(filter.clone());
        }
        self.directory
            .limit_to(self.part.most().saturating_sub(session.bytes()));
        if self.directory.begin_again() {
            for filter in self.directory.filters() {
                session.subscribe(filter);
            }
        }
        // After what the rule wants.
        self.unfit.retain(|topic| !session.subscribe(topic.clone()));
        // The Configuration's part may have grown, too: what was cut away of the devices is published again.
        self.has_news = true;
    }

    /// Makes devices of what was heard.
    fn update(&mut self) {
        let broker = self.details.broker.to_string();
        for id in self.directory.take_changes() {
            let found = self.directory.device(&id);
            match found.filter(|_| self.details.only.takes(&id)) {
                Some(found) => {
                    let device = device(&id, &found, &broker);
                    self.devices.insert(device.id.clone(), Arc::new(device));
                }
                None => drop(self.devices.remove(&DeviceId::new(&id))),
            }
        }
        self.has_news = false;
    }

    fn set(&self, is_complete: bool) -> DeviceSet {
        let left_out = !self.unfit.is_empty() || self.directory.leaves_out();
        // Powers of two, so that a number that grows does not change the set each time.
        let many = |count: usize| 1_usize << count.ilog2();
        let skipped = (self.skipped > 0).then(|| {
            format!("{} or more messages were skipped, because they are larger than {PAYLOAD_MAX} bytes", many(self.skipped))
        });
        let unusable = self.directory.unusable().map(|(count, first)| {
            format!(
                "{} or more messages could not be used, such as {first}",
                many(count)
            )
        });
        let too_many = left_out.then(|| {
            format!("devices are left out, because there are more than {DEVICES_MAX}, or more text about them than is kept: choose fewer topics")
        });
        let refused = self.refused.first_key_value().map(|(filter, code)| {
            format!("the broker refused to send us {filter:?}, and is asked again every minute: {code}: its access list must allow it")
        });
        let broker = &self.details.broker;
        let problems = [refused, skipped, unusable, too_many];
        let problems = problems.into_iter().flatten();
        DeviceSet {
            devices: self.devices.clone(),
            complete: is_complete,
            left_out,
            problems: problems
                .map(|why| problem(format!("{broker}: {why}")))
                .collect(),
            troubles: vec![],
        }
    }
}

/// The first look at what is retained: no message says that all has come.
struct FirstLook {
    changed_at: Instant,
    settled_at: Option<Instant>,
    is_over: bool,
}

impl FirstLook {
    fn new(start: Instant) -> Self {
        Self {
            changed_at: start,
            settled_at: None,
            is_over: false,
        }
    }

    /// Returns when the look ends, if nothing is heard before.
    fn turn(&mut self, now: Instant, has_changes: bool, is_settled: bool) -> Option<Instant> {
        if has_changes {
            self.changed_at = now;
        }
        if is_settled {
            self.settled_at.get_or_insert(now);
        }
        let settled_at = self.settled_at?;
        let ends = (self.changed_at.max(settled_at) + QUIET).min(settled_at + LOOK_MAX);
        self.is_over |= now >= ends && is_settled || now >= settled_at + LOOK_MAX;
        (!self.is_over && is_settled).then_some(ends)
    }
}

fn broken(session: &Session, e: &io::Error) -> Ended {
    let failure = session.hung_up();
    let (step, remedy) = (failure.step, failure.remedy());
    Ended {
        why: format!("the connection broke at {step} ({e}): {remedy}"),
        ..failure.into()
    }
}

/// Returns the device of what was found.
fn device(id: &str, found: &Found<'_>, broker: &str) -> Device {
    const BROKER: &str = "MQTT_BROKER";
    let mut device = Device::new(id);
    let facts = found.facts.iter();
    let facts = facts.map(|(name, value)| (format!("MQTT_{name}"), value.to_owned()));
    device.properties.extend(facts);
    let topic = found
        .topic
        .map(|topic| ("MQTT_TOPIC".to_owned(), topic.to_owned()));
    device.properties.extend(topic);
    device
        .properties
        .insert(BROKER.to_owned(), broker.to_owned());
    device.connection.insert(BROKER.to_owned());
    device
}
