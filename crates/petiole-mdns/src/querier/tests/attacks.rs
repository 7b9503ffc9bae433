//! Tests of hosts that say goodbye for others, and that take more than their share.
use super::{
    super::super::message::Message,
    lan::Lan,
    responder::{Habits, KINDS, Responder, USUAL},
    *,
};
use std::collections::BTreeSet;

const EVIL: [u8; 4] = [10, 0, 0, 66];

impl Lan {
    /// Sends a packet in the name of the hostile host.
    fn attack(&mut self, records: &[Record]) {
        self.send(SocketAddr::from((EVIL, 5353)), true, response(records), 1);
    }
}

#[test]
fn a_forged_goodbye_of_a_pointer_ends_no_service_of_any_kind_of_responder() {
    for (n, habits) in KINDS.into_iter().enumerate() {
        let mut lan = Lan::with(habits, "a");
        for forged in 0..20 {
            lan.run(ms(260_000 + forged * 7137));
            lan.attack(&goodbye("a"));
        }
        lan.run(lan.now + ms(5000));
        assert_eq!(lan.losses_since(ms(0)), 0, "kind {n}");
    }
}

#[test]
fn a_goodbye_whose_question_was_lost_is_healed_by_the_search() {
    let mut lan = Lan::with(USUAL, "a");
    lan.run(ms(260_000));
    lan.attack(&goodbye("a"));
    lan.run(lan.now + ms(1));
    lan.is_down = true;
    lan.until("a", false);
    // A second one does not end the search.
    lan.is_down = false;
    lan.attack(&goodbye("a"));
    let took = lan.until("a", true);
    assert!(took <= ms(1700), "{took:?}");
}

#[test]
fn a_responder_that_returns_without_an_announcement_is_found_within_two_seconds() {
    let mut lan = Lan::with(USUAL, "a");
    lan.run(ms(70_000));
    lan.announce(0, Some(0));
    lan.responders[0].is_alive = false;
    lan.until("a", false);
    lan.run(lan.now + ms(60_000));
    lan.responders[0].is_alive = true;
    let took = lan.until("a", true);
    assert!(took <= ms(1700), "{took:?}");
}

#[test]
fn of_two_publishers_of_a_name_one_says_goodbye_and_the_service_stays() {
    for additionals in [true, false] {
        let habits = Habits {
            additionals,
            ..USUAL
        };
        let publishers = [7, 8].map(|last| Responder::new(habits, last, &["a"]));
        let mut lan = Lan::new(publishers.into());
        lan.run(ms(70_000));
        lan.announce(1, Some(0));
        lan.responders[1].is_alive = false;
        lan.run(lan.now + ms(5000));
        assert_eq!(
            lan.losses_since(ms(0)),
            0,
            "additional records: {additionals}"
        );
        let host = lan.found[&instance("a")].host.to_string();
        assert_eq!(host, "host-7.local", "additional records: {additionals}");
        // When the other one goes, too, the service is gone.
        lan.announce(0, Some(0));
        lan.responders[0].is_alive = false;
        assert!(lan.until("a", false) <= ms(1200));
    }
}

#[test]
fn a_service_that_moves_to_a_host_without_addresses_is_gone_after_three_questions_for_them() {
    let mut lan = Lan::with(USUAL, "a");
    lan.run(ms(15_000));
    lan.responders[0].is_alive = false;
    lan.attack(&[record(&instance("a"), 120, srv("nowhere.local", 1))]);
    let took = lan.until("a", false);
    assert!((ms(3000)..ms(3200)).contains(&took), "{took:?}");
}

#[test]
fn a_service_that_leaves_a_subtype_stays_in_its_type() {
    let subtype = "_s._sub._t._tcp.local";
    let mut querier = Querier::new(3);
    querier.set_links(vec![eth()], &[], ms(0));
    querier.subscribe(1, unverified(TYPE), ms(0));
    let of_subtype = Wanted {
        browsed: named(subtype),
        ..unverified(TYPE)
    };
    querier.subscribe(2, of_subtype, ms(0));
    let pointer = |ttl| record(&named(subtype), ttl, Data::Ptr(instance("a")));
    let mut records = service("a");
    records.push(pointer(4500));
    let mut tell = |records: &[Record], now| {
        let packet = Packet {
            link: ETH,
            family: Family::V4,
            source: "10.0.0.7:5353".parse().unwrap(),
            is_multicast: true,
            hop_limit: 255,
            bytes: &response(records),
        };
        querier.receive(&packet, ms(now));
        let changes = (0..40).flat_map(|n| querier.turn(ms(now + n * 50)).changes);
        let changes = changes.map(|change| (change.subscription, change.service.is_some()));
        changes.collect::<Vec<_>>()
    };
    assert_eq!(tell(&records, 0), [(1, true), (2, true)]);
    assert_eq!(tell(&[pointer(0)], 50_000), [(2, false)]);
    // An answer of the service does not bring it back.
    assert_eq!(tell(&service("a")[1..], 53_000), []);
    assert_eq!(tell(&[pointer(4500)], 56_000), [(2, true)]);
}

