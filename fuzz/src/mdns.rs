//! Fuzzes the way from the bytes of mDNS packets to devices.
//!
//! An input is a line of `discoveryDetails`, then packets: a byte of time, a byte of their source, two bytes of length,
//! and the DNS message.
use crate::{bytes::Reader, device};
use hickory_proto::op::Message;
use petiole::{
    discovery::handlers::zeroconf::fuzzing::{
        Discovery, Filter, SERVICES_MAX, TXT_BYTES_MAX, TXT_KEYS_MAX,
    },
    model::device::{Device, DeviceSet},
};
use petiole_mdns::limits::{BYTES_MAX, PACKET_MAX, PACKET_STEPS_MAX, RECORDS_MAX};
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// The time before a packet, in this much a unit of its byte; the largest means that the interface goes and returns.
const TICK: Duration = Duration::from_millis(100);
const RECONNECTED: u8 = 255;
/// The longest life of a record, with some time for what follows its end.
const ALL_IS_OVER: Duration = Duration::from_secs(3 * 4500);
/// The number of properties that the handler adds to a device.
const OWN_PROPERTIES: usize = 6;
/// The name, the host (255 bytes, three for each that is no UTF-8), the address, the type, and all names.
const OWN_BYTES: usize = 2048;
/// A name is at most so long, and the first question of a packet is written however long it is.
const NAME_MAX: usize = 300;
/// The most steps of a packet: the last record may take as many as a host with as many services as the cache holds.
const STEPS_MAX: usize = PACKET_STEPS_MAX + 10_000;

pub fn run(input: &[u8]) {
    let mut input = Reader(input);
    let Some(filter) = input.line().and_then(Filter::new) else {
        return;
    };
    let mut world = World::new(&filter);
    while !input.0.is_empty() {
        let after = input.byte();
        if after == RECONNECTED {
            world.reconnect();
            continue;
        }
        world.pass(TICK * u32::from(after));
        let source = SocketAddr::from(([10, 0, 0, input.byte()], 5353));
        let len = usize::from(u16::from_be_bytes([input.byte(), input.byte()]));
        let steps = world.discovery.receive(source, input.bytes(len), world.now);
        assert!(steps <= STEPS_MAX, "{steps} steps for {len} bytes");
        world.turn();
    }
    world.pass(ALL_IS_OVER);
    assert_eq!(world.discovery.records(), (0, 0), "a record lives for ever");
    assert!(world.published.complete && world.published.devices.is_empty());
}

struct World<'a> {
    filter: &'a Filter,
    discovery: Discovery,
    now: Duration,
    published: DeviceSet,
}

impl<'a> World<'a> {
    fn new(filter: &'a Filter) -> Self {
        Self {
            filter,
            discovery: filter.discovery(),
            now: Duration::ZERO,
            published: DeviceSet::default(),
        }
    }

    fn reconnect(&mut self) {
        self.discovery.disconnect(self.now);
        self.turn();
        assert_eq!(self.discovery.records(), (0, 0));
        self.discovery.connect(self.now);
    }

    /// Takes every turn that is due until `time` has passed.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let wake = self.turn();
            match wake.filter(|wake| *wake <= end) {
                Some(wake) => self.now = wake,
                None => break,
            }
        }
        self.now = end;
        self.turn();
    }

    fn turn(&mut self) -> Option<Duration> {
        let turn = self.discovery.turn(self.now);
        assert!(turn.wake.is_none_or(|wake| wake > self.now), "a busy loop");
        for packet in &turn.sent {
            assert!(packet.len() <= PACKET_MAX + NAME_MAX);
            let query = Message::from_vec(packet).expect("what is sent is a DNS message");
            assert!(!query.queries.is_empty() || !query.answers.is_empty());
        }
        let (records, bytes) = self.discovery.records();
        assert!(records <= RECORDS_MAX && bytes <= BYTES_MAX);
        if let Some(set) = turn.published {
            assert!(set.devices.len() <= SERVICES_MAX);
            set.devices.values().for_each(|device| self.check(device));
            self.published = set;
        }
        turn.wake
    }

    fn check(&self, device: &Device) {
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
        assert!(
            !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback(),
            "{ip}"
        );
        let is_near = match ip {
            IpAddr::V4(v4) => v4.octets()[..3] == [10, 0, 0] || v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        assert!(
            is_near || self.filter.takes_from_afar(ip),
            "{ip} is not wanted"
        );
        assert_ne!(property("PORT"), "0");
    }
}
