//! The doors through which `fuzz/` reaches this handler: nothing else uses them.
use super::{
    details::Details,
    environment::Txt,
    plan::{self, Tracker},
    room,
    service::{self, Address},
};
use crate::model::device::{Device, DeviceSet};
use std::{net::IpAddr, time::Duration};

/// The most variables that a TXT record becomes.
pub const TXT_KEYS_MAX: usize = super::environment::KEYS_MAX;
/// Their names and values together, in bytes.
pub const TXT_BYTES_MAX: usize = super::environment::BYTES_MAX;
pub const SERVICES_MAX: usize = room::SERVICES_MAX;

/// What mDNS says of a service.
#[derive(Debug, Clone, Default)]
pub struct Service {
    pub fullname: String,
    pub host: String,
    pub port: u16,
    /// Each with the interface it was heard on.
    pub addresses: Vec<(IpAddr, String)>,
    pub txt: Vec<(String, Option<Vec<u8>>)>,
}

#[derive(Debug)]
pub enum Event {
    Resolved(Service),
    Removed(String),
    Lapsed,
}

/// What to look for.
pub struct Filter(Details);

impl Filter {
    /// `None` where the handler refuses the details.
    pub fn new(details: &str) -> Option<Self> {
        Details::parse(details).ok().map(Self)
    }

    pub fn device(&self, service: &Service, earlier: Option<&Device>) -> Option<Device> {
        service::device_from_service(&self.0, &service.into(), earlier)
    }

    pub fn has_address(&self, ip: IpAddr) -> bool {
        self.0.addresses.is_empty() || self.0.addresses.iter().any(|net| net.contains(&ip))
    }

    pub fn discovery(&self) -> Discovery {
        Discovery(Tracker::new(self.0.clone(), 0))
    }
}

/// A running discovery, without its network.
pub struct Discovery(Tracker);

/// What a discovery does at a moment.
#[derive(Debug)]
pub struct Turn {
    pub published: Option<DeviceSet>,
    pub verified: Vec<String>,
    pub wake: Option<Duration>,
}

impl Discovery {
    pub fn apply(&mut self, event: Event, now: Duration) {
        let event = match event {
            Event::Resolved(service) => plan::Event::Resolved(Box::new((&service).into())),
            Event::Removed(fullname) => plan::Event::Removed(fullname),
            Event::Lapsed => plan::Event::Lapsed,
        };
        self.0.apply(event, now);
    }

    pub fn turn(&mut self, now: Duration) -> Turn {
        let turn = self.0.turn(now);
        Turn {
            published: turn.publish,
            verified: turn.verify,
            wake: turn.wake,
        }
    }
}

impl From<&Service> for service::Service {
    fn from(heard: &Service) -> Self {
        let address = |(ip, interface): &(IpAddr, String)| Address::new(*ip, interface);
        let txt = |(key, value): &(String, Option<Vec<u8>>)| Txt {
            key: key.clone(),
            value: value.clone(),
        };
        Self {
            fullname: heard.fullname.clone(),
            host: heard.host.clone(),
            port: heard.port,
            addresses: heard.addresses.iter().filter_map(address).collect(),
            txt: heard.txt.iter().map(txt).collect(),
        }
    }
}
