//! Tests of RFC 6762, one for each row of the table, by the bytes on the wire.
use super::{
    lan::Lan,
    responder::{Habits, Responder, USUAL},
    *,
};

fn querier(wanted: Wanted) -> Querier {
    let mut querier = Querier::new(3);
    querier.set_links(vec![eth()], &[], ms(0));
    querier.subscribe(1, wanted, ms(0));
    querier
}

fn receive_records(querier: &mut Querier, records: &[Record], now: Duration) {
    packet(querier, "10.0.0.7:5353", &response(records), now);
}

fn packet(querier: &mut Querier, source: &str, bytes: &[u8], now: Duration) {
    packet_to(querier, source, true, bytes, now);
}

fn packet_to(querier: &mut Querier, source: &str, is_multicast: bool, bytes: &[u8], now: Duration) {
    let packet = Packet {
        link: ETH,
        family: Family::V4,
        source: source.parse().unwrap(),
        is_multicast,
        hop_limit: 255,
        bytes,
    };
    querier.receive(&packet, now);
}

/// Returns all queries up to `until`, with the times at which they were sent.
fn queries(querier: &mut Querier, from: Duration, until: Duration) -> Vec<(Duration, Vec<u8>)> {
    let (mut now, mut sent) = (from, vec![]);
    loop {
        let turn = querier.turn(now);
        sent.extend(turn.send.into_iter().map(|packet| (now, packet.bytes)));
        match turn.wake.filter(|wake| *wake <= until) {
            Some(wake) => now = wake,
            None => return sent,
        }
    }
}

const PTR: &[u8] = b"\0\0\0\0\0\x01\0\0\0\0\0\0\x02_t\x04_tcp\x05local\0\0\x0c\0\x01";

#[test]
fn section_5_2_a_continuous_question_waits_at_first_and_is_repeated_less_and_less_often() {
    let mut querier = querier(wanted(TYPE));
    let sent = queries(&mut querier, ms(0), ms(130_000));
    let first = sent[0].0;
    assert!((ms(20)..=ms(120)).contains(&first), "{first:?}");
    let times: Vec<u64> = sent.iter().map(|(at, _)| (*at - first).as_secs()).collect();
    assert_eq!(times, [0, 1, 3, 7, 15, 31, 63, 127]);
    assert!(sent.iter().all(|(_, bytes)| bytes == PTR));
}

#[test]
fn section_5_4_the_first_answer_may_come_by_unicast_where_nobody_else_listens() {
    let mut querier = querier(wanted(TYPE));
    querier.ask_for_unicast(true);
    let sent = queries(&mut querier, ms(0), ms(2000));
    let mut first = PTR.to_vec();
    first[PTR.len() - 2] = 0x80;
    assert_eq!((&sent[0].1[..], &sent[1].1[..]), (&first[..], PTR));
}

#[test]
fn section_7_1_what_is_known_and_fresh_is_reported_with_the_question() {
    let mut querier = querier(unverified(TYPE));
    queries(&mut querier, ms(0), ms(500));
    receive_records(&mut querier, &service("a"), ms(500));
    let sent = queries(&mut querier, ms(500), ms(1500));
    let mut expected = PTR.to_vec();
    expected[7] = 1;
    expected.extend(b"\xc0\x0c\0\x0c\0\x01\0\0\x11\x93\0\x04\x01a\xc0\x0c");
    let asked: Vec<&[u8]> = sent.iter().map(|(_, bytes)| &bytes[..]).collect();
    // The host's other address family is asked for too.
    assert!(asked.contains(&&expected[..]), "{asked:?}");
}

