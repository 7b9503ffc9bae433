//! Decides whether something is available, by what topics have said. Pure.
use std::{collections::BTreeMap, sync::Arc};

/// The longest payload of a topic that says whether a device is available, in bytes. Beyond it: the end is cut off.
pub const STATE_MAX: usize = 64;
/// The word of a topic for what is available, if no other one is named.
const ONLINE: &str = "online";

/// When something is available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Availability {
    pub(crate) mode: Mode,
    /// Without any, it always is.
    pub(crate) watches: Box<[Watch]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    All,
    Any,
    /// What was said last counts.
    Latest,
}

/// A topic that says whether something is available, with its word for that if it is not the usual one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watch {
    pub(crate) topic: Arc<str>,
    pub(crate) online: Option<Box<str>>,
}

/// What a watched topic has said last, and when in the order of all of them.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) said: Option<Box<str>>,
    pub(crate) turn: u64,
}

impl Availability {
    pub(crate) fn always() -> Self {
        Self {
            mode: Mode::Latest,
            watches: [].into(),
        }
    }

    /// What has said nothing yet is not available, as in Home Assistant.
    pub(crate) fn holds(&self, states: &BTreeMap<Arc<str>, State>) -> bool {
        let state = |watch: &Watch| {
            let state = states.get(&watch.topic);
            let said = state.and_then(|state| state.said.as_deref());
            let is_online = said == Some(watch.online.as_deref().unwrap_or(ONLINE));
            (state.map_or(0, |state| state.turn), is_online)
        };
        let mut said = self.watches.iter().map(state);
        match self.mode {
            _ if self.watches.is_empty() => true,
            Mode::All => said.all(|(_, is_online)| is_online),
            Mode::Any => said.any(|(_, is_online)| is_online),
            Mode::Latest => said.max().is_some_and(|(_, is_online)| is_online),
        }
    }
}

/// Returns the word of a payload: it itself, or `state` of a JSON object.
pub(crate) fn said(payload: &[u8]) -> Box<str> {
    let text = String::from_utf8_lossy(payload);
    let json = text.starts_with('{').then(|| serde_json::from_str(&text));
    let json: Option<serde_json::Value> = json.and_then(Result::ok);
    let state = json.as_ref().and_then(|json| json["state"].as_str());
    let text = state.unwrap_or(&text);
    text[..text.floor_char_boundary(STATE_MAX)].into()
}