/// Returns records of hostile services with large TXT records, and of the fill that takes what is left.
fn bytes_attack(has_pointers: bool) -> Vec<Vec<Record>> {
    let sizes = [(350, 8800), (1500, 1000), (3000, 255), (3000, 1)];
    let mut packets = vec![];
    for (count, bytes) in sizes {
        for n in 0..count {
            let name = instance(&format!("!{bytes}-{n}"));
            let string = [&[255][..], &[b'x'; 255]].concat();
            let txt = match bytes {
                1 => vec![0],
                bytes => string.repeat(bytes / 255),
            };
            let pointer = record(&named(TYPE), 4500, Data::Ptr(name.clone()));
            let txt = record(&name, 4500, Data::Txt(txt.into()));
            packets.push(if has_pointers {
                vec![pointer, txt]
            } else {
                vec![txt]
            });
        }
    }
    packets
}

#[test]
fn beside_large_records_and_a_fill_of_the_rest_a_new_device_is_found_within_ten_seconds() {
    for has_pointers in [true, false] {
        let mut lan = Lan::new(vec![Responder::new(USUAL, 7, &["camera"])]);
        lan.run(ms(5000));
        for records in bytes_attack(has_pointers) {
            lan.attack(&records);
            lan.run(lan.now + ms(1));
        }
        lan.responders.push(Responder::new(USUAL, 8, &["new"]));
        lan.announce(1, None);
        let took = lan.until("new", true);
        assert!(took <= ms(10_000), "{took:?}");
        lan.run(lan.now + ms(60_000));
        assert!(lan.found.contains_key(&instance("new")));
        assert_eq!(
            lan.found[&instance("camera")].txt,
            lan.found[&instance("new")].txt
        );
        let camera_lost = lan
            .log
            .iter()
            .any(|(_, label, is)| label == "camera" && !is);
        assert!(!camera_lost);
        let why = has_pointers.then_some(LeftOut::Share(EVIL.into()));
        assert_eq!(lan.querier.leaves_out(1, lan.now), why);
    }
}

/// Has the hostile host announce services with long names and short lifetimes, so that there is always much to ask.
fn pace_attack(lan: &mut Lan, until: Duration) {
    let name = |n: u64| {
        let label = format!("!{n:04}{}", "x".repeat(50));
        let labels = [label.as_bytes(); 4].into_iter();
        Name::from_labels(labels.chain([&b"_t"[..], b"_tcp", b"local"])).unwrap()
    };
    let mut services: Vec<Vec<Record>> = vec![];
    for n in 0..1000 {
        let name = name(n);
        services.push(vec![
            record(&named(TYPE), 4500, Data::Ptr(name.clone())),
            record(&name, 2, srv("evil.local", 1)),
        ]);
    }
    while lan.now < until {
        for packet in services.chunks(25) {
            lan.attack(&packet.concat());
        }
        lan.run(lan.now + ms(10_000));
    }
}

#[test]
fn who_uses_up_the_pace_ends_no_service_and_a_preferred_one_is_asked_in_time() {
    for is_preferred in [true, false] {
        let habits = Habits {
            host_ttl: 30,
            ..USUAL
        };
        let responders = vec![Responder::new(habits, 7, &["camera"])];
        let mut lan = Lan::browsed(responders, unverified(TYPE));
        if is_preferred {
            let names = BTreeSet::from(["camera._t._tcp.local.".to_owned()]);
            lan.querier.prefer(names.into());
        }
        lan.run(ms(20_000));
        pace_attack(&mut lan, ms(80_000));
        let lost = lan
            .log
            .iter()
            .any(|(_, label, is)| label == "camera" && !is);
        assert!(!lost, "{is_preferred}");
        let is_of_camera = |packet: &Outgoing| {
            let query = Message::decode(&packet.bytes, &mut 0).unwrap();
            let mut questions = query.questions.iter();
            questions.any(|q| q.name == instance("camera") && q.kind == Some(Kind::Srv))
        };
        let asked = lan.sent.iter().filter(|(_, packet)| is_of_camera(packet));
        let asked: Vec<u64> = asked.map(|(at, _)| at.as_secs()).collect();
        // Its SRV record, which lives 30 s, is asked for at 80 % of that, again and again.
        let in_time = asked.windows(2).all(|pair| pair[1] - pair[0] <= 25);
        assert!(!is_preferred || (asked.len() >= 3 && in_time), "{asked:?}");
        let sent = lan.packets_since(ms(20_000));
        assert!(sent <= 100 + 25 * 61, "{sent} packets");
    }
}