#[test]
fn section_10_4_a_confirmation_carries_no_known_answer_and_ends_after_seven_questions() {
    let mut lan = Lan::with(USUAL, "Front Door v1.2");
    lan.run(ms(30_000));
    lan.responders[0].is_alive = false;
    let died = lan.now;
    lan.until("Front Door v1.2", false);
    let asked: Vec<(Duration, &[u8])> = lan
        .sent
        .iter()
        .filter(|(at, _)| *at > died)
        .map(|(at, packet)| (*at, &packet.bytes[..]))
        .collect();
    let srv: &[u8] =
        b"\0\0\0\0\0\x01\0\0\0\0\0\0\x0fFront Door v1.2\x02_t\x04_tcp\x05local\0\0\x21\0\x01";
    let has = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|w| w == part);
    let confirms: Vec<_> = asked
        .iter()
        .filter(|(_, b)| has(b, b"\0\x21\0\x01"))
        .collect();
    let first = confirms[0].0;
    let times = confirms.iter().map(|(at, _)| *at - first);
    assert_eq!(
        times.collect::<Vec<_>>(),
        [0, 1100, 2200, 3300, 4400, 5500, 6800].map(ms)
    );
    assert_eq!((confirms[0].1, confirms[1].1), (srv, srv));
    // The service is not sent as a known answer, whatever is asked meanwhile.
    let unconfirmed = asked.iter().filter(|(at, _)| *at >= first);
    assert!(
        unconfirmed.clone().all(|(_, bytes)| bytes[6..8] == [0, 0]),
        "{asked:?}"
    );
    assert!(
        unconfirmed
            .clone()
            .any(|(_, bytes)| has(bytes, b"\0\x0c\0\x01"))
    );
    let took = lan.now - first;
    assert!((ms(8300)..=ms(8310)).contains(&took), "{took:?}");
}

#[test]
fn section_10_4_what_was_not_confirmed_is_no_known_answer_any_more() {
    let mut lan = Lan::with(USUAL, "a");
    lan.run(ms(30_000));
    lan.responders[0].is_alive = false;
    lan.until("a", false);
    let lost = lan.now;
    lan.run(lost + ms(100_000));
    let pointers: Vec<&Outgoing> = lan
        .sent
        .iter()
        .filter(|(at, _)| *at > lost)
        .map(|(_, packet)| packet)
        .collect();
    assert!(pointers.len() > 50, "it is looked for");
    assert!(pointers.iter().all(|packet| packet.bytes[6..8] == [0, 0]));
}

#[test]
fn section_7_3_the_question_of_another_host_stands_for_our_own() {
    let other = encode(0, &[(named(TYPE), 12, 1)], &[]);
    let mut querier = querier(wanted(TYPE));
    packet(&mut querier, "10.0.0.9:5353", &other, ms(5));
    let sent = queries(&mut querier, ms(5), ms(2500));
    assert_eq!(sent.len(), 1, "{sent:?}");
    // A question with known answers that we need does not replace ours, nor does one whose answers are sent by unicast,
    // nor a truncated one.
    let known = record(&named(TYPE), 4500, Data::Ptr(instance("a")));
    let knows = encode(0, &[(named(TYPE), 12, 1)], &[known]);
    let unicast = encode(0, &[(named(TYPE), 12, 0x8001)], &[]);
    let truncated = encode(0x0200, &[(named(TYPE), 12, 1)], &[]);
    for other in [knows, unicast, truncated] {
        let mut querier = self::querier(wanted(TYPE));
        packet(&mut querier, "10.0.0.9:5353", &other, ms(5));
        assert_eq!(queries(&mut querier, ms(5), ms(2500)).len(), 2);
    }
    // Nobody else hears a question that is sent to us alone.
    let mut querier = self::querier(wanted(TYPE));
    packet_to(&mut querier, "10.0.0.9:5353", false, &other, ms(5));
    assert_eq!(queries(&mut querier, ms(5), ms(2500)).len(), 2);
    // Our own question returns to us.
    let mut querier = self::querier(wanted(TYPE));
    packet(&mut querier, "10.0.0.1:5353", PTR, ms(5));
    assert_eq!(queries(&mut querier, ms(5), ms(2500)).len(), 2);
}

