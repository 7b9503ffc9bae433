//! The handlers in other processes that have registered, and the text of the file that keeps them. Pure.
//!
//! A handler of Akri's registers once in its life. So a registration is never dropped because its handler does not answer,
//! only for a newer one when there are too many.
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

/// What a handler says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Registration {
    pub(super) name: String,
    pub(super) endpoint: Endpoint,
    pub(super) shared: bool,
    /// How often it has registered in this life of the agent. A handler that registers again is asked again at once.
    #[serde(skip)]
    pub(super) times: u64,
}

/// All registrations; those that were used last are the last ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Registrations(Vec<Registration>);

/// What every registration must keep to.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    /// The folder of sockets.
    pub(super) folder: String,
    /// The names of the handlers that are built in.
    pub(super) reserved: BTreeSet<String>,
}

/// What is in the file.
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
                let read = Registration { endpoint, ..read };
                read.check(rules)?;
                all.register(read).map(drop)
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

    /// Adds a registration, or renews it. Returns the endpoint that had to go for it: of its name the one that was used
    /// longest ago.
    pub(super) fn register(&mut self, mut new: Registration) -> Result<Option<Endpoint>, String> {
        let is_same = |old: &Registration| old.name == new.name && old.endpoint == new.endpoint;
        let mut removed = None;
        if let Some(place) = self.0.iter().position(is_same) {
            new.times = self.0.remove(place).times + 1;
        } else if !self.names().contains_key(&new.name) && self.names().len() >= NAMES_MAX {
            return Err(format!(
                "name: {NAMES_MAX} other handlers are registered, which are the most: stop the agent, delete those that \
                 are gone from its handlers.json, and start it"
            ));
        } else if self.of(&new.name).count() >= ENDPOINTS_MAX {
            let place = self.0.iter().position(|old| old.name == new.name);
            removed = place.map(|place| self.0.remove(place).endpoint);
        }
        // All endpoints of a name find devices of one scope: it decides what their Instances are called.
        for old in self.0.iter_mut().filter(|old| old.name == new.name) {
            old.shared = new.shared;
        }
        self.0.push(new);
        Ok(removed)
    }

    /// Takes note that an endpoint answers.
    pub(super) fn touch(&mut self, name: &str, endpoint: &Endpoint) {
        let is_it = |old: &Registration| old.name == name && old.endpoint == *endpoint;
        if let Some(place) = self.0.iter().position(is_it) {
            let used = self.0.remove(place);
            self.0.push(used);
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
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn rules() -> Rules {
        Rules {
            folder: "/var/lib/akri".to_owned(),
            reserved: BTreeSet::from(["udev".to_owned()]),
        }
    }

    fn request(name: &str, endpoint: &str, kind: i32) -> RegisterDiscoveryHandlerRequest {
        RegisterDiscoveryHandlerRequest {
            name: name.to_owned(),
            endpoint: endpoint.to_owned(),
            endpoint_type: kind,
            shared: true,
        }
    }

    fn read(name: &str, endpoint: &str, kind: i32) -> Result<String, String> {
        let read = Registration::read(request(name, endpoint, kind), &rules())?;
        Ok(read.endpoint.to_string())
    }

    fn registration(name: &str, n: usize) -> Registration {
        let endpoint = format!("http://10.0.0.{n}:10000");
        Registration::read(request(name, &endpoint, 1), &rules()).unwrap()
    }

    #[test]
    fn endpoints_are_read_as_akris_handlers_write_them() {
        for (endpoint, kind, expected) in [
            ("/var/lib/akri/onvif.sock", 0, "/var/lib/akri/onvif.sock"),
            ("unix:///var/lib/akri/a.sock", 0, "/var/lib/akri/a.sock"),
            ("unix:/var/lib/akri/a.sock", 0, "/var/lib/akri/a.sock"),
            ("http://10.1.2.3:10000", 1, "http://10.1.2.3:10000"),
            ("10.1.2.3:10000", 1, "http://10.1.2.3:10000"),
            ("http://[fd00::1]:10000/", 1, "http://[fd00::1]:10000"),
            ("http://onvif.akri", 1, "http://onvif.akri"),
        ] {
            assert_eq!(read("onvif", endpoint, kind).unwrap(), expected);
        }
    }

    #[test]
    fn a_registration_that_cannot_be_is_refused_with_its_field() {
        let long = format!("/var/lib/akri/{}.sock", "x".repeat(100));
        for (name, endpoint, kind, message) in [
            ("", "/var/lib/akri/a.sock", 0, "name:"),
            ("-a", "/var/lib/akri/a.sock", 0, "name:"),
            ("a b", "/var/lib/akri/a.sock", 0, "name:"),
            ("a\n", "/var/lib/akri/a.sock", 0, "name:"),
            (&"x".repeat(64), "/var/lib/akri/a.sock", 0, "name:"),
            ("udev", "/var/lib/akri/a.sock", 0, "built in"),
            (
                "a",
                "/run/containerd/containerd.sock",
                0,
                "is not in /var/lib/akri",
            ),
            ("a", "/var/lib/akri-2/a.sock", 0, "is not in /var/lib/akri"),
            ("a", "/var/lib/akri/../../../run/a.sock", 0, "endpoint:"),
            ("a", "/var/lib/akri/", 0, "endpoint:"),
            ("a", "a.sock", 0, "endpoint:"),
            ("a", &long, 0, "at most 107 bytes"),
            ("a", "https://10.0.0.1:1", 1, "in plain text"),
            ("a", "http://user@10.0.0.1:1", 1, "endpoint:"),
            ("a", "http://10.0.0.1:1/path", 1, "endpoint:"),
            ("a", "http://10.0.0.1:70000", 1, "endpoint:"),
            ("a", "http://", 1, "endpoint:"),
            ("a", "http://[::1", 1, "endpoint:"),
            ("a", "/var/lib/akri/a.sock", 2, "endpoint_type is 2"),
        ] {
            let refused = read(name, endpoint, kind).unwrap_err();
            assert!(refused.contains(message), "{name} {endpoint}: {refused}");
        }
    }

    #[test]
    fn of_many_endpoints_of_a_name_the_one_that_was_used_longest_ago_goes() {
        let mut all = Registrations::default();
        for n in 0..ENDPOINTS_MAX {
            assert_eq!(all.register(registration("cam", n)), Ok(None));
        }
        all.touch("cam", &registration("cam", 0).endpoint);
        assert_eq!(
            all.register(registration("cam", 1)),
            Ok(None),
            "it is known"
        );
        let gone = all.register(registration("cam", 100)).unwrap().unwrap();
        assert_eq!(gone, registration("cam", 2).endpoint);
        assert_eq!(all.of("cam").count(), ENDPOINTS_MAX);
    }

    #[test]
    fn names_beyond_the_bound_are_refused_and_none_is_forgotten_for_them() {
        let mut all = Registrations::default();
        for n in 0..NAMES_MAX {
            all.register(registration(&format!("h{n}"), n)).unwrap();
        }
        let before = all.clone();
        let refused = all.register(registration("one-more", 1)).unwrap_err();
        assert!(refused.contains("32 other handlers"), "{refused}");
        assert_eq!(all, before);
        all.register(registration("h0", 200)).unwrap();
    }

    #[test]
    fn the_newest_registration_of_a_name_says_whether_its_devices_are_shared() {
        let mut all = Registrations::default();
        all.register(registration("cam", 1)).unwrap();
        let mut local = registration("cam", 2);
        local.shared = false;
        all.register(local).unwrap();
        assert_eq!(all.names()["cam"], Scope::Node);
        assert!(all.of("cam").all(|r| !r.shared));
    }

    #[test]
    fn a_damaged_file_costs_only_what_is_damaged() {
        let mut all = Registrations::default();
        all.register(registration("cam", 1)).unwrap();
        let text = all.text();
        assert_eq!(Registrations::parse(&text, &rules()), (all.clone(), vec![]));
        let more = text.replace("[\n", "[\n7, {\"name\": \"udev\", \"endpoint\": {\"network\": \"http://a:1\"}, \"shared\": true},\n");
        let (read, problems) = Registrations::parse(&more, &rules());
        assert_eq!((read, problems.len()), (all, 2), "{problems:?}");
        for text in ["", "[]", "{\"handlers\": 7}", &text[..20]] {
            let (read, problems) = Registrations::parse(text, &rules());
            assert_eq!((read, problems.len()), (Registrations::default(), 1));
        }
    }

    proptest! {
        #[test]
        fn what_is_registered_is_bounded_and_comes_back_from_the_file(
            asked in vec(("[a-d]{1,2}[0-9]?", 0_usize..20, any::<bool>()), 0..200),
        ) {
            let mut all = Registrations::default();
            for (name, n, shared) in asked {
                let new = Registration { shared, ..registration(&name, n) };
                all.register(new).ok(); // the bounds refuse some
            }
            prop_assert!(all.names().len() <= NAMES_MAX);
            prop_assert!(all.names().keys().all(|name| all.of(name).count() <= ENDPOINTS_MAX));
            let text = all.text();
            prop_assert!(text.len() as u64 <= FILE_MAX);
            let (read, problems) = Registrations::parse(&text, &rules());
            prop_assert_eq!(problems, Vec::<String>::new());
            prop_assert_eq!(read.text(), text);
        }
    }
}
