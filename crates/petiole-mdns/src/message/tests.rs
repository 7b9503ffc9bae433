//! Tests with exact bytes of packets.
use super::{
    super::query::{Ask, KnownAnswer, PACKET_MAX, queries},
    *,
};
use proptest::{collection::vec, prelude::*};

fn named(text: &str) -> Name {
    Name::from_dotted(text).unwrap()
}

fn ask(name: &str, kind: Kind) -> Ask {
    Ask {
        name: named(name),
        kind,
        wants_unicast: false,
    }
}

#[test]
fn a_question_is_written_as_the_rfc_has_it() {
    let question = Ask {
        wants_unicast: true,
        ..ask("_http._tcp.local", Kind::Ptr)
    };
    let packets = queries(&[question, ask("a._http._tcp.local", Kind::Srv)], &[]);
    let expected: &[u8] =
        b"\0\0\0\0\0\x02\0\0\0\0\0\0\x05_http\x04_tcp\x05local\0\0\x0c\x80\x01\x01a\xc0\x0c\0\x21\0\x01";
    assert_eq!(packets, [expected]);
}

#[test]
fn a_label_with_a_dot_is_asked_for_as_one_label() {
    let name = Name::from_labels([&b"Front Door v1.2"[..], b"_rtsp", b"_tcp", b"local"]);
    let question = Ask {
        name: name.unwrap(),
        kind: Kind::Srv,
        wants_unicast: false,
    };
    let packets = queries(&[question], &[]);
    let expected: &[u8] =
        b"\0\0\0\0\0\x01\0\0\0\0\0\0\x0fFront Door v1.2\x05_rtsp\x04_tcp\x05local\0\0\x21\0\x01";
    assert_eq!(packets, [expected]);
}

#[test]
fn a_known_answer_is_compressed_against_its_question() {
    let known = KnownAnswer {
        name: named("_http._tcp.local"),
        target: named("a._http._tcp.local"),
        ttl: 4500,
    };
    let packets = queries(&[ask("_http._tcp.local", Kind::Ptr)], &[known]);
    let expected: &[u8] =
        b"\0\0\0\0\0\x01\0\x01\0\0\0\0\x05_http\x04_tcp\x05local\0\0\x0c\0\x01\xc0\x0c\0\x0c\0\x01\0\0\x11\x94\0\x04\x01a\xc0\x0c";
    assert_eq!(packets, [expected]);
}

#[test]
fn known_answers_that_do_not_fit_follow_and_all_but_the_last_packet_are_truncated() {
    let known: Vec<KnownAnswer> = (0..300)
        .map(|n| KnownAnswer {
            name: named("_http._tcp.local"),
            target: named(&format!("service-number-{n}._http._tcp.local")),
            ttl: 100,
        })
        .collect();
    let packets = queries(&[ask("_http._tcp.local", Kind::Ptr)], &known);
    assert!(packets.len() > 2);
    let decoded: Vec<Message> = packets
        .iter()
        .map(|packet| {
            assert!(packet.len() <= PACKET_MAX);
            Message::decode(packet, &mut 0).unwrap()
        })
        .collect();
    let (last, others) = decoded.split_last().unwrap();
    assert!(others.iter().all(|m| m.is_truncated) && !last.is_truncated);
    let questions: Vec<usize> = decoded.iter().map(|m| m.questions.len()).collect();
    assert_eq!(questions[0], 1);
    assert!(questions[1..].iter().all(|count| *count == 0));
    let found: Vec<&Data> = decoded
        .iter()
        .flat_map(|m| m.records.iter().map(|r| &r.data))
        .collect();
    assert_eq!(found.len(), 300);
    assert!(
        found
            .iter()
            .zip(&known)
            .all(|(data, known)| **data == Data::Ptr(known.target.clone()))
    );
}

/// Returns a response with the given record and one after it.
fn response(record: &[u8]) -> Vec<u8> {
    let mut bytes = b"\0\0\x84\0\0\0\0\x02\0\0\0\0".to_vec();
    bytes.extend_from_slice(record);
    bytes.extend_from_slice(b"\x01h\x05local\0\0\x01\x80\x01\0\0\0\x78\0\x04\x0a\0\0\x07");
    bytes
}

