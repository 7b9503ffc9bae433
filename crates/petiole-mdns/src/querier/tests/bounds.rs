//! Tests of a hostile LAN: ignored packets and limits.
use super::{
    super::super::{
        cache::{BYTES_MAX, RECORDS_MAX},
        trace::Ignored,
    },
    lan::Lan,
    responder::{Responder, USUAL},
    *,
};
use proptest::{collection::vec, prelude::*};
use std::net::IpAddr;

fn querier() -> Querier {
    let mut querier = Querier::new(1);
    querier.set_links(vec![eth()], &[], ms(0));
    querier.subscribe(1, wanted(TYPE), ms(0));
    querier
}

fn from<'a>(source: &str, is_multicast: bool, bytes: &'a [u8]) -> Packet<'a> {
    Packet {
        link: ETH,
        family: Family::V4,
        source: source.parse().unwrap(),
        is_multicast,
        hop_limit: 255,
        bytes,
    }
}

#[test]
fn a_response_from_another_port_or_from_afar_is_ignored() {
    for (source, is_multicast, reason) in [
        ("10.0.0.7:40000", true, Some(Ignored::SourcePort)),
        ("10.0.0.7:40000", false, Some(Ignored::SourcePort)),
        ("192.0.2.7:5353", false, Some(Ignored::OffLink)),
        // No router forwards packets to the group.
        ("192.0.2.7:5353", true, None),
        ("10.0.0.7:5353", false, None),
    ] {
        let mut querier = querier();
        querier.turn(ms(0));
        querier.turn(ms(120));
        querier.receive(
            &from(source, is_multicast, &response(&service("a"))),
            ms(120),
        );
        let ignored: Vec<Ignored> = querier.counts().ignored.into_keys().collect();
        assert_eq!(ignored, Vec::from_iter(reason), "{source}");
        let changes = querier.turn(ms(120)).changes;
        assert_eq!(changes.len(), usize::from(reason.is_none()), "{source}");
    }
}

#[test]
fn subscriptions_to_one_type_have_one_copy_of_a_service() {
    let mut querier = querier();
    querier.subscribe(2, wanted(TYPE), ms(0));
    querier.turn(ms(0));
    querier.turn(ms(120));
    let bytes = response(&service("cam"));
    querier.receive(&from("10.0.0.7:5353", true, &bytes), ms(120));
    let found = querier.turn(ms(120)).changes.into_iter();
    let found: Vec<_> = found.filter_map(|change| change.service).collect();
    let [first, second] = &found[..] else {
        panic!("{found:?}");
    };
    assert!(Arc::ptr_eq(first, second));
}

#[test]
fn records_that_nobody_asked_for_are_not_kept() {
    let mut querier = querier();
    for packet in 0..1500_u32 {
        let unasked: Vec<Record> = (0..200)
            .map(|n| {
                let host = named(&format!("h{packet}-{n}.local"));
                record(&host, u32::MAX, Data::A((packet * 200 + n).into()))
            })
            .collect();
        let now = ms(2 * u64::from(packet));
        querier.receive(&from("10.0.0.66:5353", true, &response(&unasked)), now);
        querier.turn(now);
    }
    let counts = querier.counts();
    let ignored = counts.ignored.len();
    assert_eq!((counts.received, ignored), (1500, 0), "all are read");
    assert_eq!((counts.records, counts.refused), (0, 0));
}

#[test]
fn a_flood_of_services_leaves_room_for_others_and_ends_none() {
    let mut lan = Lan::new(vec![Responder::new(USUAL, 7, &["camera"])]);
    lan.run(ms(5000));
    for n in 0..8000 {
        let label = format!("flood {n}");
        let mut records = service(&label);
        records.iter_mut().for_each(|record| record.ttl = u32::MAX);
        let source = SocketAddr::from(([10, 0, 0, 66], 5353));
        lan.send(source, true, response(&records), 1);
        lan.run(lan.now + ms(2));
    }
    lan.responders.push(Responder::new(USUAL, 8, &["printer"]));
    lan.announce(1, None);
    lan.run(lan.now + ms(60_000));
    let there = ["camera", "printer"].map(|label| lan.found.contains_key(&instance(label)));
    assert_eq!(there, [true, true]);
    let went = lan
        .log
        .iter()
        .filter(|(_, label, is_there)| label == "camera" && !is_there);
    assert_eq!(went.count(), 0);
    let counts = lan.querier.counts();
    assert!(counts.records <= RECORDS_MAX && counts.bytes <= BYTES_MAX);
    let why = LeftOut::Share([10, 0, 0, 66].into());
    assert_eq!(lan.querier.leaves_out(1, lan.now), Some(why));
}

#[test]
fn addresses_that_no_neighbour_has_are_never_reported() {
    let mut querier = querier();
    let mut records = service("a");
    records.truncate(3);
    for (n, ip) in [
        [127, 0, 0, 1],
        [255, 255, 255, 255],
        [240, 0, 0, 1],
        [0, 0, 0, 0],
        [224, 0, 0, 251],
        [192, 0, 2, 1],
        [10, 0, 0, 9],
        [10, 0, 0, 8],
    ]
    .into_iter()
    .enumerate()
    {
        let address = record(&named("h.local"), 120, Data::A(ip.into()));
        let mut records = records.clone();
        records.push(Record {
            flush: false,
            ..address
        });
        let now = ms(u64::try_from(n).unwrap());
        querier.receive(&from("10.0.0.66:5353", true, &response(&records)), now);
    }
    let changes = querier.turn(ms(100)).changes;
    let service = changes[0].service.as_ref().unwrap();
    let found: Vec<(String, bool)> = service
        .addresses
        .iter()
        .map(|address| (address.ip.to_string(), address.is_on_link))
        .collect();
    // The address that has been known for longest comes first, not the lowest.
    let expected = [("192.0.2.1", false), ("10.0.0.9", true), ("10.0.0.8", true)];
    assert_eq!(found, expected.map(|(ip, on)| (ip.to_owned(), on)));
}

