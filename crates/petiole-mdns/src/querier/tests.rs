//! Tests of conversations between a querier and other hosts, in simulated time.
mod attacks;
mod bounds;
mod herd;
mod hosts;
mod lan;
mod others;
mod quiet;
mod responder;
mod rfc;
mod traffic;
mod worst;

use super::{
    super::{
        interfaces::Interfaces,
        link::{Family, Link},
        name::Name,
        record::{Data, Kind, Record},
    },
    *,
};
use crate_names::*;
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// Short functions for names, records and packets.
mod crate_names {
    use super::*;

    pub(super) const ETH: u32 = 2;
    pub(super) const TYPE: &str = "_t._tcp.local";

    pub(super) fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    pub(super) fn named(text: &str) -> Name {
        Name::from_dotted(text).unwrap()
    }

    pub(super) fn instance(label: &str) -> Name {
        let labels = [label.as_bytes(), b"_t", b"_tcp", b"local"];
        Name::from_labels(labels).unwrap()
    }

    pub(super) fn wanted(kind: &str) -> Wanted {
        Wanted {
            browsed: named(kind),
            base: named(kind),
            interfaces: Interfaces::default(),
            verify: Some(Duration::from_secs(10)),
        }
    }

    pub(super) fn unverified(kind: &str) -> Wanted {
        Wanted {
            verify: None,
            ..wanted(kind)
        }
    }

    pub(super) fn link(index: u32, name: &str, addresses: &[&str]) -> Link {
        Link {
            index,
            name: name.into(),
            addresses: addresses.iter().map(|net| net.parse().unwrap()).collect(),
            is_loopback: name == "lo",
        }
    }

    pub(super) fn eth() -> Link {
        link(ETH, "eth0", &["10.0.0.1/24"])
    }

    pub(super) fn record(name: &Name, ttl: u32, data: Data) -> Record {
        Record {
            name: name.clone(),
            ttl,
            flush: data.kind() != Kind::Ptr,
            data,
        }
    }

    pub(super) fn srv(target: &str, port: u16) -> Data {
        Data::Srv {
            target: named(target),
            port,
            priority: 0,
            weight: 0,
        }
    }

    /// Returns all records of a service of the host `h.local` at 10.0.0.7.
    pub(super) fn service(label: &str) -> Vec<Record> {
        let name = instance(label);
        vec![
            record(&named(TYPE), 4500, Data::Ptr(name.clone())),
            record(&name, 120, srv("h.local", 80)),
            record(&name, 4500, Data::Txt(Arc::from(*b"\0"))),
            record(&named("h.local"), 120, Data::A([10, 0, 0, 7].into())),
        ]
    }

    pub(super) fn goodbye(label: &str) -> Vec<Record> {
        let pointer = Data::Ptr(instance(label));
        vec![record(&named(TYPE), 0, pointer)]
    }
}

/// Writes a message in the simplest form: names without compression.
fn encode(flags: u16, questions: &[(Name, u16, u16)], records: &[Record]) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    let count = |n: usize| u16::try_from(n).unwrap();
    for number in [flags, count(questions.len()), count(records.len()), 0, 0] {
        bytes.extend(number.to_be_bytes());
    }
    for (name, kind, class) in questions {
        write_name(&mut bytes, name);
        bytes.extend(kind.to_be_bytes());
        bytes.extend(class.to_be_bytes());
    }
    for record in records {
        write_name(&mut bytes, &record.name);
        bytes.extend(record.data.kind().code().to_be_bytes());
        bytes.extend([if record.flush { 0x80 } else { 0 }, 1]);
        bytes.extend(record.ttl.to_be_bytes());
        let data = rdata(record);
        bytes.extend(count(data.len()).to_be_bytes());
        bytes.extend(data);
    }
    bytes
}

fn response(records: &[Record]) -> Vec<u8> {
    encode(0x8400, &[], records)
}

fn write_name(bytes: &mut Vec<u8>, name: &Name) {
    bytes.extend(name.labels().flat_map(|label| {
        let length = u8::try_from(label.len()).unwrap();
        std::iter::once(length).chain(label.iter().copied())
    }));
    bytes.push(0);
}

fn rdata(record: &Record) -> Vec<u8> {
    let mut data = vec![];
    match &record.data {
        Data::A(ip) => data.extend(ip.octets()),
        Data::Aaaa(ip) => data.extend(ip.octets()),
        Data::Ptr(target) => write_name(&mut data, target),
        Data::Srv {
            target,
            port,
            priority,
            weight,
        } => {
            for number in [priority, weight, port] {
                data.extend(number.to_be_bytes());
            }
            write_name(&mut data, target);
        }
        Data::Txt(txt) => data.extend(txt.iter()),
        Data::Nsec(kinds) => {
            write_name(&mut data, &record.name);
            let mut bits = [0_u8; 5];
            for code in kinds.iter().map(|kind| kind.code()) {
                bits[usize::from(code / 8)] |= 0x80 >> (code % 8);
            }
            data.extend([0, 5]);
            data.extend(bits);
        }
    }
    data
}
