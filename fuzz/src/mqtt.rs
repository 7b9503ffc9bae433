//! Fuzzes what a broker sends. An input begins with a byte for the rule and the version; the rest is the bytes of the broker, which come
//! in parts of the size of the second byte.
use crate::bytes::Reader;
use petiole_mqtt::{
    Directory, Event, Login, Protocol, Rule, Session, Topics, is_topic,
    limits::{BYTES_MAX, FACT_MAX, ID_MAX, PAYLOAD_MAX},
};
use std::time::Duration;

pub fn run(input: &[u8]) {
    let mut input = Reader(input);
    let kind = input.below(6);
    let size = usize::from(input.byte()) + 1;
    let rule = match kind % 3 {
        0 => Rule::Topics(Topics {
            pattern: "z/{name}".parse().expect("it is a pattern"),
            online: None,
            offline: "offline".to_owned(),
        }),
        1 => Rule::HomeAssistant {
            prefix: "h".to_owned(),
        },
        _ => Rule::Sparkplug { group: None },
    };
    let login = Login {
        protocol: if kind < 3 { Protocol::V5 } else { Protocol::V3 },
        client_id: "fuzz".to_owned(),
        user: None,
        password: None,
    };
    let mut directory = Directory::new(rule);
    let mut now = Duration::ZERO;
    let mut session = Session::start(&login, now);
    for filter in directory.filters() {
        assert!(session.subscribe(filter));
    }
    for part in input.0.chunks(size) {
        let Ok(turn) = session.turn(now) else {
            return;
        };
        assert!(turn.wake > now, "a busy loop");
        now += Duration::from_millis(1);
        let heard = session.receive(part, |event| {
            if let Event::Message { topic, payload } = event {
                assert!(payload.len() <= PAYLOAD_MAX);
                directory.hear(topic, payload);
            }
        });
        if let Err(failure) = heard {
            assert!(failure.to_string().len() < 2000 && !failure.remedy().is_empty());
            return;
        }
        for (topic, is_watched) in directory.take_topics() {
            assert!(is_topic(&topic));
            if is_watched {
                session.subscribe(topic);
            } else {
                session.unsubscribe(&topic);
            }
        }
        assert!(directory.bytes() <= BYTES_MAX);
        for id in directory.take_changes() {
            assert!(id.len() <= ID_MAX && !id.contains(char::is_control));
            let found = directory.device(&id);
            let facts = found.iter().flat_map(|found| found.facts.iter());
            for (name, value) in facts {
                assert!(
                    !name.is_empty()
                        && value.len() <= FACT_MAX
                        && !value.contains(char::is_control)
                );
            }
        }
        assert!(!directory.has_changes());
    }
}
