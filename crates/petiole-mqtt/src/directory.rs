//! Keeps the devices that messages tell of, and when they are available. Bounded, whatever is sent. Pure.
use crate::{
    availability::{Availability, State, Watch, said},
    facts::Facts,
    homeassistant,
    rule::Rule,
    sparkplug::{self, Kind, Said},
    topic::{is_id, is_topic},
};
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    ops::Bound,
    sync::Arc,
};

/// The most devices of a Configuration. Beyond it: further ones are left out, and that is said.
pub const DEVICES_MAX: usize = 10_000;
/// The most bytes of what is kept of the messages of a Configuration. Beyond it: devices that come later are left out, and that is said.
pub const BYTES_MAX: usize = 8 << 20;
/// The most topics of which it is remembered that their last message could not be used. Beyond it: they are only counted.
const UNUSABLE_MAX: usize = 100;
/// The part of the bytes that must be free for what was left out to be asked for again.
const ROOM: usize = 8;
/// The bytes that a message costs besides its texts.
const OVERHEAD: usize = 256;

/// A message that tells of a device.
#[derive(PartialEq, Eq)]
struct Source {
    device: Arc<str>,
    facts: Facts,
    availability: Availability,
    /// The number of its session, in Sparkplug.
    session: Option<u64>,
}

/// A device that is available.
#[derive(Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// The topic that tells of it, if there is a single one.
    pub topic: Option<&'a str>,
    /// The facts about the device.
    pub facts: &'a Facts,
}

/// The devices of a broker that a rule selects.
pub struct Directory {
    rule: Arc<Rule>,
    /// The key is a topic, or for Sparkplug a device.
    sources: BTreeMap<Arc<str>, Source>,
    /// Each device with each of its sources.
    devices: BTreeSet<Link>,
    device_count: usize,
    /// Each watched topic with each source that watches it.
    watched: BTreeSet<Link>,
    states: BTreeMap<Arc<str>, State>,
    changed: BTreeSet<Arc<str>>,
    changed_states: BTreeSet<Arc<str>>,
    /// The topics that are watched since the last call of `take_topics`, or no longer.
    changed_topics: BTreeSet<Arc<str>>,
    turn: u64,
    bytes: usize,
    limit: usize,
    /// Whether something was left out since the last [`Self::begin_again`], and since the one before.
    leaves_out: [bool; 2],
    /// Something else than devices has changed.
    has_news: bool,
    /// The topics whose last message could not be used, and why.
    unusable: BTreeMap<Box<str>, &'static str>,
    more_unusable: usize,
}

type Link = (Arc<str>, Arc<str>);

impl Directory {
    /// Creates an empty one.
    pub fn new(rule: Rule) -> Self {
        Self {
            rule: Arc::new(rule),
            sources: BTreeMap::new(),
            devices: BTreeSet::new(),
            device_count: 0,
            watched: BTreeSet::new(),
            states: BTreeMap::new(),
            changed: BTreeSet::new(),
            changed_states: BTreeSet::new(),
            changed_topics: BTreeSet::new(),
            turn: 0,
            bytes: 0,
            limit: BYTES_MAX,
            leaves_out: [false; 2],
            has_news: false,
            unusable: BTreeMap::new(),
            more_unusable: 0,
        }
    }

    /// Returns the filters of the messages that tell of devices.
    pub fn filters(&self) -> Vec<String> {
        self.rule.filters()
    }

    /// Takes over a message.
    pub fn hear(&mut self, topic: &str, payload: &[u8]) {
        if !is_topic(topic) {
            return;
        }
        if let Some(state) = self.states.get_mut(topic) {
            self.turn += 1;
            state.turn = self.turn;
            let said = said(payload);
            if state.said.as_deref() != Some(&said) || !self.changed_states.contains(topic) {
                state.said = Some(said);
                self.changed_states.insert(topic.into());
            }
        }
        let rule = self.rule.clone();
        let heard = match &*rule {
            Rule::Topics(topics) => match topics.says(topic, payload) {
                None => Ok(()),
                Some(Ok(facts)) => self.insert(topic.into(), Source::of(topic.into(), facts)),
                Some(Err(())) => {
                    self.remove(topic);
                    Ok(())
                }
            },
            Rule::HomeAssistant { prefix } => match homeassistant::entity(prefix, topic) {
                Some(entity) => self.hear_entity(topic, entity, payload),
                None => Ok(()),
            },
            Rule::Sparkplug { .. } => match sparkplug::topic(topic) {
                Some(said) => self.hear_sparkplug(&said, payload),
                None => Ok(()),
            },
        };
        match heard {
            // That one is mended shows with the next news: a topic may break and be mended all the time.
            Ok(()) => drop(self.unusable.remove(topic)),
            Err(_) if self.unusable.len() >= UNUSABLE_MAX && !self.unusable.contains_key(topic) => {
                self.more_unusable += 1;
                self.has_news |= self.more_unusable.is_power_of_two();
            }
            Err(why) => self.has_news |= self.unusable.insert(topic.into(), why) != Some(why),
        }
    }