#[test]
fn a_record_that_cannot_be_used_does_not_take_the_next_with_it() {
    let useless: [&[u8]; 7] = [
        // These are an A record of three bytes, one of class CH, an unknown type, and an empty one.
        b"\x01x\0\0\x01\0\x01\0\0\0\x78\0\x03\x0a\0\0",
        b"\x01x\0\0\x01\0\x03\0\0\0\x78\0\x04\x0a\0\0\x01",
        b"\x01x\0\0\x63\0\x01\0\0\0\x78\0\x02zz",
        b"\x01x\0\0\x0c\0\x01\0\0\0\x78\0\0",
        // These are a PTR record whose name points behind itself, an SRV record that is too short, and a name without
        // an end.
        b"\x01x\0\0\x0c\0\x01\0\0\0\x78\0\x02\xc0\x20",
        b"\x01x\0\0\x21\0\x01\0\0\0\x78\0\x03\0\0\0",
        b"\x01x\0\0\x0c\0\x01\0\0\0\x78\0\x04\x01a\0\0",
    ];
    for record in useless {
        let message = Message::decode(&response(record), &mut 0).unwrap();
        assert_eq!(message.skipped, 1, "{record:?}");
        let expected = Record {
            name: named("h.local"),
            ttl: 120,
            flush: true,
            data: Data::A([10, 0, 0, 7].into()),
        };
        assert_eq!(message.records, [expected], "{record:?}");
    }
}

#[test]
fn names_that_point_in_circles_and_other_opcodes_and_response_codes_are_refused() {
    for bytes in [
        &b"\0\0\x84\0\0\0\0\x01\0\0\0\0\xc0\x0c\0\x01\0\x01\0\0\0\x78\0\x04\x0a\0\0\x07"[..],
        b"\0\0\xac\0\0\0\0\0\0\0\0\0",
        // RFC 6762 18.11: a response code.
        b"\0\0\x84\x03\0\0\0\0\0\0\0\0",
        b"\0\0\x84\0\0\0\xff\xff\0\0\0\0",
        b"\0\0\x84\0\xff\xff\0\0\0\0\0\0",
        b"short",
    ] {
        assert_eq!(Message::decode(bytes, &mut 0), Err(Malformed), "{bytes:?}");
    }
}

#[test]
fn an_nsec_record_names_the_types_that_exist() {
    let record = b"\x01x\0\0\x2f\x80\x01\0\0\0\x78\0\x08\xc0\x0c\0\x04\x40\0\0\x08";
    let message = Message::decode(&response(record), &mut 0).unwrap();
    assert_eq!(
        message.records[0].data,
        Data::Nsec(vec![Kind::A, Kind::Aaaa])
    );
}

#[test]
fn what_a_prober_proposes_is_not_read_as_an_answer() {
    let bytes =
        b"\0\0\0\0\0\0\0\0\0\x01\0\0\x01h\0\0\x01\0\x01\0\0\0\x78\0\x04\x0a\0\0\x07".as_slice();
    assert_eq!(Message::decode(bytes, &mut 0).unwrap().records, []);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..200)) {
        drop(Message::decode(&bytes, &mut 0));
        let mut lying = b"\0\0\x84\0\0\x01\0\x09\0\x01\0\x09".to_vec();
        lying.extend(bytes);
        drop(Message::decode(&lying, &mut 0));
    }

    #[test]
    fn what_is_asked_is_read_again(names in vec("[a-zA-Z. ]{1,40}", 1..120)) {
        let label = |name: &String| Name::from_labels([name.as_bytes(), b"_t", b"_tcp", b"local"]).unwrap();
        let asks: Vec<Ask> = names.iter().map(|name| Ask { name: label(name), kind: Kind::Txt, wants_unicast: false }).collect();
        let read: Vec<Question> = queries(&asks, &[]).iter().flat_map(|packet| Message::decode(packet, &mut 0).unwrap().questions).collect();
        let asked: Vec<(Name, Option<Kind>)> = asks.into_iter().map(|a| (a.name, Some(a.kind))).collect();
        prop_assert_eq!(read.into_iter().map(|q| (q.name, q.kind)).collect::<Vec<_>>(), asked);
    }
}
