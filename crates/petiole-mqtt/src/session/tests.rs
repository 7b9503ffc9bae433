use super::*;
use proptest::prelude::*;

const NOW: Duration = Duration::ZERO;
/// What mosquitto 2.0.11 answers: CONNACK of MQTT 5 and of 3.1.1, and a refusal of 5.
const WELCOME_5: &[u8] = b"\x20\x09\x00\x00\x06\x22\x00\x0a\x21\x00\x14";
const WELCOME_3: &[u8] = b"\x20\x02\x00\x00";
const REFUSED_5: &[u8] = b"\x20\x03\x00\x87\x00";

fn login(protocol: Protocol) -> Login {
    Login {
        protocol,
        client_id: "c".to_owned(),
        user: Some("u".to_owned()),
        password: Some("p".to_owned()),
    }
}

fn heard(session: &mut Session, bytes: &[u8]) -> Result<Vec<String>, Failure> {
    let mut heard = vec![];
    let result = session.receive(bytes, |event| {
        heard.push(match event {
            Event::Message { topic, payload } => format!("{topic}={}", payload.len()),
            Event::Skipped => "skipped".to_owned(),
            Event::Subscribed { .. } => return,
            Event::Refused { filter, code } => format!("{filter}: {code}"),
        })
    });
    result.map(|()| heard)
}

fn connected(protocol: Protocol) -> Session {
    let mut session = Session::start(&login(protocol), NOW);
    session.turn(NOW).unwrap();
    let welcome = match protocol {
        Protocol::V3 => WELCOME_3,
        Protocol::V5 => WELCOME_5,
    };
    heard(&mut session, welcome).unwrap();
    session
}

/// A message of MQTT 5, at most once.
fn message(topic: &str, payload: &[u8]) -> Vec<u8> {
    let length = (topic.len() as u16).to_be_bytes();
    packet::packet(
        0x31,
        &[&length[..], topic.as_bytes(), &[0], payload].concat(),
    )
}

#[test]
fn section_3_1_connect_is_clean_with_user_and_password_and_in_mqtt_5_with_the_largest_packet() {
    let connect = |protocol| {
        Session::start(&login(protocol), NOW)
            .turn(NOW)
            .unwrap()
            .send
    };
    let expected = b"\x10\x13\x00\x04MQTT\x04\xc2\x00\x1e\x00\x01c\x00\x01u\x00\x01p";
    assert_eq!(connect(Protocol::V3), expected);
    let expected =
        b"\x10\x19\x00\x04MQTT\x05\xc2\x00\x1e\x05\x27\x00\x01\x10\x00\x00\x01c\x00\x01u\x00\x01p";
    assert_eq!(connect(Protocol::V5), expected);
}

#[test]
fn section_3_2_a_refusal_is_named_with_what_helps_and_an_old_broker_is_recognised() {
    for (protocol, answer, said, is_of_protocol) in [
        (Protocol::V5, REFUSED_5, "not authorized", false),
        (
            Protocol::V3,
            b"\x20\x02\x00\x04",
            "bad user name or password",
            false,
        ),
        (
            Protocol::V5,
            b"\x20\x02\x00\x01",
            "unsupported protocol version",
            true,
        ),
        (
            Protocol::V5,
            b"\x20\x0b\x00\x97\x08\x1f\x00\x05full!",
            "quota exceeded (\"full!\")",
            false,
        ),
        (
            Protocol::V5,
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "does not speak MQTT",
            false,
        ),
        (
            Protocol::V3,
            b"\xff\xff\xff\xff\xff",
            "does not speak MQTT",
            false,
        ),
    ] {
        let mut session = Session::start(&login(protocol), NOW);
        let failure = heard(&mut session, answer).unwrap_err();
        assert!(failure.to_string().contains(said), "{failure}");
        assert_eq!(
            (failure.step, failure.is_of_protocol()),
            (Step::Connect, is_of_protocol)
        );
        assert!(!failure.remedy().is_empty());
    }
    let session = Session::start(&login(Protocol::V5), NOW);
    assert!(session.hung_up().is_of_protocol());
}

#[test]
fn section_3_3_messages_are_whole_however_they_come_and_large_ones_are_skipped() {
    let large = vec![b'x'; PAYLOAD_MAX + 1];
    let larger = vec![b'x'; 3 * PACKET_MAX];
    let largest = vec![b'x'; PAYLOAD_MAX];
    let stream = [
        message("a", b"1"),
        message("b", &large),
        message("c", &larger),
        message("d", &largest),
    ];
    let expected = ["a=1", "skipped", "skipped", "d=65536"];
    for size in [7, 8192, usize::MAX] {
        let mut session = connected(Protocol::V5);
        let mut all = vec![];
        for bytes in stream.concat().chunks(size) {
            all.extend(heard(&mut session, bytes).unwrap());
            assert!(session.incoming.len() <= PACKET_MAX + bytes.len() + 5);
        }
        assert_eq!(all, expected);
    }
    let mut session = connected(Protocol::V5);
    let failure = heard(&mut session, b"\x32\x06\x00\x01a\x00\x01\x00").unwrap_err();
    assert!(failure.to_string().contains("acknowledgement"), "{failure}");
}

