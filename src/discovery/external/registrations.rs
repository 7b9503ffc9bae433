//! The handlers in other processes that have registered, and the text of the file that keeps them. Pure.
//!
//! A handler of Akri's registers once in its life. So a registration is never dropped because its handler does not answer,
//! only for a newer one when there are too many. A registration whose handler answers is never dropped, nor is a name that a
//! Configuration uses.
use super::{
    endpoint::Endpoint,
    host_paths::{HandlerPaths, HostPaths},
    listing::{one_line, shown},
};
use crate::{
    model::{device::Scope, limits},
    proto::discovery::{RegisterDiscoveryHandlerRequest, register_discovery_handler_request},
};
use petiole_base::collect::CollectMap as _;
use register_discovery_handler_request::EndpointType;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The most names of handlers. Beyond it: a name that no Configuration has used for an hour is forgotten; if there
/// is none, the registration is refused.
pub(super) const NAMES_MAX: usize = 32;
/// The most endpoints of one name. Beyond it: one that does not answer is forgotten; if all answer, the registration
/// is refused.
pub(super) const ENDPOINTS_MAX: usize = 8;
/// The time for which a name that no Configuration uses is not forgotten for another one.
pub(super) const UNUSED_NAME_HOLD: Duration = Duration::from_hours(1);
/// The most bytes of the file with the registrations: each entry has at most 400. Beyond it: the file is not read;
/// handlers register again.
pub(super) const FILE_MAX: u64 = 256 * 1024;

/// The registration of a handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Registration {
    pub(super) name: String,
    pub(super) endpoint: Endpoint,
    pub(super) shared: bool,
    /// The number of its registrations since the agent started. A handler that registers again is asked again at once.
    #[serde(skip)]
    pub(super) times: u64,
    /// True if it was read from the file, or has a known place, and has not answered since.
    #[serde(skip)]
    pub(super) is_restored: bool,
    /// True if it is a built-in handler that runs as an isolated process. Its place is known without a registration.
    #[serde(skip)]
    pub(super) is_isolated: bool,
    /// The discoveries that have a list of it by a stream that has not ended.
    #[serde(skip)]
    pub(super) followers: BTreeSet<u64>,
    /// When it registered or was followed last, since the agent's start.
    #[serde(skip)]
    pub(super) last_used: Duration,
}

/// Why a registration that is correct in itself is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("{0}")]
    TooMany(String),
    #[error("{0}")]
    Contradicts(String),
}

/// What was forgotten for a new registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Forgotten {
    Endpoint(Endpoint),
    Name(String),
}

/// All registrations; those that were used last are the last ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Registrations {
    known: Vec<Registration>,
    /// The discoveries that run, each with the name of its handler.
    discoveries: BTreeMap<u64, String>,
}

/// The rules for every registration.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    /// The folder of sockets.
    pub(super) folder: String,
    /// The names of the handlers that are built in.
    pub(super) reserved: BTreeSet<String>,
}

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    handlers: Vec<serde_json::Value>,
}

impl Registration {
    /// Returns a registration of now.
    pub(super) fn new(name: String, endpoint: Endpoint, shared: bool, now: Duration) -> Self {
        Self {
            name,
            endpoint,
            shared,
            times: 0,
            is_restored: false,
            is_isolated: false,
            followers: BTreeSet::new(),
            last_used: now,
        }
    }

    /// Reads a request. The error says which field is wrong, and what would be right.
    pub(super) fn read(
        request: RegisterDiscoveryHandlerRequest,
        rules: &Rules,
        now: Duration,
    ) -> Result<Self, String> {
        let endpoint = match EndpointType::try_from(request.endpoint_type) {
            Ok(EndpointType::Uds) => Endpoint::unix(&request.endpoint)?,
            Ok(EndpointType::Network) => Endpoint::network(&request.endpoint)?,
            Err(_) => {
                return Err(format!(
                    "endpoint_type is {}; it must be UDS (0) or NETWORK (1)",
                    request.endpoint_type
                ));
            }
        };
        let registration = Self::new(request.name, endpoint, request.shared, now);
        registration.check(rules)?;
        Ok(registration)
    }

