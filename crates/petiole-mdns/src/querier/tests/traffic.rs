//! Tests of floods: packets that count for nothing, and hosts that are heard beside them.
use super::{super::super::trace::Ignored, *};
use std::{collections::BTreeSet, net::IpAddr};

const CAMERA: &str = "10.0.0.7";

/// A querier that has found the service `cam` of the host 10.0.0.7, and prefers it.
fn querier() -> Querier {
    let mut querier = Querier::new(1);
    querier.set_links(
        vec![link(ETH, "eth0", &["10.0.0.1/8", "fe80::1/64"])],
        &[],
        ms(0),
    );
    querier.subscribe(1, wanted(TYPE), ms(0));
    let preferred = BTreeSet::from(["cam._t._tcp.local.".to_owned()]);
    querier.prefer(preferred.into());
    querier.turn(ms(0));
    send(&mut querier, CAMERA, &response(&service("cam")), ms(10));
    querier.turn(ms(10));
    querier
}

fn packet(source: &str, bytes: &'static [u8]) -> Packet<'static> {
    let ip: IpAddr = source.parse().unwrap();
    Packet {
        link: ETH,
        family: Family::of(ip),
        source: (ip, 5353).into(),
        is_multicast: true,
        hop_limit: 255,
        bytes,
    }
}

fn send(querier: &mut Querier, source: &str, bytes: &[u8], now: Duration) {
    querier.receive(
        &Packet {
            bytes,
            ..packet(source, b"")
        },
        now,
    );
}

fn too_many(querier: &Querier) -> usize {
    let ignored = querier.counts().ignored;
    ignored.get(&Ignored::TooMany).copied().unwrap_or_default()
}

/// Sends 20,000 packets in a second from 2048 sources.
fn flood(querier: &mut Querier, mut packet: Packet<'_>, from: Duration) {
    for n in 0..20_000_u64 {
        let number = n % 2048;
        let [.., high, low] = number.to_be_bytes();
        let ip: IpAddr = match packet.source.ip() {
            IpAddr::V4(v4) => {
                let [a, b, ..] = v4.octets();
                [a, b, high, low].into()
            }
            IpAddr::V6(_) => [0xfe80, 0, 0, 0, 0, 0, 7, u16::try_from(number).unwrap()].into(),
        };
        packet.source.set_ip(ip);
        querier.receive(&packet, from + Duration::from_micros(n * 50));
    }
}

/// A response with addresses of hosts that nobody asked for.
fn addresses(count: u8) -> Vec<u8> {
    let address = |n: u8| {
        record(
            &named(&format!("h{n}.local")),
            120,
            Data::A([10, 0, 1, n].into()),
        )
    };
    let records: Vec<Record> = (0..count).map(address).collect();
    response(&records)
}

#[test]
fn packets_of_a_wrong_form_link_or_port_count_for_nothing() {
    let off_link = packet("192.0.2.7", b"\0\0\x84\0\0\0\0\0\0\0\0\0");
    let near = packet("10.9.0.7", off_link.bytes);
    let unicast = |packet| Packet {
        is_multicast: false,
        ..packet
    };
    let from_another_port = Packet {
        source: "10.9.0.7:4000".parse().unwrap(),
        ..near
    };
    let wrong = [
        ("short", packet("10.9.0.7", b"?"), Ignored::Malformed),
        (
            "rcode 3",
            packet("10.9.0.7", b"\0\0\x84\x03\0\0\0\0\0\0\0\0"),
            Ignored::Malformed,
        ),
        (
            "opcode",
            packet("10.9.0.7", b"\0\0\x8c\0\0\0\0\0\0\0\0\0"),
            Ignored::Malformed,
        ),
        (
            "lying",
            packet("10.9.0.7", b"\0\0\x84\0\0\0\xff\0\0\0\0\0"),
            Ignored::Malformed,
        ),
        ("off link", unicast(off_link), Ignored::OffLink),
        ("port", from_another_port, Ignored::SourcePort),
        (
            "query",
            unicast(packet("10.9.0.7", &[0; 12])),
            Ignored::OtherQuery,
        ),
        ("unasked", unicast(near), Ignored::Unasked),
    ];
    for (what, packet, reason) in wrong {
        let mut querier = querier();
        flood(&mut querier, packet, ms(7000));
        let expected = BTreeMap::from([(reason, 20_000)]);
        assert_eq!(querier.counts().ignored, expected, "{what}");
        send(
            &mut querier,
            "10.0.0.8",
            &response(&service("new")),
            ms(8000),
        );
        assert_eq!(querier.turn(ms(8000)).changes.len(), 1, "{what}");
    }
}

#[test]
fn hosts_of_preferred_services_and_hosts_that_say_little_are_heard_in_a_flood() {
    for count in [8, 50] {
        let (mut querier, flooding) = (querier(), addresses(count));
        for second in 1..5_u64 {
            let now = ms(second * 1000);
            let packet = Packet {
                bytes: &flooding,
                ..packet("10.9.0.7", b"")
            };
            flood(&mut querier, packet, now);
            let ignored = too_many(&querier);
            assert!(second < 4 || ignored > 10_000, "{ignored} are ignored");
            let now = now + ms(999);
            send(&mut querier, CAMERA, &response(&service("cam")), now);
            let new = format!("10.0.1.{second}");
            send(&mut querier, &new, &response(&service("new")), now);
            send(&mut querier, "fe80::8", &response(&service("other")), now);
            assert_eq!(too_many(&querier), ignored, "in second {second}");
        }
    }
}

#[test]
fn a_host_is_heard_beside_two_thousand_packets_a_second_in_its_name() {
    let (mut querier, forged) = (querier(), response(&service("cam")));
    for n in 0..20_000_u64 {
        let now = ms(1000) + Duration::from_micros(n * 400);
        send(&mut querier, CAMERA, &forged, now);
    }
    assert_eq!(too_many(&querier), 0);
}

#[test]
fn costly_packets_in_the_name_of_a_host_hide_that_host_and_no_other() {
    let (mut querier, bomb) = (querier(), super::worst::question_bomb(256, 500));
    let preferred = ["cam", "door"].map(|name| format!("{name}._t._tcp.local."));
    querier.prefer(BTreeSet::from(preferred).into());
    send(
        &mut querier,
        "10.0.0.8",
        &response(&service("door")),
        ms(20),
    );
    querier.turn(ms(20));
    let mut hidden = 0;
    for n in 0..20_000_u64 {
        let now = ms(1000 + n);
        send(&mut querier, CAMERA, &bomb, now);
        // Two responses in a second are no little work any more.
        if n % 1000 == 500 {
            let ignored = too_many(&querier);
            send(&mut querier, "10.0.0.8", &response(&service("door")), now);
            assert_eq!(too_many(&querier), ignored, "after {n} ms");
            send(&mut querier, CAMERA, &response(&service("cam")), now);
            hidden += too_many(&querier) - ignored;
        }
    }
    // docs/security.md says so, at "What remains".
    assert!((10..=20).contains(&hidden), "{hidden} of 20 packets");
}

#[test]
fn a_flood_costs_a_bounded_number_of_steps() {
    let (mut querier, flooding) = (querier(), addresses(50));
    let mut steps = 0;
    for n in 0..60_000_u64 {
        let last = u8::try_from(n % 200).unwrap();
        let source = format!("10.9.0.{last}");
        let packet = Packet {
            bytes: &flooding,
            ..packet(&source, b"")
        };
        steps += querier.receive(&packet, Duration::from_micros(n * 50));
    }
    // A full purse, what it gets in three seconds, and what it costs to ignore a packet.
    let most = (4 + 3) * 500_000 + 60_000 * PACKET_STEPS;
    assert!(steps <= most, "{steps}");
}

#[test]
fn a_response_to_this_host_alone_is_accepted_after_a_question_and_costs_others_nothing() {
    let mut querier = querier();
    let asked = |querier: &mut Querier, from: u64| {
        let mut times = (from..).filter(|n| !querier.turn(ms(*n)).send.is_empty());
        times.next().unwrap()
    };
    let at = asked(&mut querier, 11);
    let answer = response(&service("quiet"));
    let unicast = |hop_limit| Packet {
        is_multicast: false,
        hop_limit,
        bytes: &answer,
        ..packet("10.0.0.9", b"")
    };
    querier.receive(&unicast(64), ms(at + 4000));
    assert_eq!(querier.counts().ignored, BTreeMap::new());
    // Somebody far away may send in its name.
    let flooding = addresses(50);
    for n in 0..20_000_u64 {
        let forged = Packet {
            bytes: &flooding,
            ..unicast(64)
        };
        querier.receive(&forged, ms(at + 4000) + Duration::from_micros(n * 40));
    }
    let ignored = too_many(&querier);
    assert!(ignored > 10_000, "{ignored}");
    querier.receive(&unicast(255), ms(at + 4800));
    querier.receive(
        &Packet {
            is_multicast: true,
            ..unicast(64)
        },
        ms(at + 4800),
    );
    assert_eq!(too_many(&querier), ignored);
}