    fn hear_entity(
        &mut self,
        topic: &str,
        entity: &str,
        payload: &[u8],
    ) -> Result<(), &'static str> {
        if payload.is_empty() {
            self.remove(topic);
            return Ok(());
        }
        let config = homeassistant::read(entity, payload)?;
        let source = Source {
            availability: config.availability,
            ..Source::of(config.device.into(), config.facts)
        };
        self.insert(topic.into(), source)
    }

    fn hear_sparkplug(&mut self, said: &Said<'_>, payload: &[u8]) -> Result<(), &'static str> {
        let id = said.id(said.device);
        let known = self.sources.get(id.as_str());
        let (is_known, born) = (known.is_some(), known.and_then(|source| source.session));
        if said.kind == Kind::Data {
            if is_known {
                return Ok(());
            }
            let stated = sparkplug::payload(said, &[])?;
            return self.insert(id.as_str().into(), Source::of(id.into(), stated.facts));
        }
        let stated = sparkplug::payload(said, payload)?;
        if said.kind == Kind::Birth {
            let source = Source {
                session: stated.session,
                ..Source::of(id.as_str().into(), stated.facts)
            };
            return self.insert(id.into(), source);
        }
        // The broker may publish the death of an earlier session after the birth of the next one. The numbers go round, and
        // pysparkplug gives a death that it publishes itself the number of its next session.
        let age = |born: u64| Some(born.wrapping_sub(stated.session?) & 0xFF);
        if born
            .and_then(age)
            .is_some_and(|age| (1..128).contains(&age))
        {
            return Ok(());
        }
        self.remove(&id);
        if said.device.is_none() {
            let below = format!("{id}/");
            let devices = self
                .sources
                .range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded));
            let devices = devices.take_while(|(id, _)| id.starts_with(&below));
            let devices: Vec<_> = devices.map(|(id, _)| id.clone()).collect();
            devices.iter().for_each(|id| self.remove(id));
        }
        Ok(())
    }

    /// Takes over a source, if there is space for it; one that does not grow always has space.
    fn insert(&mut self, id: Arc<str>, source: Source) -> Result<(), &'static str> {
        if !is_id(&source.device) {
            return Err(
                "the identity of its device is longer than 256 bytes, or has control characters",
            );
        }
        let known = self.sources.get(&id);
        if known == Some(&source) {
            return Ok(());
        }
        let before = known.map_or(0, |known| known.bytes(&id));
        let after = source.bytes(&id);
        let is_too_much = after > before && self.bytes - before + after > self.limit;
        let is_new = !self.has(&source.device);
        if is_too_much || is_new && self.device_count >= DEVICES_MAX {
            self.has_news |= !self.leaves_out[1];
            self.leaves_out = [true; 2];
            return Ok(());
        }
        self.bytes += after;
        self.device_count += usize::from(is_new);
        self.changed.insert(source.device.clone());
        self.devices.insert((source.device.clone(), id.clone()));
        for watch in &source.availability.watches {
            self.watched.insert((watch.topic.clone(), id.clone()));
            if let Entry::Vacant(state) = self.states.entry(watch.topic.clone()) {
                state.insert(State::default());
                self.changed_topics.insert(watch.topic.clone());
            }
        }
        if let Some(before) = self.sources.insert(id.clone(), source) {
            self.release(&id, before);
        }
        Ok(())
    }

    fn remove(&mut self, id: &str) {
        if let Some((id, source)) = self.sources.remove_entry(id) {
            self.release(&id, source);
        }
    }

    /// Forgets what an earlier source had and the present one of its topic has not. So a state that both watch stays.
    fn release(&mut self, id: &Arc<str>, before: Source) {
        self.bytes -= before.bytes(id);
        let now = self.sources.get(id);
        if now.is_none_or(|now| now.device != before.device) {
            self.devices.remove(&(before.device.clone(), id.clone()));
            let is_gone = linked(&self.devices, &before.device).next().is_none();
            self.device_count -= usize::from(is_gone);
        }
        let watches = now.map_or(&[][..], |now| &now.availability.watches);
        for Watch { topic, .. } in &before.availability.watches {
            if watches.iter().any(|watch| watch.topic == *topic) {
                continue;
            }
            self.watched.remove(&(topic.clone(), id.clone()));
            if linked(&self.watched, topic).next().is_none() {
                self.states.remove(topic);
                self.changed_topics.insert(topic.clone());
            }
        }
        self.changed.insert(before.device);
    }

    fn has(&self, device: &Arc<str>) -> bool {
        self.sources_of(device).next().is_some()
    }

    fn sources_of<'a>(&'a self, device: &'a Arc<str>) -> impl Iterator<Item = &'a Arc<str>> {
        linked(&self.devices, device)
    }

    /// Returns the topics of which it has changed since the last call whether they say that a device is available, with true for those
    /// to subscribe to, again too, because the broker then repeats what it has retained. A message that comes again changes none, so
    /// messages whose topics of availability are each other do not go round for ever.
    pub fn take_topics(&mut self) -> BTreeMap<Arc<str>, bool> {
        let topics = std::mem::take(&mut self.changed_topics).into_iter();
        topics
            .map(|topic| {
                let is_watched = self.states.contains_key(&topic);
                (topic, is_watched)
            })
            .collect()
    }

    /// Returns the devices of which something may have changed since the last call.
    pub fn take_changes(&mut self) -> BTreeSet<Arc<str>> {
        self.has_news = false;
        let mut changed = std::mem::take(&mut self.changed);
        for topic in std::mem::take(&mut self.changed_states) {
            let watchers = linked(&self.watched, &topic);
            let sources = watchers.filter_map(|id| self.sources.get(id));
            changed.extend(sources.map(|source| source.device.clone()));
        }
        changed
    }

    /// Returns whether a change waits to be taken.
    pub fn has_changes(&self) -> bool {
        self.has_news || !self.changed.is_empty() || !self.changed_states.is_empty()
    }

    /// Returns a device, if it is available: one of its sources is. A source that never says so counts only if all are such ones.
    pub fn device(&self, id: &Arc<str>) -> Option<Found<'_>> {
        let sources = || {
            let ids = self.sources_of(id);
            ids.filter_map(|id| self.sources.get_key_value(id))
        };
        let (topic, first) = sources().next()?;
        let says = |source: &Source| !source.availability.watches.is_empty();
        let is_said = sources().any(|(_, source)| says(source));
        let is_there = sources()
            .any(|(_, source)| says(source) == is_said && source.availability.holds(&self.states));
        is_there.then_some(Found {
            topic: (!matches!(*self.rule, Rule::Sparkplug { .. })).then_some(topic),
            facts: &first.facts,
        })
    }

    /// Sets the most bytes that may be kept, up to [`BYTES_MAX`].
    pub fn limit_to(&mut self, bytes: usize) {
        self.limit = bytes.min(BYTES_MAX);
    }

    /// Returns how many bytes are kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether something was left out because there is too much of it.
    pub fn leaves_out(&self) -> bool {
        self.leaves_out[1]
    }

    /// Returns whether what was left out is to be asked for again, because there is room: by another subscription to the
    /// [filters](Self::filters), after which the broker repeats what it has retained. What then fits, or is gone, is not left out
    /// any more after the next call.
    pub fn begin_again(&mut self) -> bool {
        let has_room =
            self.bytes < self.limit - self.limit / ROOM && self.device_count < DEVICES_MAX;
        let [is_left_out, was_left_out] = self.leaves_out;
        if !was_left_out || is_left_out && !has_room {
            return false;
        }
        self.leaves_out = [false, is_left_out];
        self.has_news |= !is_left_out;
        if is_left_out {
            // The broker repeats them, too.
            self.more_unusable = 0;
        }
        is_left_out
    }

    /// Returns the number of messages that could not be used, and a topic of one with the reason. The next message of a topic replaces it.
    pub fn unusable(&self) -> Option<(usize, String)> {
        let (topic, why) = self.unusable.first_key_value()?;
        // Those beyond the remembered ones may be of the same topics.
        let count = self.unusable.len() + self.more_unusable;
        Some((count, format!("{topic:?}: {why}")))
    }
}

impl Source {
    fn of(device: Arc<str>, facts: Facts) -> Self {
        Self {
            device,
            facts,
            availability: Availability::always(),
            session: None,
        }
    }

    fn bytes(&self, id: &str) -> usize {
        let word = |word: &Option<Box<str>>| word.as_ref().map_or(0, |word| word.len());
        let watches = self.availability.watches.iter();
        let watches = watches.map(|watch| 2 * watch.topic.len() + word(&watch.online) + OVERHEAD);
        let texts = 2 * id.len() + self.device.len() + self.facts.bytes();
        OVERHEAD + texts + watches.sum::<usize>()
    }
}

/// Returns the second ones of the links with this first one.
fn linked<'a>(
    links: &'a BTreeSet<Link>,
    first: &'a Arc<str>,
) -> impl Iterator<Item = &'a Arc<str>> {
    let least = (first.clone(), Arc::from(""));
    let links = links
        .range(least..)
        .take_while(move |link| link.0 == *first);
    links.map(|(_, second)| second)
}

#[cfg(test)]
mod tests;