    /// Returns the paths that its devices may have, of those that the agent allows. Nobody knows who answers in a network:
    /// its answers are not authenticated. An isolated process has no rights to the node, but its devices may be parts of it.
    pub(super) fn paths(&self, allowed: &Arc<HostPaths>) -> HandlerPaths {
        let is_local = matches!(self.endpoint, Endpoint::Unix(_));
        let only_if = |may_give: bool| {
            if may_give {
                allowed.clone()
            } else {
                Arc::new(HostPaths::none())
            }
        };
        HandlerPaths {
            mounts: only_if(is_local && !self.is_isolated),
            device_nodes: only_if(is_local && !(self.is_isolated && self.shared)),
        }
    }

    fn check(&self, rules: &Rules) -> Result<(), String> {
        check_name(&self.name)?;
        if rules.reserved.contains(&self.name) {
            return Err(format!(
                "name: {} is a handler that is built in and finds these devices itself: remove this process, or choose another name",
                shown(&self.name)
            ));
        }
        let Endpoint::Unix(path) = &self.endpoint else {
            return Ok(());
        };
        let folder = rules.folder.trim_end_matches('/');
        let inside = path
            .strip_prefix(folder)
            .and_then(|rest| rest.strip_prefix('/'));
        if inside.is_none_or(str::is_empty) {
            return Err(format!(
                "endpoint: {} is not in {folder}, the folder that this agent shares with handlers",
                shown(path)
            ));
        }
        Ok(())
    }
}

/// A name as in `discoveryHandler.name`.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    let begins = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphanumeric());
    if begins && name.len() <= limits::LABEL_MAX && name.bytes().all(is_part) {
        return Ok(());
    }
    Err(format!(
        "name: {} must have 1 to {} letters, digits, `-`, `.` and `_`, and begin with a letter or a digit",
        shown(name),
        limits::LABEL_MAX
    ))
}

impl Registrations {
    /// Reads the file. Each entry that cannot be used is a message; the others count.
    pub(super) fn parse(text: &str, rules: &Rules) -> (Self, Vec<String>) {
        let mut all = Self::default();
        let mut problems = vec![];
        let file: File = serde_json::from_str(text).unwrap_or_else(|e| {
            problems.push(one_line(&e.to_string(), limits::NAME_MAX));
            File::default()
        });
        for entry in file.handlers {
            let read = serde_json::from_value::<Registration>(entry).map_err(|e| e.to_string());
            let checked = read.and_then(|read| {
                // As if it registered now: the rules may be others than they were.
                let endpoint = match &read.endpoint {
                    Endpoint::Unix(path) => Endpoint::unix(path)?,
                    Endpoint::Network(uri) => Endpoint::network(uri)?,
                };
                let read = Registration {
                    endpoint,
                    is_restored: true,
                    ..read
                };
                read.check(rules)?;
                all.register(read).map(drop).map_err(|e| e.to_string())
            });
            problems.extend(checked.err().map(|e| one_line(&e, limits::NAME_MAX)));
        }
        (all, problems)
    }

    /// Adds those that another agent has kept and that are not known yet. One that contradicts a known one is left out.
    pub(super) fn add_kept(&mut self, kept: Self) {
        for new in kept.known {
            if !self.of(&new.name).any(|old| old.endpoint == new.endpoint) {
                self.register(new).map(drop).ok();
            }
        }
    }

    /// Adds an isolated process of a built-in handler, which is where it is expected whether or not it runs now.
    pub(super) fn add_isolated(&mut self, name: &str, socket: String, scope: Scope) {
        let (endpoint, shared) = (Endpoint::Unix(socket), scope == Scope::Shared);
        self.known.push(Registration {
            is_restored: true,
            is_isolated: true,
            ..Registration::new(name.to_owned(), endpoint, shared, Duration::ZERO)
        });
    }

    /// The text of the file.
    pub(super) fn text(&self) -> String {
        let kept = self.known.iter().filter(|old| !old.is_isolated);
        let entries = kept.map(serde_json::to_value);
        let file = File {
            handlers: entries.filter_map(Result::ok).collect(),
        };
        serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
    }

