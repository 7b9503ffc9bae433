//! From the bytes of mDNS packets to devices.
//!
//! An input is a line of `discoveryDetails`, then packets: a byte of time, two bytes of length, and the DNS message.
use crate::{bytes::Reader, device};
use hickory_proto::{
    op::Message,
    rr::{Name, RData, Record, rdata::TXT},
};
use petiole::{
    discovery::handlers::zeroconf::fuzzing::{
        Discovery, Event, Filter, SERVICES_MAX, Service, TXT_BYTES_MAX, TXT_KEYS_MAX,
    },
    model::device::{Device, DeviceSet},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

/// The time before a packet, in this much a unit of its byte; the largest means that the browse was lost.
const TICK: Duration = Duration::from_millis(100);
const LAPSED: u8 = 255;
/// Long enough for everything that waits to be published.
const AT_REST: Duration = Duration::from_secs(120);
/// What the handler says of a device by itself.
const OWN_PROPERTIES: usize = 6;
/// The name, the host (255 bytes, three for each that is no UTF-8), the address, the type, and all names.
const OWN_BYTES: usize = 2048;

pub fn run(input: &[u8]) {
    let mut input = Reader(input);
    let Some(filter) = input.line().and_then(Filter::new) else {
        return;
    };
    let mut world = World::new(&filter);
    while !input.0.is_empty() {
        let after = input.byte();
        if after == LAPSED {
            world.lapse();
            continue;
        }
        let len = usize::from(u16::from_be_bytes([input.byte(), input.byte()]));
        world.pass(TICK * u32::from(after));
        if let Ok(message) = Message::from_vec(input.bytes(len)) {
            world.hear(&message);
        }
    }
    world.rest();
}

/// One discovery, and what it was told.
struct World<'a> {
    filter: &'a Filter,
    discovery: Discovery,
    now: Duration,
    records: Records,
    /// The names of the services that are there and wanted.
    wanted: BTreeSet<String>,
    is_lossless: bool,
    published: DeviceSet,
}

impl<'a> World<'a> {
    fn new(filter: &'a Filter) -> Self {
        Self {
            filter,
            discovery: filter.discovery(),
            now: Duration::ZERO,
            records: Records::default(),
            wanted: BTreeSet::new(),
            is_lossless: true,
            published: DeviceSet::default(),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        let turn = self.discovery.turn(self.now);
        assert!(turn.wake.is_none_or(|wake| wake > self.now), "a busy loop");
        if let Some(set) = turn.published {
            assert!(set.devices.len() <= SERVICES_MAX);
            self.published = set;
        }
    }

    fn hear(&mut self, message: &Message) {
        for fullname in self.records.take(message) {
            let event = match self.records.service(&fullname) {
                None => {
                    self.wanted.remove(&fullname);
                    Event::Removed(fullname)
                }
                Some(service) => {
                    if let Some(device) = self.filter.device(&service, None) {
                        self.check(&device, &service);
                        self.wanted.insert(fullname);
                    } else {
                        self.wanted.remove(&fullname);
                    }
                    Event::Resolved(service)
                }
            };
            self.discovery.apply(event, self.now);
        }
    }

    fn lapse(&mut self) {
        self.is_lossless = false;
        self.discovery.apply(Event::Lapsed, self.now);
    }

    fn check(&self, device: &Device, service: &Service) {
        device::check(
            device,
            TXT_KEYS_MAX + OWN_PROPERTIES,
            TXT_BYTES_MAX + OWN_BYTES,
        );
        assert!(device.id.as_str().len() <= 255);
        let property = |key: &str| &device.properties[&format!("AKRI_ZEROCONF_DEVICE_{key}")];
        let address = property("ADDR");
        let ip = address
            .split_once('%')
            .map_or(address.as_str(), |(ip, _)| ip);
        let ip: IpAddr = ip.parse().expect("ADDR is an address");
        assert!(!ip.is_unspecified() && !ip.is_multicast(), "{ip}");
        assert!(self.filter.has_address(ip), "{ip} is not wanted");
        assert_eq!(*property("PORT"), service.port.to_string());
        assert_ne!(service.port, 0);
        // What was said before changes nothing as long as it is still true.
        assert_eq!(
            self.filter.device(service, Some(device)).as_ref(),
            Some(device)
        );
    }

    /// Nothing more is heard: what is published is what there is.
    fn rest(&mut self) {
        for _ in 0..8 {
            self.pass(AT_REST);
        }
        assert!(self.published.complete);
        let published = self
            .published
            .devices
            .keys()
            .map(|id| id.as_str().to_owned());
        let published: BTreeSet<String> = published.collect();
        assert!(
            published.is_subset(&self.wanted),
            "a device that is not there is published"
        );
        if self.is_lossless && self.wanted.len() <= SERVICES_MAX {
            assert_eq!(published, self.wanted);
        }
    }
}

/// A key of a TXT record and, unless it stands alone, its value.
type Property = (String, Option<Vec<u8>>);

/// The records that were heard and not taken back.
#[derive(Default)]
struct Records {
    services: BTreeMap<String, (String, u16)>,
    txt: BTreeMap<String, Vec<Property>>,
    addresses: BTreeMap<String, BTreeSet<IpAddr>>,
}

impl Records {
    /// The full names of the services that may be others now.
    fn take(&mut self, message: &Message) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        for record in message.answers.iter().chain(&message.additionals) {
            let name = text(&record.name);
            self.take_record(&name, record);
            let of_host = self.services.iter().filter(|(_, (host, _))| *host == name);
            changed.extend(of_host.map(|(fullname, _)| fullname.clone()));
            changed.insert(name);
        }
        changed
    }

