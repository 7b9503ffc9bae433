//! The handlers in other processes that have registered, and the text of the file that keeps them. Pure.
//!
//! A handler of Akri's registers once in its life. So a registration is never dropped because its handler does not answer,
//! only for a newer one when there are too many. One whose handler answers is never dropped.
use super::{
    endpoint::Endpoint,
    listing::{one_line, shown},
};
use crate::{
    model::{device::Scope, limits},
    proto::discovery::{RegisterDiscoveryHandlerRequest, register_discovery_handler_request},
};
use register_discovery_handler_request::EndpointType;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The most names, and the most endpoints of one name.
pub(super) const NAMES_MAX: usize = 32;
pub(super) const ENDPOINTS_MAX: usize = 8;
/// The most bytes of the file: each entry has at most 400.
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
    /// True if it was read from the file, and has not answered since.
    #[serde(skip)]
    pub(super) is_restored: bool,
    /// The discoveries that have a list of it by a stream that has not ended.
    #[serde(skip)]
    pub(super) followers: BTreeSet<u64>,
}

/// Why a registration that is correct in itself is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("{0}")]
    TooMany(String),
    #[error("{0}")]
    Contradicts(String),
}

/// All registrations; those that were used last are the last ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Registrations(Vec<Registration>);

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
    /// Reads a request. The error says which field is wrong, and what would be right.
    pub(super) fn read(
        request: RegisterDiscoveryHandlerRequest,
        rules: &Rules,
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
        let registration = Self {
            name: request.name,
            endpoint,
            shared: request.shared,
            times: 0,
            is_restored: false,
            followers: BTreeSet::new(),
        };
        registration.check(rules)?;
        Ok(registration)
    }

    fn check(&self, rules: &Rules) -> Result<(), String> {
        check_name(&self.name)?;
        if rules.reserved.contains(&self.name) {
            return Err(format!(
                "name: {} is a handler that is built in, and cannot be another one: choose another name",
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

    /// The text of the file.
    pub(super) fn text(&self) -> String {
        let entries = self.0.iter().map(serde_json::to_value);
        let file = File {
            handlers: entries.filter_map(Result::ok).collect(),
        };
        serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
    }

    /// Adds a registration, or renews it. Returns the endpoint that had to go for it: of those of its name that do not
    /// answer, the one that answered longest ago.
    pub(super) fn register(&mut self, mut new: Registration) -> Result<Option<Endpoint>, Refused> {
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
        if let Some(place) = self.0.iter().position(is_same) {
            let old = self.0.remove(place);
            new.times = old.times + 1;
            (new.is_restored, new.followers) = (old.is_restored, old.followers);
        } else if !self.names().contains_key(&new.name) && self.names().len() >= NAMES_MAX {
            return Err(Refused::TooMany(format!(
                "name: {NAMES_MAX} other handlers are registered, which are the most: stop the agent, delete those that \
                 are gone from its handlers.json, and start it"
            )));
        } else if self.of(&new.name).count() >= ENDPOINTS_MAX {
            let may_go = |old: &Registration| old.name == new.name && old.followers.is_empty();
            let place = self.0.iter().position(may_go).ok_or_else(|| {
                Refused::TooMany(format!(
                    "endpoint: {ENDPOINTS_MAX} other endpoints of {} answer, which are the most: end one of them, or \
                     register by another name",
                    new.name
                ))
            })?;
            removed = Some(self.0.remove(place).endpoint);
        }
        self.0.push(new);
        Ok(removed)
    }

    /// Takes note that an endpoint answers this discovery.
    pub(super) fn answers(&mut self, name: &str, endpoint: &Endpoint, follower: u64) {
        let is_it = |old: &Registration| old.name == name && old.endpoint == *endpoint;
        if let Some(place) = self.0.iter().position(is_it) {
            let mut used = self.0.remove(place);
            used.is_restored = false;
            used.followers.insert(follower);
            self.0.push(used);
        }
    }

    /// Takes note that a discovery has no list any more: of this endpoint, or of all.
    pub(super) fn ended(&mut self, endpoint: Option<&Endpoint>, follower: u64) {
        for old in &mut self.0 {
            if endpoint.is_none_or(|endpoint| old.endpoint == *endpoint) {
                old.followers.remove(&follower);
            }
        }
    }

    pub(super) fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Registration> {
        self.0.iter().filter(move |old| old.name == name)
    }

    /// The names, each with the scope of its devices.
    pub(super) fn names(&self) -> BTreeMap<String, Scope> {
        let scope = |shared| match shared {
            true => Scope::Shared,
            false => Scope::Node,
        };
        (self.0.iter())
            .map(|r| (r.name.clone(), scope(r.shared)))
            .collect()
    }
}

#[cfg(test)]
#[path = "registrations_tests.rs"]
mod tests;
