//! The packets that cause the most work, which is counted in steps.
use super::*;

/// A packet of at most 9000 bytes, by a writer that compresses names as it likes.
struct Written(Vec<u8>);

impl Written {
    fn new(flags: u16, questions: u16, answers: u16) -> Self {
        let header = [0, flags, questions, answers, 0, 0];
        Self(header.into_iter().flat_map(u16::to_be_bytes).collect())
    }

    fn numbers(&mut self, numbers: &[u16]) {
        self.0.extend(numbers.iter().flat_map(|n| n.to_be_bytes()));
    }

    /// Returns a pointer to the end of the packet.
    fn here(&self) -> u16 {
        0xc000 | u16::try_from(self.0.len()).unwrap()
    }

    /// Writes the rest of a record of class IN with a TTL of 120 s, and the length of its data.
    fn record(&mut self, kind: u16, length: usize) {
        self.numbers(&[kind, 1, 0, 120, u16::try_from(length).unwrap()]);
    }
}

/// Questions for one type, and known answers which all name one service.
pub(super) fn question_bomb(questions: u16, answers: u16) -> Vec<u8> {
    let mut packet = Written::new(0, questions, answers);
    let kind = packet.here();
    write_name(&mut packet.0, &named(TYPE));
    packet.numbers(&[12, 1]);
    for _ in 1..questions {
        packet.numbers(&[kind, 12, 1]);
    }
    packet.numbers(&[kind]);
    packet.record(12, 6);
    let target = packet.here();
    packet.0.extend(b"\x03cam");
    packet.numbers(&[kind]);
    for _ in 1..answers {
        packet.numbers(&[kind]);
        packet.record(12, 2);
        packet.numbers(&[target]);
    }
    packet.0
}

/// Pointers of which each leads to the one before, and records whose names begin at the last.
fn chain(pointers: u16, names: u16) -> Vec<u8> {
    let mut packet = Written::new(0x8400, 0, 1 + names);
    packet.0.push(0);
    let mut last = packet.here() - 1;
    packet.record(16, 2 * usize::from(pointers));
    for _ in 0..pointers {
        let next = packet.here();
        packet.numbers(&[last]);
        last = next;
    }
    for _ in 0..names {
        packet.numbers(&[last]);
        packet.record(99, 0);
    }
    packet.0
}

/// Addresses of one host.
fn addresses(host: &str, count: u16, first: u16) -> Vec<u8> {
    let mut packet = Written::new(0x8400, 0, count);
    let name = packet.here();
    write_name(&mut packet.0, &named(host));
    for n in 0..count {
        if n > 0 {
            packet.numbers(&[name]);
        }
        packet.record(1, 4);
        packet.numbers(&[0x0a00, first.wrapping_add(n)]);
    }
    packet.0
}

/// A querier that knows a service `cam`, and a host with 2000 services.
fn busy() -> Querier {
    let mut querier = Querier::new(1);
    querier.set_links(vec![eth()], &[], ms(0));
    querier.subscribe(1, wanted(TYPE), ms(0));
    receive(&mut querier, &response(&service("cam")), ms(10));
    for n in 0..2000 {
        let label = format!("service {n}");
        receive(&mut querier, &response(&service(&label)), ms(10 + n));
    }
    querier.turn(ms(2010));
    querier
}

fn receive(querier: &mut Querier, bytes: &[u8], now: Duration) -> usize {
    let packet = Packet {
        link: ETH,
        family: Family::V4,
        source: "10.0.0.7:5353".parse().unwrap(),
        is_multicast: true,
        hop_limit: 255,
        bytes,
    };
    querier.receive(&packet, now)
}

#[test]
fn the_worst_packets_take_a_bounded_number_of_steps() {
    let mut querier = busy();
    for (what, packet, most) in [
        (
            "more questions than a frame holds",
            question_bomb(512, 400),
            20,
        ),
        (
            "questions and known answers",
            question_bomb(256, 500),
            15_000,
        ),
        ("names of two thousand pointers", chain(2000, 347), 100),
        ("names of eight pointers", chain(8, 700), 10_000),
        (
            "addresses",
            addresses("h.local", 550, 0),
            PACKET_STEPS_MAX + 10_000,
        ),
        (
            "more addresses",
            addresses("h.local", 550, 600),
            PACKET_STEPS_MAX + 10_000,
        ),
        ("addresses of nobody", addresses("x.local", 550, 0), 10_000),
    ] {
        assert!(packet.len() <= 9000, "{what}: {} bytes", packet.len());
        let steps = receive(&mut querier, &packet, ms(5000));
        assert!(steps <= most, "{what}: {steps} steps");
    }
}

#[test]
fn a_known_answer_is_looked_up_once_and_only_while_our_question_is_due() {
    let steps = |questions, now| {
        let mut querier = Querier::new(1);
        querier.set_links(vec![eth()], &[], ms(0));
        querier.subscribe(1, wanted(TYPE), ms(0));
        receive(&mut querier, &response(&service("cam")), ms(0));
        querier.turn(ms(120));
        receive(&mut querier, &question_bomb(questions, 300), now)
    };
    // Our first question was sent at 120 ms, so that the next is due at 1120 ms.
    let (once, often) = (steps(1, ms(1100)), steps(256, ms(1100)));
    // A question has five labels and pointers.
    assert_eq!(often - once, 255 * 10);
    assert_eq!(once - steps(1, ms(900)), 300 * 10);
}

#[test]
fn a_turn_looks_at_a_bounded_number_of_services_and_at_each_in_its_turn() {
    let mut querier = busy();
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..12 {
        let now = ms(2011 + round);
        let turn = querier.turn(now);
        assert!(turn.changes.len() <= 256, "{}", turn.changes.len());
        assert!(round > 6 || turn.wake == Some(now + ms(1)));
        seen.extend(turn.changes.into_iter().map(|change| change.name));
        // Names that are first in the order change again and again.
        let label = format!("!{round}");
        receive(&mut querier, &response(&service(&label)), now);
    }
    assert!(seen.contains(&instance("service 999")), "{}", seen.len());
}

#[test]
fn names_that_come_faster_than_they_are_looked_at_do_not_pile_up() {
    let mut querier = Querier::new(1);
    querier.set_links(vec![eth()], &[], ms(0));
    for n in 0..16 {
        let other = format!("_t{n}._tcp.local");
        querier.subscribe(n + 2, wanted(&other), ms(0));
    }
    querier.subscribe(1, wanted(TYPE), ms(0));
    receive(&mut querier, &response(&service("cam")), ms(10));
    let orphan = |n: u64| {
        let name = instance(&format!("orphan {n}"));
        let (priority, weight, port) = (0, 0, 1);
        let target = named("h.local");
        let data = Data::Srv {
            priority,
            weight,
            port,
            target,
        };
        record(&name, 120, data)
    };
    for turn in 0..400 {
        let orphans: Vec<Record> = (0..50).map(|n| orphan(turn * 50 + n)).collect();
        let now = ms(1000 + turn * 5);
        receive(&mut querier, &response(&orphans), now);
        querier.turn(now);
        assert!(
            querier.dirty.len() < 100,
            "{} names wait",
            querier.dirty.len()
        );
    }
    // Those of pointers that are withdrawn at once wait, and are looked at the faster the more they are.
    querier
        .dirty
        .extend((0..50_000).map(|n| instance(&format!("gone {n}"))));
    for turn in 0..1000 {
        querier.turn(ms(4000 + turn * 5));
    }
    assert!(
        querier.dirty.len() < 2000,
        "{} names wait",
        querier.dirty.len()
    );
}