    /// RFC 6762 10.1: a TTL of 0 takes a record back.
    fn take_record(&mut self, name: &str, record: &Record) {
        let name = name.to_owned();
        let is_there = record.ttl > 0;
        match &record.data {
            RData::SRV(srv) if is_there => {
                self.services.insert(name, (text(&srv.target), srv.port));
            }
            RData::SRV(_) => drop(self.services.remove(&name)),
            RData::TXT(txt) => drop(self.txt.insert(name, properties(txt))),
            RData::A(a) => self.take_address(name, IpAddr::V4(a.0), is_there),
            RData::AAAA(aaaa) => self.take_address(name, IpAddr::V6(aaaa.0), is_there),
            _ => {}
        }
    }

    fn take_address(&mut self, host: String, ip: IpAddr, is_there: bool) {
        let addresses = self.addresses.entry(host).or_default();
        if is_there {
            addresses.insert(ip);
        } else {
            addresses.remove(&ip);
        }
    }

    fn service(&self, fullname: &str) -> Option<Service> {
        let (host, port) = self.services.get(fullname)?;
        let addresses = self.addresses.get(host).into_iter().flatten();
        Some(Service {
            fullname: fullname.to_owned(),
            host: host.clone(),
            port: *port,
            addresses: addresses.map(|ip| (*ip, "eth0".to_owned())).collect(),
            txt: self.txt.get(fullname).cloned().unwrap_or_default(),
        })
    }
}

/// Labels as they are, a dot after each: a dot in a label is not escaped.
fn text(name: &Name) -> String {
    let labels = name
        .iter()
        .map(|label| String::from_utf8_lossy(label) + ".");
    labels.collect()
}

/// RFC 6763 6.4: `key=value`, or a key alone.
fn properties(txt: &TXT) -> Vec<Property> {
    let property = |string: &[u8]| {
        let equals = string.iter().position(|b| *b == b'=');
        let (key, value) = match equals {
            Some(at) => (&string[..at], Some(string[at + 1..].to_vec())),
            None => (string, None),
        };
        (String::from_utf8_lossy(key).into_owned(), value)
    };
    txt.txt_data.iter().map(|string| property(string)).collect()
}
