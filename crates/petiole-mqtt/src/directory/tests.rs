use super::*;
use crate::{
    rule::Topics,
    topic::{ID_MAX, TOPIC_MAX},
};
use proptest::prelude::*;

fn there(directory: &Directory) -> Vec<String> {
    let ids: BTreeSet<_> = directory
        .devices
        .iter()
        .map(|link| link.0.clone())
        .collect();
    let ids = ids.into_iter().filter(|id| directory.device(id).is_some());
    ids.map(|id| id.to_string()).collect()
}

fn home_assistant() -> Directory {
    let prefix = "ha".to_owned();
    Directory::new(Rule::HomeAssistant { prefix })
}

/// Hears a message. Returns the topics that are watched since then, and with a minus those that are no longer.
fn topics(directory: &mut Directory, topic: &str, payload: &str) -> Vec<String> {
    directory.hear(topic, payload.as_bytes());
    let topics = directory.take_topics().into_iter();
    topics
        .map(|(topic, is_watched)| format!("{}{topic}", if is_watched { "" } else { "-" }))
        .collect()
}

#[test]
fn a_topic_of_a_pattern_is_a_device_until_it_is_offline_or_empty() {
    let topics = |online: Option<&str>| {
        Directory::new(Rule::Topics(Topics {
            pattern: "z/{name}/lwt".parse().unwrap(),
            online: online.map(str::to_owned),
            offline: "offline".to_owned(),
        }))
    };
    let mut directory = topics(None);
    assert_eq!(directory.filters(), ["z/+/lwt"]);
    for (payload, expected) in [
        (&b"online"[..], 1),
        (b"offline", 0),
        (b"{\"state\":\"online\"}", 1),
        (b"{\"state\":\"offline\"}", 0),
        (b"21.5", 1),
        (b"", 0),
    ] {
        directory.hear("z/lamp/lwt", payload);
        assert_eq!(there(&directory).len(), expected, "{payload:?}");
    }
    directory.hear("z/lamp/other", b"online");
    assert!(there(&directory).is_empty());
    let mut directory = topics(Some("Online"));
    directory.hear("z/lamp/lwt", b"Online");
    directory.hear("z/lamp/lwt", b"neither");
    let id = Arc::from("z/lamp/lwt");
    let found = directory.device(&id).unwrap();
    assert_eq!(found.topic, Some("z/lamp/lwt"));
    assert_eq!(found.facts.iter().collect::<Vec<_>>(), [("NAME", "lamp")]);
}