#[test]
fn section_5_2_a_record_in_use_is_asked_for_before_it_expires() {
    let mut querier = querier(unverified(TYPE));
    receive_records(&mut querier, &service("a"), ms(0));
    let sent = queries(&mut querier, ms(0), ms(119_000));
    let is_srv = |bytes: &[u8]| bytes.windows(4).any(|w| w == b"\0\x21\0\x01");
    let percent: Vec<u64> = sent
        .iter()
        .filter(|(_, bytes)| is_srv(bytes))
        .map(|(at, _)| u64::try_from(at.as_millis()).unwrap() / 1200)
        .collect();
    assert_eq!(percent.len(), 4, "{percent:?}");
    for (percent, due) in percent.into_iter().zip([80, 85, 90, 95]) {
        assert!((due..=due + 2).contains(&percent), "{percent} at {due}");
    }
    // The record is asked for several more times before it is dropped.
    let (mut now, mut overdue) = (ms(119_000), 0);
    loop {
        let turn = querier.turn(now);
        overdue += turn.send.iter().filter(|p| is_srv(&p.bytes)).count();
        if turn.changes.iter().any(|change| change.service.is_none()) {
            break;
        }
        now = turn.wake.unwrap();
    }
    assert_eq!(overdue, 5);
    assert!((ms(125_500)..ms(125_600)).contains(&now), "{now:?}");
}

#[test]
fn section_10_2_a_flush_bit_ends_older_records_of_the_interface_a_second_later() {
    let mut querier = querier(unverified(TYPE));
    receive_records(&mut querier, &service("a"), ms(0));
    querier.turn(ms(0));
    let moved = vec![
        record(&instance("a"), 120, srv("h.local", 81)),
        record(&named("h.local"), 120, Data::A([10, 0, 0, 8].into())),
    ];
    receive_records(&mut querier, &moved, ms(5000));
    let found = |querier: &mut Querier, now| {
        let changes = querier.turn(now).changes;
        let service = changes.into_iter().next_back().unwrap().service.unwrap();
        let addresses: Vec<String> = service.addresses.iter().map(|a| a.ip.to_string()).collect();
        (service.port, addresses)
    };
    let both = vec!["10.0.0.7".to_owned(), "10.0.0.8".to_owned()];
    assert_eq!(found(&mut querier, ms(5001)), (81, both));
    assert_eq!(
        found(&mut querier, ms(6001)),
        (81, vec!["10.0.0.8".to_owned()])
    );
}

#[test]
fn section_10_5_a_service_that_others_ask_for_in_vain_is_confirmed() {
    let mut querier = querier(unverified(TYPE));
    receive_records(&mut querier, &service("a"), ms(0));
    queries(&mut querier, ms(0), ms(30_000));
    let other = encode(0, &[(instance("a"), 33, 1)], &[]);
    packet(&mut querier, "10.0.0.9:5353", &other, ms(30_000));
    queries(&mut querier, ms(30_000), ms(40_900));
    packet(&mut querier, "10.0.0.9:5353", &other, ms(41_000));
    let sent = queries(&mut querier, ms(41_000), ms(41_100));
    assert_eq!(sent.len(), 1);
    let changes = (0..100).flat_map(|n| querier.turn(ms(41_100 + n * 100)).changes);
    assert_eq!(changes.filter(|change| change.service.is_none()).count(), 1);
}

#[test]
fn section_16_case_means_nothing_in_types_names_and_goodbyes() {
    let mut querier = querier(wanted("_T._TCP.local"));
    receive_records(&mut querier, &service("Porch Light"), ms(0));
    let changes = querier.turn(ms(1)).changes;
    let shown = changes[0].service.as_ref().unwrap().name.text().unwrap();
    assert_eq!(shown, "Porch Light._t._tcp.local.");
    receive_records(&mut querier, &goodbye("Porch light"), ms(5000));
    queries(&mut querier, ms(5000), ms(5900));
    let changes = querier.turn(ms(6000)).changes;
    assert!(matches!(&changes[..], [Change { service: None, .. }]));
}

#[test]
fn section_6_1_a_denied_address_is_not_asked_for() {
    let aaaa = |lan: &Lan| {
        let is_aaaa = |bytes: &[u8]| bytes.windows(4).any(|w| w == b"\0\x1c\0\x01");
        lan.sent.iter().filter(|(_, p)| is_aaaa(&p.bytes)).count()
    };
    let mut silent = Lan::with(USUAL, "a");
    silent.run(ms(60_000));
    assert_eq!(aaaa(&silent), 3, "then there is none");
    let denies = Habits {
        denies: true,
        ..USUAL
    };
    let mut denying = Lan::with(denies, "a");
    denying.run(ms(60_000));
    assert_eq!(aaaa(&denying), 1);
}

