//! Collects reports about services that are left out, or that may be reached at the wrong machine. Pure.
use super::{super::problems::such_as, service::Service};
use std::collections::{BTreeMap, BTreeSet};

/// The most services of each kind that a problem counts by name. Beyond it: further ones are not counted.
const NAMES_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct Notices {
    /// The services that are left out only because their addresses are in no network of the interface that received
    /// them.
    elsewhere: BTreeSet<String>,
    /// The devices whose host name a different machine uses too, with the host and a service of the other machine.
    twins: BTreeMap<String, (String, String)>,
    /// The devices whose name a machine on another interface has, too.
    namesakes: BTreeSet<String>,
}

impl Notices {
    /// Notes a service that is left out only because its addresses are elsewhere.
    pub(super) fn note_elsewhere(&mut self, service: &Service) {
        note(&mut self.elsewhere, service);
    }

    /// Notes a device whose name or host name a different machine uses too, if one does.
    pub(super) fn note_twin(&mut self, service: &Service) {
        match &service.twin {
            Some(twin) if *twin == service.fullname => note(&mut self.namesakes, service),
            Some(twin) if self.twins.len() < NAMES_MAX => {
                let twin = (service.host.clone(), twin.clone());
                self.twins.insert(service.fullname.clone(), twin);
            }
            Some(_) | None => {}
        }
    }

    pub(super) fn forget(&mut self, fullname: &str) {
        self.elsewhere.remove(fullname);
        self.twins.remove(fullname);
        self.namesakes.remove(fullname);
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let first = self.elsewhere.first().map(|first| format!("{first:?}"));
        let (count, what) = (self.elsewhere.len(), "services are left out");
        let elsewhere = such_as(count, first, what, ELSEWHERE);
        let twins = self.twins.first_key_value().map(|(name, (host, other))| {
            format!(
                "{} services have a host name that two machines use, such as {name:?} and {other:?} on {host:?}: {TWINS}",
                self.twins.len()
            )
        });
        let first = self.namesakes.first().map(|first| format!("{first:?}"));
        let (count, what) = (self.namesakes.len(), "names are those of two machines");
        let namesakes = such_as(count, first, what, NAMESAKES);
        (elsewhere.into_iter().chain(twins).chain(namesakes)).collect()
    }
}

fn note(names: &mut BTreeSet<String>, service: &Service) {
    if names.len() < NAMES_MAX {
        names.insert(service.fullname.clone());
    }
}

const ELSEWHERE: &str = "none of their addresses is in a network of the interface they came by; name their networks in \
                         `addresses`, or allow all of them with `addresses: any`";
const NAMESAKES: &str = "one of them, on another interface, is not offered; give each machine a name of its own, or write a \
                         Configuration for each of the `interfaces`";
const TWINS: &str = "their addresses are mixed up, and a broker may reach the wrong machine; give each machine a host \
                     name of its own";