#[test]
fn section_3_8_subscriptions_follow_each_other_and_a_refused_one_is_named() {
    let mut session = connected(Protocol::V3);
    for n in 0..FILTERS_AT_ONCE + 1 {
        assert!(session.subscribe(format!("t/{n}")) && session.subscribe(format!("t/{n}")));
    }
    let turn = session.turn(NOW).unwrap();
    assert_eq!(&turn.send[..1], b"\x82");
    assert_eq!(
        session.turn(NOW).unwrap().send,
        b"",
        "the first ones are not answered yet"
    );
    let codes = [&[0, 1, 0x80][..], &[0; FILTERS_AT_ONCE - 1]].concat();
    assert_eq!(
        heard(&mut session, &packet::packet(0x90, &codes)).unwrap(),
        ["t/0: reason code 0x80"]
    );
    assert!(!session.is_settled());
    assert_eq!(
        session.turn(NOW).unwrap().send,
        b"\x82\x0a\x00\x02\x00\x05t/256\x00"
    );
    heard(&mut session, b"\x90\x03\x00\x02\x00").unwrap();
    assert!(session.is_settled());
    assert!(
        heard(&mut session, b"\x90\x03\x00\x02\x00").is_err(),
        "nothing was asked"
    );
}

#[test]
fn section_3_10_a_topic_that_is_not_needed_is_given_back_and_its_place_is_free_again() {
    for (protocol, first, second) in [
        (
            Protocol::V3,
            &b"\xb0\x02\x00\x02"[..],
            &b"\xb0\x02\x00\x04"[..],
        ),
        (
            Protocol::V5,
            b"\xb0\x04\x00\x02\x00\x00",
            b"\xb0\x04\x00\x04\x00\x11",
        ),
    ] {
        let suback = |id: u8, count: usize| {
            let properties = &[0][..usize::from(protocol == Protocol::V5)];
            packet::packet(0x90, &[&[0, id][..], properties, &vec![0; count]].concat())
        };
        let mut session = connected(protocol);
        let filter: Arc<str> = "t".into();
        session.subscribe(filter.clone());
        session.turn(NOW).unwrap();
        heard(&mut session, &suback(1, 1)).unwrap();
        session.unsubscribe(&filter);
        assert!(!session.is_settled());
        let sent = session.turn(NOW).unwrap().send;
        let empty = &b"\x00"[usize::from(protocol == Protocol::V3)..];
        assert_eq!(
            sent,
            packet::packet(0xa2, &[b"\x00\x02", empty, b"\x00\x01t"].concat())
        );
        // What is wanted again while the broker answers is subscribed to again, after what ends.
        session.subscribe(filter.clone());
        heard(&mut session, first).unwrap();
        assert_eq!(session.turn(NOW).unwrap().send[0], packet::SUBSCRIBE);
        session.unsubscribe(&filter);
        heard(&mut session, &suback(3, 1)).unwrap();
        assert_eq!(session.turn(NOW).unwrap().send[0], packet::UNSUBSCRIBE);
        heard(&mut session, second).unwrap();
        assert!(session.is_settled() && session.filters.is_empty());
        session.unsubscribe(&filter);
        assert!(session.is_settled(), "it is not subscribed to");
        assert!(heard(&mut session, second).is_err(), "nothing was asked");
    }
}

#[test]
fn topics_that_end_share_a_packet_and_those_between_them_keep_their_turn() {
    let mut session = connected(Protocol::V3);
    let filters: [Arc<str>; 4] = ["a", "b", "c", "d"].map(Arc::from);
    let [a, b, c, d] = filters.each_ref();
    session.subscribe(a.clone());
    session.subscribe(b.clone());
    session.turn(NOW).unwrap();
    heard(&mut session, b"\x90\x04\x00\x01\x00\x00").unwrap();
    session.unsubscribe(a);
    session.subscribe(c.clone());
    session.unsubscribe(b);
    session.subscribe(d.clone());
    let asked = |session: &Session| session.asked.as_ref().unwrap().filters.clone();
    assert_eq!(session.turn(NOW).unwrap().send[0], packet::UNSUBSCRIBE);
    assert_eq!(asked(&session), [a.clone(), b.clone()]);
    heard(&mut session, b"\xb0\x02\x00\x02").unwrap();
    assert_eq!(session.turn(NOW).unwrap().send[0], packet::SUBSCRIBE);
    assert_eq!(asked(&session), [c.clone(), d.clone()]);
    heard(&mut session, b"\x90\x04\x00\x03\x00\x00").unwrap();
    assert!(session.is_settled());
}