#[test]
fn section_6_1_a_denial_ends_with_its_lifetime_or_with_an_address() {
    let asks_for = |sent: &[(Duration, Vec<u8>)], kind: u8| {
        let of_kind = |bytes: &[u8]| bytes[12..].windows(4).any(|w| w == [0, kind, 0, 1]);
        sent.iter().any(|(_, bytes)| of_kind(bytes))
    };
    // The host has two addresses of IPv6. When one is withdrawn, the missing family is asked for again.
    let host = named("h.local");
    let aaaa = |ip: &str, ttl| record(&host, ttl, Data::Aaaa(ip.parse().unwrap()));
    let mut records = service("a");
    records[3] = aaaa("fe80::7", 4500);
    records.push(aaaa("fe80::8", 4500));
    records.push(record(&host, 60, Data::Nsec(vec![Kind::Aaaa])));
    for (after, is_asked) in [(50_000, false), (70_000, true)] {
        let mut querier = querier(unverified(TYPE));
        receive_records(&mut querier, &records, ms(0));
        assert!(!asks_for(&queries(&mut querier, ms(0), ms(after)), 1));
        receive_records(&mut querier, &[aaaa("fe80::8", 0)], ms(after));
        let sent = queries(&mut querier, ms(after), ms(after + 5000));
        assert_eq!(asks_for(&sent, 1), is_asked, "{after}");
        receive_records(&mut querier, &records[5..], ms(after + 5000));
        let address = record(&host, 120, Data::A([10, 0, 0, 7].into()));
        receive_records(&mut querier, &[address], ms(after + 5000));
        assert!(querier.links[&ETH].hosts[&host].has_no.is_empty());
    }
    // A host without an address is asked for both families, whatever was denied.
    let mut querier = querier(unverified(TYPE));
    let mut records = service("a");
    (records[1].ttl, records[3].ttl) = (4500, 10);
    records.push(record(&host, 4500, Data::Nsec(vec![])));
    receive_records(&mut querier, &records, ms(0));
    queries(&mut querier, ms(0), ms(16_000));
    let sent = queries(&mut querier, ms(16_000), ms(20_000));
    assert!(asks_for(&sent, 1), "{sent:?}");
}

#[test]
fn section_14_a_service_that_one_of_two_interfaces_still_reaches_is_not_gone() {
    let both = [eth(), link(3, "eth1", &["10.0.1.1/24"])];
    let mut querier = Querier::new(3);
    querier.set_links(both.to_vec(), &[], ms(0));
    querier.subscribe(1, wanted(TYPE), ms(0));
    for (link, source) in [(ETH, "10.0.0.7:5353"), (3, "10.0.1.7:5353")] {
        let mut records = service("a");
        let last = if link == ETH {
            [10, 0, 0, 7]
        } else {
            [10, 0, 1, 7]
        };
        records[3].data = Data::A(last.into());
        let packet = Packet {
            link,
            family: Family::V4,
            source: source.parse().unwrap(),
            is_multicast: true,
            hop_limit: 255,
            bytes: &response(&records),
        };
        querier.receive(&packet, ms(10));
    }
    querier.turn(ms(10));
    querier.set_links(both[1..].to_vec(), &[], ms(5000));
    let changes = querier.turn(ms(5000)).changes;
    let addresses: Vec<String> = changes[0]
        .service
        .as_ref()
        .unwrap()
        .addresses
        .iter()
        .map(|a| a.ip.to_string())
        .collect();
    assert_eq!((changes.len(), addresses), (1, vec!["10.0.1.7".to_owned()]));
    querier.set_links(vec![], &[], ms(6000));
    let changes = querier.turn(ms(6000)).changes;
    assert!(matches!(&changes[..], [Change { service: None, .. }]));
}

