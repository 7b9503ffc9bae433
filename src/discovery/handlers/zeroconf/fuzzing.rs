//! Gives `fuzz/` access to the private parts of this handler. Nothing else uses this file.
use super::{
    budget::{self, ServiceBudget},
    details::Details,
    environment::Txt,
    events::KnownServices,
    plan::Tracker,
    service::{self, device_from_service},
};
use crate::model::{device::DeviceSet, typed_names::ConfigurationKey};
use petiole_mdns::{Address, Change, Family, Found, Link, Packet, Querier};
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// The most variables of a TXT record.
pub const TXT_KEYS_MAX: usize = super::environment::KEYS_MAX;
/// The most bytes of the names and values of these variables together.
pub const TXT_BYTES_MAX: usize = super::environment::BYTES_MAX;
pub const SERVICES_MAX: usize = budget::SERVICES_MAX;
pub const STEPS_MAX: usize = super::super::matcher::STEPS_MAX;

const LINK: u32 = 2;
const SUBSCRIPTION: u64 = 1;

/// A service that was resolved.
#[derive(Debug, Clone)]
pub struct Service {
    pub fullname: String,
    pub host: String,
    pub port: u16,
    pub address: IpAddr,
    pub txt: Vec<(String, Option<Vec<u8>>)>,
}

impl From<&Service> for service::Service {
    fn from(found: &Service) -> Self {
        let txt = found.txt.iter().cloned();
        Self {
            fullname: found.fullname.clone(),
            host: found.host.clone(),
            port: found.port,
            addresses: vec![address(found.address, true)],
            txt: txt.map(|(key, value)| Txt { key, value }).collect(),
            source: found.address,
            twin: None,
        }
    }
}

fn address(ip: IpAddr, is_on_link: bool) -> Address {
    Address {
        ip,
        interface: "eth0".into(),
        network: None,
        is_on_link,
    }
}

/// The filters of a Configuration.
pub struct Filter(Details);

impl Filter {
    /// Parses details. Returns `None` if the handler rejects them.
    pub fn new(details: &str) -> Option<Self> {
        Details::parse(details).ok().map(Self)
    }

    /// Returns the most steps that all filters take on a service.
    pub fn steps(&self) -> usize {
        self.0.steps
    }

    /// Returns whether a service becomes a device.
    pub fn takes(&self, service: &Service) -> bool {
        device_from_service(&self.0, &service.into(), None).is_some()
    }

    /// Returns whether an address outside the interface's networks may be used.
    pub fn takes_from_afar(&self, ip: IpAddr) -> bool {
        self.0.addresses.take(&address(ip, false))
    }

    pub fn discovery(&self) -> Discovery {
        let of = ConfigurationKey::new("", "");
        let budget = ServiceBudget::within(&budget::all_bytes(), &of);
        let mut discovery = Discovery {
            querier: Querier::new(0),
            known: KnownServices::new(self.0.changes_at_once()),
            tracker: Tracker::new(self.0.clone(), budget),
            found: Found::default(),
        };
        discovery.connect(Duration::ZERO);
        let wanted = self.0.wanted();
        let querier = &mut discovery.querier;
        querier.subscribe(SUBSCRIPTION, wanted, Duration::ZERO);
        discovery
    }
}

/// A running discovery on an interface `eth0` at 10.0.0.1/24, without its sockets.
pub struct Discovery {
    querier: Querier,
    known: KnownServices,
    tracker: Tracker,
    found: Found,
}

/// The actions of a discovery in one turn.
#[derive(Debug)]
pub struct Turn {
    pub published: Option<DeviceSet>,
    pub sent: Vec<Vec<u8>>,
    pub wake: Option<Duration>,
}

impl Discovery {
    /// Adds the interface.
    pub fn connect(&mut self, now: Duration) {
        let link = Link {
            index: LINK,
            name: "eth0".to_owned(),
            addresses: vec!["10.0.0.1/24".parse().expect("it is a network")],
            is_loopback: false,
        };
        self.querier.set_links(vec![link], &[], now);
    }

    /// Removes the interface.
    pub fn disconnect(&mut self, now: Duration) {
        self.querier.set_links(vec![], &[], now);
    }

    /// Processes a packet. Returns the steps that it took.
    pub fn receive(&mut self, source: SocketAddr, bytes: &[u8], now: Duration) -> usize {
        let packet = Packet {
            link: LINK,
            family: Family::V4,
            source,
            is_multicast: true,
            hop_limit: 255,
            bytes,
        };
        self.querier.receive(&packet, now)
    }

    pub fn turn(&mut self, now: Duration) -> Turn {
        let turn = self.querier.turn(now);
        for Change { name, service, .. } in turn.changes {
            match service {
                Some(service) => self.found.services.insert(name, service),
                None => self.found.services.remove(&name),
            };
        }
        self.found.leaves_out = self.querier.leaves_out(SUBSCRIPTION, now);
        for event in self.known.events(&self.found) {
            self.tracker.apply(event, now);
        }
        self.tracker.is_behind = self.known.is_behind();
        let shown = self.tracker.turn(now);
        Turn {
            published: shown.publish,
            sent: turn.send.into_iter().map(|packet| packet.bytes).collect(),
            wake: if self.known.is_behind() {
                Some(now)
            } else {
                [turn.wake, shown.wake].into_iter().flatten().min()
            },
        }
    }

    /// Returns the number of records in the cache, and the bytes of their names and data.
    pub fn records(&self) -> (usize, usize) {
        let counts = self.querier.counts();
        (counts.records, counts.bytes)
    }
}