#[test]
fn a_device_of_home_assistant_is_there_while_one_of_its_entities_is_available() {
    let mut directory = home_assistant();
    let entity = |n: u8| format!(r#"{{"dev":{{"ids":"lamp"}},"avty_t":"lwt/{n}"}}"#);
    assert_eq!(
        topics(&mut directory, "ha/light/1/config", &entity(1)),
        ["lwt/1"]
    );
    directory.hear("ha/sensor/x/2/config", entity(2).as_bytes());
    assert!(there(&directory).is_empty(), "nothing was said yet");
    directory.take_changes();
    directory.hear("lwt/2", b"online");
    assert_eq!(directory.take_changes().len(), 1);
    assert_eq!(there(&directory), ["lamp"]);
    directory.hear("lwt/1", b"offline");
    assert_eq!(there(&directory), ["lamp"]);
    directory.hear("ha/sensor/x/2/config", b"");
    assert!(there(&directory).is_empty());
    directory.hear("lwt/1", b"online");
    directory.hear("ha/light/1/config", b"");
    assert!(there(&directory).is_empty());
    assert_eq!((directory.bytes(), directory.states.len()), (0, 0));
    directory.hear("lwt/1", b"online");
    assert!(directory.states.is_empty(), "nobody watches it any more");
}

#[test]
fn the_mode_says_which_topics_count() {
    for (mode, both) in [
        ("all", [false, false, true, false]),
        ("any", [true, true, true, true]),
        ("latest", [true, false, true, false]),
    ] {
        let mut directory = home_assistant();
        let config = format!(r#"{{"avty":[{{"t":"a"}},{{"t":"b"}}],"avty_mode":"{mode}"}}"#);
        directory.hear("ha/x/y/config", config.as_bytes());
        let said = [
            ("a", "online"),
            ("b", "offline"),
            ("b", "online"),
            ("a", "offline"),
        ];
        let there = said.map(|(topic, payload)| {
            directory.hear(topic, payload.as_bytes());
            !there(&directory).is_empty()
        });
        assert_eq!(there, both, "{mode}");
    }
}

#[test]
fn the_death_of_an_edge_node_is_that_of_its_devices_and_a_late_one_is_ignored() {
    let mut directory = Directory::new(Rule::Sparkplug { group: None });
    // The metric bdSeq with a value below 128, as protobuf.
    let session = |n: u8| [b"\x12\x09\x0a\x05bdSeq\x58".as_slice(), &[n]].concat();
    directory.hear("spBv1.0/g/NBIRTH/gate", &session(2));
    directory.hear("spBv1.0/g/DBIRTH/gate/press", b"");
    directory.hear("spBv1.0/g/DDATA/gate/oven", b"");
    let all = [
        "spBv1.0/g/gate",
        "spBv1.0/g/gate/oven",
        "spBv1.0/g/gate/press",
    ];
    assert_eq!(there(&directory), all);
    directory.hear("spBv1.0/g/NDEATH/gate", &session(1));
    assert_eq!(there(&directory), all);
    directory.hear("spBv1.0/g/DDEATH/gate/oven", b"");
    assert_eq!(there(&directory).len(), 2);
    directory.hear("spBv1.0/g/NBIRTH/gate", &session(0));
    directory.hear("spBv1.0/g/NDEATH/gate", &session(1));
    assert!(there(&directory).is_empty());
    assert_eq!((directory.bytes(), directory.device_count), (0, 0));
}

#[test]
fn a_flood_is_bounded_and_said() {
    let mut directory = home_assistant();
    for n in 0..DEVICES_MAX + 5 {
        directory.hear(&format!("ha/x/{n}/config"), b"{}");
    }
    assert_eq!(
        (there(&directory).len(), directory.leaves_out()),
        (DEVICES_MAX, true)
    );
    let mut directory = home_assistant();
    directory.limit_to(4096);
    for n in 0..100 {
        let name = "n".repeat(5000);
        directory.hear(
            &format!("ha/x/{n}/config"),
            format!(r#"{{"name":"{name}"}}"#).as_bytes(),
        );
        assert!(directory.bytes() <= 4096);
    }
    assert!(directory.leaves_out() && !there(&directory).is_empty());
    directory.hear("ha/x/y/config", b"{");
    directory.hear("ha/x/z/config", b"{");
    let (count, first) = directory.unusable().unwrap();
    assert_eq!((count, &*first), (2, "\"ha/x/y/config\": it is not JSON"));
    directory.hear(&"t".repeat(TOPIC_MAX + 1), b"x");
    assert_eq!(directory.unusable().unwrap().0, 2);
    for n in 0..2 * UNUSABLE_MAX {
        directory.hear(&format!("ha/z/{n}/config"), b"{");
    }
    assert_eq!(directory.unusable().unwrap().0, 2 + 2 * UNUSABLE_MAX);
}

#[test]
fn a_message_that_was_not_usable_is_forgotten_when_its_topic_has_another_or_none() {
    let mut directory = home_assistant();
    for payload in [&b"{}"[..], b""] {
        directory.hear("ha/x/y/config", b"{");
        assert!(directory.unusable().is_some());
        directory.hear("ha/x/y/config", payload);
        assert!(directory.unusable().is_none());
    }
}

#[test]
fn what_was_left_out_is_asked_for_again_when_there_is_room_and_then_it_is_not_left_out() {
    let mut directory = home_assistant();
    let repeat = |directory: &mut Directory| {
        directory.hear("ha/x/a/config", b"{}");
        let one = directory.bytes();
        directory.hear("ha/x/b/config", b"{}");
        one
    };
    directory.limit_to(400);
    let one = repeat(&mut directory);
    assert!(directory.leaves_out() && there(&directory).len() == 1);
    directory.limit_to(one + 1);
    assert!(!directory.begin_again(), "there is no room");
    // Room for both, and not much more.
    directory.limit_to(2 * one + 1);
    assert!(directory.begin_again());
    repeat(&mut directory);
    assert_eq!((there(&directory).len(), directory.leaves_out()), (2, true));
    directory.take_changes();
    assert!(!directory.begin_again(), "nothing was left out meanwhile");
    assert!(!directory.leaves_out() && directory.has_changes());
}

#[test]
fn what_comes_again_changes_nothing_and_what_changes_keeps_its_state() {
    let mut directory = home_assistant();
    let config = |name: &str, more: &str| {
        format!(r#"{{"name":"{name}","dev":{{"ids":"lamp"}},"avty":[{{"t":"lwt"}}{more}]}}"#)
    };
    let hear =
        |directory: &mut Directory, payload: String| topics(directory, "ha/x/y/config", &payload);
    assert_eq!(hear(&mut directory, config("a", "")), ["lwt"]);
    assert!(hear(&mut directory, config("a", "")).is_empty());
    directory.hear("lwt", b"online");
    assert_eq!(there(&directory), ["lamp"]);
    directory.take_changes();
    directory.hear("ha/x/y/config", config("a", "").as_bytes());
    assert!(!directory.has_changes());
    let changed = config("b", r#",{"t":"more"}"#);
    assert_eq!(hear(&mut directory, changed), ["more"]);
    assert_eq!(there(&directory), ["lamp"]);
    assert_eq!(hear(&mut directory, config("b", "")), ["-more"]);
    assert_eq!(hear(&mut directory, String::new()), ["-lwt"]);
    // Who watches a topic again needs what is retained there.
    assert_eq!(hear(&mut directory, config("b", "")), ["lwt"]);
    directory.hear("ha/x/y/config", b"");
    assert_eq!(hear(&mut directory, config("b", "")), ["lwt"]);
}

#[test]
fn messages_whose_topics_of_availability_are_each_other_end() {
    let mut directory = home_assistant();
    let config = |of: &str| format!(r#"{{"avty_t":"ha/x/{of}/config"}}"#);
    let mut due = vec!["ha/x/a/config".to_owned(), "ha/x/b/config".to_owned()];
    for _ in 0..9 {
        let Some(topic) = due.pop() else { return };
        let other = if topic.contains("/a/") { "b" } else { "a" };
        due.extend(topics(&mut directory, &topic, &config(other)));
    }
    panic!("{due:?} is due for ever");
}

#[test]
fn an_entity_without_availability_does_not_hide_that_another_is_gone() {
    let mut directory = home_assistant();
    directory.hear("ha/x/a/config", br#"{"dev":{"ids":"lamp"}}"#);
    assert_eq!(there(&directory), ["lamp"]);
    directory.hear("ha/x/b/config", br#"{"dev":{"ids":"lamp"},"avty_t":"lwt"}"#);
    assert!(there(&directory).is_empty());
    directory.hear("lwt", b"online");
    assert_eq!(there(&directory), ["lamp"]);
}

#[test]
fn a_known_device_that_does_not_grow_is_taken_beyond_the_limit() {
    let mut directory = home_assistant();
    directory.hear("ha/x/a/config", br#"{"name":"first"}"#);
    directory.limit_to(1);
    directory.hear("ha/x/a/config", br#"{"name":"other"}"#);
    assert!(!directory.leaves_out());
    let id = Arc::from("x/a");
    let name = |directory: &Directory| {
        let facts = directory.device(&id).unwrap().facts.iter();
        facts.map(|(_, value)| value.to_owned()).collect::<String>()
    };
    assert_eq!(name(&directory), "other");
    directory.hear("ha/x/a/config", br#"{"name":"longer"}"#);
    assert_eq!(
        (name(&directory).as_str(), directory.leaves_out()),
        ("other", true)
    );
    directory.hear("ha/x/b/config", b"{}");
    assert_eq!(there(&directory), ["x/a"]);
}

#[test]
fn an_identity_is_short_and_plain() {
    let mut directory = home_assistant();
    for id in ["a\\nb", &"n".repeat(ID_MAX + 1)] {
        directory.hear(
            "ha/x/a/config",
            format!(r#"{{"uniq_id":"{id}"}}"#).as_bytes(),
        );
    }
    directory.hear("ha/x/a\n/config", b"{}");
    assert!(there(&directory).is_empty());
    assert_eq!(directory.unusable().unwrap().0, 1);
}

proptest! {
    #[test]
    fn what_is_counted_is_what_is_kept(
        messages in proptest::collection::vec((0_u8..4, 0_u8..4, 0_u8..4), 0..60),
    ) {
        let mut directory = home_assistant();
        for (kind, a, b) in messages {
            match kind {
                0 => directory.hear(&format!("ha/x/{a}/config"), b""),
                1 => directory.hear(&format!("lwt/{a}"), b"online"),
                _ => {
                    let config = format!(r#"{{"dev":{{"ids":"{b}"}},"avty_t":"lwt/{b}"}}"#);
                    directory.hear(&format!("ha/x/{a}/config"), config.as_bytes());
                }
            }
            let devices: BTreeSet<_> = directory.devices.iter().map(|link| &link.0).collect();
            prop_assert_eq!(devices.len(), directory.device_count);
            let bytes: usize = directory.sources.iter().map(|(id, s)| s.bytes(id)).sum();
            prop_assert_eq!(bytes, directory.bytes);
            let watched: BTreeSet<_> = directory.watched.iter().map(|link| &link.0).collect();
            prop_assert_eq!(watched.len(), directory.states.len());
        }
    }
}