#[test]
fn section_14_of_two_machines_with_one_name_on_two_interfaces_one_is_offered_and_it_is_said() {
    let mut querier = Querier::new(3);
    let both = [eth(), link(3, "eth1", &["10.0.1.1/24"])];
    querier.set_links(both.to_vec(), &[], ms(0));
    querier.subscribe(1, wanted(TYPE), ms(0));
    for (link, ip, host) in [
        (ETH, [10, 0, 0, 7], "h.local"),
        (3, [10, 0, 1, 7], "i.local"),
    ] {
        let mut records = service("a");
        records[1].data = srv(host, 80);
        records[3] = record(&named(host), 120, Data::A(ip.into()));
        let packet = Packet {
            link,
            family: Family::V4,
            source: SocketAddr::from((ip, 5353)),
            is_multicast: true,
            hop_limit: 255,
            bytes: &response(&records),
        };
        querier.receive(&packet, ms(10));
    }
    let changes = querier.turn(ms(10)).changes;
    let [
        Change {
            service: Some(found),
            ..
        },
    ] = &changes[..]
    else {
        panic!("{changes:?}");
    };
    assert_eq!(
        (&found.host, &found.twin),
        (&named("h.local"), &Some(instance("a")))
    );
}

#[test]
fn section_5_2_a_second_subscriber_s_question_is_sent_soon_though_the_first_asked_long_ago() {
    let mut lan = Lan::new(vec![Responder::new(USUAL, 7, &["a"])]);
    lan.run(ms(100_000));
    // It was plugged in silently.
    lan.responders.push(Responder::new(USUAL, 8, &["b"]));
    lan.querier.subscribe(2, wanted(TYPE), lan.now);
    lan.run(lan.now + ms(200));
    assert!(lan.found.contains_key(&instance("b")));
}

#[test]
fn section_10_4_a_service_whose_record_came_before_its_pointer_is_confirmed_too() {
    let mut querier = querier(wanted(TYPE));
    let [pointer, details @ ..] = &service("a")[..] else {
        panic!("a pointer comes first");
    };
    receive_records(&mut querier, details, ms(10));
    receive_records(&mut querier, std::slice::from_ref(pointer), ms(20));
    receive_records(&mut querier, details.get(1..).unwrap(), ms(30));
    let mut now = ms(40);
    let mut changes = vec![];
    while now < ms(40_000) {
        let turn = querier.turn(now);
        changes.extend(
            turn.changes
                .into_iter()
                .map(|change| change.service.is_some()),
        );
        now = turn.wake.unwrap();
    }
    assert_eq!(
        changes,
        [true, false],
        "it is found, and is gone without an answer"
    );
}

#[test]
fn a_renamed_service_of_a_host_whose_services_were_all_lost_is_found() {
    let brief = Habits {
        additionals: false,
        ..USUAL
    };
    let mut lan = Lan::with(brief, "a");
    lan.run(ms(5_000));
    lan.responders[0].is_alive = false;
    lan.run(ms(300_000));
    assert!(lan.found.is_empty());
    lan.responders.push(Responder::new(brief, 7, &["b"]));
    lan.run(ms(600_000));
    assert!(lan.found.contains_key(&instance("b")));
}

#[test]
fn section_15_two_subscribers_share_one_conversation_and_the_second_is_answered_at_once() {
    let mut lan = Lan::new(vec![Responder::new(USUAL, 7, &["a"])]);
    lan.run(ms(20_000));
    let asked = lan.sent.len();
    lan.querier.subscribe(2, wanted(TYPE), lan.now);
    let changes = lan.querier.turn(lan.now).changes;
    assert!(matches!(
        &changes[..],
        [Change {
            subscription: 2,
            service: Some(_),
            ..
        }]
    ));
    assert_eq!(lan.sent.len(), asked);
    lan.querier.unsubscribe(1, lan.now);
    lan.querier.unsubscribe(2, lan.now);
    assert_eq!(lan.querier.counts().records, 0, "nobody wants to know");
    assert_eq!(lan.querier.turn(lan.now).send, []);
}

#[test]
fn a_pointer_is_not_asked_for_while_its_service_answers() {
    let brief = Habits {
        other_ttl: 120,
        additionals: false,
        ..USUAL
    };
    let mut lan = Lan::with(brief, "a");
    lan.run(ms(900_000));
    let of_type = |packet: &Outgoing| packet.bytes.windows(4).any(|w| w == b"\0\x0c\0\x01");
    let asked = lan.sent.iter().filter(|(_, packet)| of_type(packet));
    assert_eq!(asked.count(), 10, "the continuous question alone");
    assert_eq!(lan.losses_since(ms(0)), 0);
}