    /// Adds a registration, or renews it. Returns what was forgotten for it. That is one endpoint of its name: of those that
    /// do not answer, the one that answered longest ago. Or it is the name that nobody has used for the longest time.
    pub(super) fn register(&mut self, mut new: Registration) -> Result<Option<Forgotten>, Refused> {
        let is_same = |old: &Registration| old.name == new.name && old.endpoint == new.endpoint;
        // All endpoints of a name find devices of one scope: it decides what their Instances are called.
        let differs = |old: &&Registration| !is_same(old) && old.shared != new.shared;
        if let Some(other) = self.of(&new.name).find(differs) {
            return Err(Refused::Contradicts(format!(
                "shared: it is {} for {}, and all endpoints of {} must say the same: correct it, register by another name, \
                 or, if that endpoint is gone, stop the agent, delete it from handlers.json, and start the agent",
                other.shared, other.endpoint, new.name
            )));
        }
        let mut removed = None;
        if let Some(place) = self.known.iter().position(is_same) {
            let old = self.known.remove(place);
            new.times = old.times + 1;
            (new.is_restored, new.followers) = (old.is_restored, old.followers);
        } else if !self.names().contains_key(&new.name) && self.names().len() >= NAMES_MAX {
            let unused = self.unused_name(new.last_used).ok_or_else(|| {
                Refused::TooMany(format!(
                    "name: {NAMES_MAX} other handlers are registered, which are the most: one that no Configuration has \
                     used for an hour is forgotten for another one, or stop the agent, delete those that are gone from its \
                     handlers.json, and start it"
                ))
            })?;
            self.known.retain(|old| old.name != unused);
            removed = Some(Forgotten::Name(unused));
        } else if self.of(&new.name).count() >= ENDPOINTS_MAX {
            let may_go = |old: &Registration| old.name == new.name && old.followers.is_empty();
            let place = self.known.iter().position(may_go).ok_or_else(|| {
                Refused::TooMany(format!(
                    "endpoint: {ENDPOINTS_MAX} other endpoints of {} answer, which are the most: end one of them, or \
                     register by another name",
                    new.name
                ))
            })?;
            removed = Some(Forgotten::Endpoint(self.known.remove(place).endpoint));
        }
        self.known.push(new);
        Ok(removed)
    }

    /// Returns the name that may be forgotten: no discovery uses it, and nothing has happened to it for the longest time.
    fn unused_name(&self, now: Duration) -> Option<String> {
        let last_used = |name: &String| {
            let used = self.of(name).map(|old| old.last_used);
            used.max().unwrap_or_default()
        };
        let may_go = |name: &String| {
            !self.of(name).any(|old| old.is_isolated)
                && !self.discoveries.values().any(|used| used == name)
                && last_used(name) + UNUSED_NAME_HOLD <= now
        };
        self.names()
            .into_keys()
            .filter(may_go)
            .min_by_key(last_used)
    }

    /// Takes note that a discovery by this handler runs.
    pub(super) fn begun(&mut self, name: &str, follower: u64) {
        self.discoveries.insert(follower, name.to_owned());
    }

    /// Takes note that an endpoint answers this discovery.
    pub(super) fn answers(&mut self, name: &str, endpoint: &Endpoint, follower: u64) {
        let is_it = |old: &Registration| old.name == name && old.endpoint == *endpoint;
        if let Some(place) = self.known.iter().position(is_it) {
            let mut used = self.known.remove(place);
            used.is_restored = false;
            used.followers.insert(follower);
            self.known.push(used);
        }
    }

    /// Takes note that a discovery has no list any more: of this endpoint, or of all.
    pub(super) fn ended(&mut self, endpoint: Option<&Endpoint>, follower: u64, now: Duration) {
        let unused = match endpoint {
            None => self.discoveries.remove(&follower),
            Some(_) => None,
        };
        for old in &mut self.known {
            let is_it = endpoint.is_none_or(|endpoint| old.endpoint == *endpoint);
            let was_followed = is_it && old.followers.remove(&follower);
            if was_followed || unused.as_ref() == Some(&old.name) {
                old.last_used = now;
            }
        }
    }

    pub(super) fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Registration> {
        self.known.iter().filter(move |old| old.name == name)
    }

    /// The names, each with the scope of its devices.
    pub(super) fn names(&self) -> BTreeMap<String, Scope> {
        let scope = |shared| if shared { Scope::Shared } else { Scope::Node };
        (self.known.iter())
            .map(|r| (r.name.clone(), scope(r.shared)))
            .collect_map()
    }
}

#[cfg(test)]
#[path = "registrations_tests.rs"]
mod tests;