/// Returns whether the address of a service that `source` announces is on the link; `None` if it is never used.
fn is_on_link(addresses: &[&str], source: &str, ip: &str) -> Option<bool> {
    let mut querier = Querier::new(1);
    querier.set_links(vec![link(ETH, "eth0", addresses)], &[], ms(0));
    querier.subscribe(1, wanted(TYPE), ms(0));
    let mut records = service("a");
    records[3].data = match ip.parse().unwrap() {
        IpAddr::V4(v4) => Data::A(v4),
        IpAddr::V6(v6) => Data::Aaaa(v6),
    };
    let source = format!("{source}:5353");
    querier.receive(&from(&source, true, &response(&records)), ms(10));
    let changes = querier.turn(ms(10)).changes;
    let service = changes.first().and_then(|change| change.service.as_ref());
    service.map(|service| service.addresses[0].is_on_link)
}

#[test]
fn no_address_that_is_none_of_another_host_is_ever_used() {
    for ip in [
        "::1",
        "::ffff:127.0.0.1",
        "0.1.2.3",
        "::",
        "::ffff:0.0.0.0",
        "::ffff:224.0.0.251",
        "ff02::fb",
        "::ffff:255.255.255.255",
    ] {
        let addresses = ["10.0.0.1/24", "fd00::1/64"];
        assert_eq!(is_on_link(&addresses, "10.0.0.66", ip), None, "{ip}");
    }
}

#[test]
fn a_link_local_address_is_on_a_link_that_has_one_too() {
    for (own, expected) in [("10.0.0.1/24", false), ("169.254.7.7/16", true)] {
        let found = is_on_link(&[own], "169.254.3.4", "169.254.3.4");
        assert_eq!(found, Some(expected), "{own}");
    }
    let v6 = is_on_link(&["10.0.0.1/24"], "10.0.0.66", "fe80::66");
    assert_eq!(v6, Some(true));
}

#[test]
fn no_other_host_announces_an_address_of_an_interface_that_nobody_browses() {
    let mut querier = Querier::new(1);
    let unused = [link(3, "cni0", &["10.42.0.1/24"])];
    querier.set_links(vec![eth()], &unused, ms(0));
    querier.subscribe(1, wanted(TYPE), ms(0));
    let mut records = service("a");
    records[3].data = Data::A([10, 42, 0, 1].into());
    querier.receive(&from("10.0.0.66:5353", true, &response(&records)), ms(10));
    assert!(querier.turn(ms(10)).changes.is_empty());
}

#[test]
fn no_other_host_announces_an_address_of_this_machine() {
    let addresses = ["10.0.0.1/24", "fd00::1/64"];
    for (source, expected) in [("10.0.0.66", None), ("10.0.0.1", Some(true))] {
        for own in ["10.0.0.1", "fd00::1"] {
            assert_eq!(is_on_link(&addresses, source, own), expected, "{own}");
        }
    }
}

proptest! {
    #[test]
    fn the_order_the_loss_and_the_doubling_of_packets_end_in_the_right_set(
        order in vec((0..6_usize, 0..3_u8, 0..400_u64), 0..60),
    ) {
        let labels = ["a", "b", "c.d", "E", "f", "g"];
        let responders = labels.iter().zip(10..).map(|(label, last)| Responder::new(super::responder::KINDS[usize::from(last) % 12], last, &[label]));
        let mut lan = Lan::new(responders.collect());
        for (n, what, wait) in order {
            match what {
                0 => lan.announce(n, None),
                1 => {
                    lan.announce(n, Some(0));
                    lan.responders[n].is_alive = false;
                }
                _ => lan.responders[n].is_alive ^= true,
            }
            lan.run(lan.now + ms(wait));
        }
        for responder in 0..labels.len() {
            if lan.responders[responder].is_alive {
                lan.announce(responder, None);
            }
        }
        lan.run(lan.now + ms(60_000));
        let there: Vec<&Name> = lan.found.keys().collect();
        let alive = lan.responders.iter().filter(|r| r.is_alive);
        let mut expected: Vec<&Name> = alive.flat_map(|r| &r.services).collect();
        expected.sort();
        prop_assert_eq!(there, expected);
    }

    #[test]
    fn no_packet_makes_it_panic(packets in vec((vec(any::<u8>(), 0..300), 0..3000_u64), 0..20)) {
        let (mut querier, mut now) = (querier(), ms(0));
        for (mut bytes, wait) in packets {
            if bytes.len() > 12 {
                bytes[2..6].copy_from_slice(&[0x84, 0, 0, 0]);
                bytes[6] = 0;
            }
            querier.receive(&from("10.0.0.66:5353", true, &bytes), now);
            querier.turn(now);
            now += ms(wait);
        }
    }
}