#[test]
fn topics_that_come_and_go_use_up_no_subscriptions() {
    let mut session = connected(Protocol::V3);
    let mut id = 0_u16;
    let mut answer = |session: &mut Session| {
        while !session.is_settled() {
            let first = session.turn(NOW).unwrap().send[0];
            id += 1;
            let count = session.asked.as_ref().unwrap().filters.len();
            let codes = vec![0; if first == packet::SUBSCRIBE { count } else { 0 }];
            let kind = first + 0x0e;
            let body = [&id.to_be_bytes()[..], &codes].concat();
            heard(session, &packet::packet(kind, &body)).unwrap();
        }
    };
    // Each round has topics of its own, as devices with new names have, and the same ones.
    for round in 0..5 {
        let topics = (0..SUBSCRIPTIONS_MAX / 2).map(|n| match n % 2 {
            0 => format!("t/{n}"),
            _ => format!("t/{n}/{round}"),
        });
        let topics: Vec<Arc<str>> = topics.map(Arc::from).collect();
        for some in topics.chunks(1000) {
            assert!(some.iter().all(|topic| session.subscribe(topic.clone())));
            answer(&mut session);
        }
        topics.iter().for_each(|topic| session.unsubscribe(topic));
        answer(&mut session);
        assert!(session.filters.is_empty());
    }
}

#[test]
fn what_waits_and_what_is_subscribed_to_is_bounded() {
    let mut session = connected(Protocol::V5);
    let long = |n: usize| format!("{n:01024}");
    let taken = (0..2000).filter(|n| session.subscribe(long(*n))).count();
    assert_eq!(taken, WAITING_BYTES_MAX / 1024);
    session.turn(NOW).unwrap();
    assert!(session.subscribe(long(2000)), "the first ones wait no more");
    // What waits for its end takes no room from what is new.
    for n in 0..1000 {
        session.unsubscribe(&long(n).into());
    }
    assert!((3000..3900).all(|n| session.subscribe(long(n))));
    let mut session = connected(Protocol::V5);
    let taken = (0..SUBSCRIPTIONS_MAX + 9).filter(|n| session.subscribe(n.to_string()));
    assert_eq!(taken.count(), SUBSCRIPTIONS_MAX);
}

#[test]
fn topics_that_come_and_go_faster_than_the_broker_answers_take_a_bounded_space() {
    let mut session = connected(Protocol::V5);
    let long = |n: usize| -> Arc<str> { format!("{n:01024}").into() };
    let taken = |n: &usize| {
        let is_taken = session.subscribe(long(*n));
        session.unsubscribe(&long(*n));
        is_taken
    };
    assert_eq!((0..9000).filter(taken).count(), SUBSCRIBED_BYTES_MAX / 1024);
    assert_eq!(session.bytes(), SUBSCRIBED_BYTES_MAX);
}

#[test]
fn section_1_5_4_a_message_whose_topic_is_no_text_is_skipped() {
    let mut session = connected(Protocol::V5);
    let bytes = [&b"\x31\x05\x00\x01\xff\x00x"[..], &message("a", b"1")].concat();
    assert_eq!(heard(&mut session, &bytes).unwrap(), ["a=1"]);
}

#[test]
fn section_3_12_a_broker_that_gives_no_sign_of_life_has_failed() {
    let mut session = connected(Protocol::V5);
    let wake = session.turn(NOW).unwrap().wake;
    assert_eq!(wake, KEEP_ALIVE);
    assert_eq!(session.turn(wake).unwrap().send, b"\xc0\x00");
    heard(&mut session, b"\xd0\x00").unwrap();
    let wake = session.turn(wake).unwrap().wake;
    let wake = session.turn(wake).unwrap().wake;
    let failure = session.turn(wake).unwrap_err();
    assert_eq!(failure.to_string(), "no answer to PINGREQ within 10 s");
}

#[test]
fn section_3_14_a_farewell_of_the_broker_has_its_reason() {
    let mut session = connected(Protocol::V5);
    let failure = heard(&mut session, b"\xe0\x02\x8e\x00").unwrap_err();
    assert!(
        failure.to_string().contains("session taken over"),
        "{failure}"
    );
}

#[test]
fn words_of_a_broker_that_have_the_password_are_in_no_failure() {
    for (text, shown) in [
        (
            "later",
            "the broker ended the session: session taken over (\"later\")",
        ),
        (
            "not with p",
            "the broker ended the session: session taken over",
        ),
    ] {
        let length = text.len() as u8;
        let head = [0xe0, 5 + length, 0x8e, 3 + length, 0x1f, 0, length];
        let farewell = [&head, text.as_bytes()].concat();
        let failure = heard(&mut connected(Protocol::V5), &farewell).unwrap_err();
        assert_eq!(failure.to_string(), shown);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_the_same_bytes_say_the_same(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        size in 1_usize..50,
    ) {
        let mut whole = connected(Protocol::V5);
        let mut parts = connected(Protocol::V5);
        let expected = heard(&mut whole, &bytes);
        let mut all = vec![];
        let mut ended = None;
        for part in bytes.chunks(size) {
            match heard(&mut parts, part) {
                Ok(heard) => all.extend(heard),
                Err(failure) => {
                    ended = Some(failure);
                    break;
                }
            }
        }
        match (expected, ended) {
            (Ok(expected), None) => prop_assert_eq!(expected, all),
            (Err(expected), Some(failure)) => prop_assert_eq!(expected, failure),
            (expected, ended) => prop_assert!(false, "{:?} {:?}", expected, ended),
        }
    }
}
