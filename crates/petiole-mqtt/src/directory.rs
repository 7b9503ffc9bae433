//! Keeps the devices that messages tell of, and when they are available. Bounded, whatever is sent. Pure.
use crate::{
    availability::{Availability, State, said},
    facts::Facts,
    homeassistant,
    rule::Rule,
    sparkplug::{self, Kind, Said},
    topic::TOPIC_MAX,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

/// The most devices of a Configuration. Beyond it: further ones are left out, and that is said.
pub const DEVICES_MAX: usize = 10_000;
/// The most bytes of what is kept of the messages of a Configuration. Beyond it: further messages are left out, and that is said.
pub const BYTES_MAX: usize = 12 << 20;
/// The bytes that a message costs besides its texts.
const OVERHEAD: usize = 256;

/// A message that tells of a device.
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
    /// What is known of it.
    pub facts: &'a Facts,
}

/// The devices of a broker that a rule selects.
pub struct Directory {
    rule: Arc<Rule>,
    /// By their topics, or for Sparkplug by their devices.
    sources: BTreeMap<Arc<str>, Source>,
    /// Each device with each of its sources.
    devices: BTreeSet<Link>,
    device_count: usize,
    /// Each watched topic with each source that watches it.
    watched: BTreeSet<Link>,
    states: BTreeMap<Arc<str>, State>,
    changed: BTreeSet<Arc<str>>,
    changed_states: BTreeSet<Arc<str>>,
    turn: u64,
    bytes: usize,
    limit: usize,
    leaves_out: bool,
    /// Something else than devices has changed.
    has_news: bool,
    unusable: usize,
    last_unusable: Option<String>,
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
            turn: 0,
            bytes: 0,
            limit: BYTES_MAX,
            leaves_out: false,
            has_news: false,
            unusable: 0,
            last_unusable: None,
        }
    }

    /// Returns the filters of the messages that tell of devices.
    pub fn filters(&self) -> Vec<String> {
        self.rule.filters()
    }

    /// Takes over a message. Returns the topics that say whether its device is available: they are to be subscribed to, again too,
    /// because the broker then repeats what it has retained.
    pub fn hear(&mut self, topic: &str, payload: &[u8]) -> Vec<String> {
        if topic.len() > TOPIC_MAX {
            return vec![];
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
            Rule::Topics(topics) => {
                match topics.says(topic, payload) {
                    None => {}
                    Some(Ok(facts)) => {
                        let source = Source::of(topic.into(), facts);
                        self.insert(topic.into(), source);
                    }
                    Some(Err(())) => self.remove(topic),
                }
                Ok(vec![])
            }
            Rule::HomeAssistant { prefix } => match homeassistant::entity(prefix, topic) {
                Some(entity) => self.hear_entity(topic, entity, payload),
                None => Ok(vec![]),
            },
            Rule::Sparkplug { .. } => match sparkplug::topic(topic) {
                Some(said) => self.hear_sparkplug(&said, payload).map(|()| vec![]),
                None => Ok(vec![]),
            },
        };
        heard.unwrap_or_else(|why| {
            self.unusable += 1;
            self.has_news = true;
            self.last_unusable = Some(format!("{topic:?}: {why}"));
            vec![]
        })
    }

    fn hear_entity(
        &mut self,
        topic: &str,
        entity: &str,
        payload: &[u8],
    ) -> Result<Vec<String>, &'static str> {
        if payload.is_empty() {
            self.remove(topic);
            return Ok(vec![]);
        }
        let config = homeassistant::read(entity, payload)?;
        let device = &config.device[..config.device.floor_char_boundary(TOPIC_MAX)];
        let watches = &config.availability.watches;
        let watches = watches
            .iter()
            .map(|watch| watch.topic.to_string())
            .collect();
        let source = Source {
            availability: config.availability,
            ..Source::of(device.into(), config.facts)
        };
        match self.insert(topic.into(), source) {
            true => Ok(watches),
            false => Ok(vec![]),
        }
    }

    fn hear_sparkplug(&mut self, said: &Said<'_>, payload: &[u8]) -> Result<(), &'static str> {
        let id = said.id(said.device);
        let known = self.sources.get(id.as_str());
        let (is_known, born) = (known.is_some(), known.and_then(|source| source.session));
        if said.kind == Kind::Data {
            if !is_known {
                let stated = sparkplug::payload(said, &[])?;
                self.insert(id.as_str().into(), Source::of(id.into(), stated.facts));
            }
            return Ok(());
        }
        let stated = sparkplug::payload(said, payload)?;
        if said.kind == Kind::Birth {
            let source = Source {
                session: stated.session,
                ..Source::of(id.as_str().into(), stated.facts)
            };
            self.insert(id.into(), source);
            return Ok(());
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

    /// Takes over a source. Returns whether there is space for it.
    fn insert(&mut self, id: Arc<str>, source: Source) -> bool {
        let before = self.sources.get(&id).map_or(0, |source| source.bytes(&id));
        let bytes = self.bytes - before + source.bytes(&id);
        let is_new = !self.has(&source.device);
        if bytes > self.limit || is_new && self.device_count >= DEVICES_MAX {
            self.has_news |= !self.leaves_out;
            self.leaves_out = true;
            return false;
        }
        self.remove(&id);
        self.bytes += source.bytes(&id);
        self.device_count += usize::from(!self.has(&source.device));
        self.changed.insert(source.device.clone());
        self.devices.insert((source.device.clone(), id.clone()));
        for watch in &source.availability.watches {
            self.watched.insert((watch.topic.clone(), id.clone()));
            self.states.entry(watch.topic.clone()).or_default();
        }
        self.sources.insert(id, source);
        true
    }

    fn remove(&mut self, id: &str) {
        let Some((id, source)) = self.sources.remove_entry(id) else {
            return;
        };
        self.bytes -= source.bytes(&id);
        self.devices.remove(&(source.device.clone(), id.clone()));
        self.device_count -= usize::from(!self.has(&source.device));
        for watch in &source.availability.watches {
            self.watched.remove(&(watch.topic.clone(), id.clone()));
            if linked(&self.watched, &watch.topic).next().is_none() {
                self.states.remove(&watch.topic);
            }
        }
        self.changed.insert(source.device);
    }

    fn has(&self, device: &Arc<str>) -> bool {
        self.sources_of(device).next().is_some()
    }

    fn sources_of<'a>(&'a self, device: &'a Arc<str>) -> impl Iterator<Item = &'a Arc<str>> {
        linked(&self.devices, device)
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

    /// Returns a device, if it is available: one of its sources is.
    pub fn device(&self, id: &Arc<str>) -> Option<Found<'_>> {
        let sources = self
            .sources_of(id)
            .filter_map(|id| self.sources.get_key_value(id));
        let mut sources = sources.peekable();
        let (topic, first) = *sources.peek()?;
        let is_there = sources.any(|(_, source)| source.availability.holds(&self.states));
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
        self.leaves_out
    }

    /// Returns the number of messages that could not be read, and the last one with the reason.
    pub fn unusable(&self) -> Option<(usize, &str)> {
        Some((self.unusable, self.last_unusable.as_deref()?))
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
