//! Tests of who may register, and who is forgotten for another.
use super::*;
use proptest::{collection::vec, prelude::*};

fn rules() -> Rules {
    Rules {
        folder: "/var/lib/akri".to_owned(),
        reserved: BTreeSet::from(["udev".to_owned()]),
    }
}

fn request(name: &str, endpoint: &str, kind: i32) -> RegisterDiscoveryHandlerRequest {
    RegisterDiscoveryHandlerRequest {
        name: name.to_owned(),
        endpoint: endpoint.to_owned(),
        endpoint_type: kind,
        shared: true,
    }
}

fn read(name: &str, endpoint: &str, kind: i32) -> Result<String, String> {
    let read = Registration::read(request(name, endpoint, kind), &rules(), Duration::ZERO)?;
    Ok(read.endpoint.to_string())
}

fn registration(name: &str, n: usize) -> Registration {
    let endpoint = format!("http://10.0.0.{n}:10000");
    Registration::read(request(name, &endpoint, 1), &rules(), Duration::ZERO).unwrap()
}

#[test]
fn what_another_agent_has_kept_is_added_and_no_handler_is_asked_again() {
    let mut ours = Registrations::default();
    ours.register(registration("a", 1)).unwrap();
    let mut kept = ours.clone();
    kept.register(registration("a", 2)).unwrap();
    kept.register(registration("b", 3)).unwrap();
    ours.add_kept(kept);
    let all = ["a", "b"].map(|name| Vec::from_iter(ours.of(name).map(|r| r.endpoint.to_string())));
    let expected = [
        vec!["http://10.0.0.1:10000", "http://10.0.0.2:10000"],
        vec!["http://10.0.0.3:10000"],
    ];
    assert_eq!(
        all,
        expected.map(|of| Vec::from_iter(of.into_iter().map(str::to_owned)))
    );
    assert!(
        ours.of("a").all(|r| r.times == 0),
        "nobody has registered again"
    );
}

#[test]
fn endpoints_are_read_as_akris_handlers_write_them() {
    for (endpoint, kind, expected) in [
        ("/var/lib/akri/onvif.sock", 0, "/var/lib/akri/onvif.sock"),
        ("unix:///var/lib/akri/a.sock", 0, "/var/lib/akri/a.sock"),
        ("unix:/var/lib/akri/a.sock", 0, "/var/lib/akri/a.sock"),
        ("http://10.1.2.3:10000", 1, "http://10.1.2.3:10000"),
        ("10.1.2.3:10000", 1, "http://10.1.2.3:10000"),
        ("http://[fd00::1]:10000/", 1, "http://[fd00::1]:10000"),
        ("http://onvif.akri", 1, "http://onvif.akri"),
    ] {
        assert_eq!(read("onvif", endpoint, kind).unwrap(), expected);
    }
}

#[test]
fn a_registration_that_cannot_be_is_refused_with_its_field() {
    let long = format!("/var/lib/akri/{}.sock", "x".repeat(100));
    for (name, endpoint, kind, message) in [
        ("", "/var/lib/akri/a.sock", 0, "name:"),
        ("-a", "/var/lib/akri/a.sock", 0, "name:"),
        ("a b", "/var/lib/akri/a.sock", 0, "name:"),
        ("a\n", "/var/lib/akri/a.sock", 0, "name:"),
        (&"x".repeat(64), "/var/lib/akri/a.sock", 0, "name:"),
        ("udev", "/var/lib/akri/a.sock", 0, "built in"),
        (
            "a",
            "/run/containerd/containerd.sock",
            0,
            "is not in /var/lib/akri",
        ),
        ("a", "/var/lib/akri-2/a.sock", 0, "is not in /var/lib/akri"),
        ("a", "/var/lib/akri/../../../run/a.sock", 0, "endpoint:"),
        ("a", "/var/lib/akri/", 0, "endpoint:"),
        ("a", "a.sock", 0, "endpoint:"),
        ("a", &long, 0, "at most 107 bytes"),
        ("a", "https://10.0.0.1:1", 1, "in plain text"),
        ("a", "http://user@10.0.0.1:1", 1, "endpoint:"),
        ("a", "http://10.0.0.1:1/path", 1, "endpoint:"),
        ("a", "http://10.0.0.1:70000", 1, "endpoint:"),
        ("a", "http://", 1, "endpoint:"),
        ("a", "http://[::1", 1, "endpoint:"),
        ("a", "/var/lib/akri/a.sock", 2, "endpoint_type is 2"),
    ] {
        let refused = read(name, endpoint, kind).unwrap_err();
        assert!(refused.contains(message), "{name} {endpoint}: {refused}");
    }
}

#[test]
fn of_many_endpoints_of_a_name_the_one_that_was_used_longest_ago_goes() {
    let mut all = Registrations::default();
    for n in 0..ENDPOINTS_MAX {
        assert_eq!(all.register(registration("cam", n)), Ok(None));
    }
    let first = registration("cam", 0).endpoint;
    all.answers("cam", &first, 1);
    all.ended(Some(&first), 1, Duration::ZERO);
    assert_eq!(
        all.register(registration("cam", 1)),
        Ok(None),
        "it is known"
    );
    let gone = all.register(registration("cam", 100)).unwrap().unwrap();
    assert_eq!(gone, Forgotten::Endpoint(registration("cam", 2).endpoint));
    assert_eq!(all.of("cam").count(), ENDPOINTS_MAX);
}

#[test]
fn an_endpoint_that_answers_is_never_forgotten_for_another() {
    let mut all = Registrations::default();
    for n in 0..ENDPOINTS_MAX {
        all.register(registration("cam", n)).unwrap();
    }
    // The oldest one answers two discoveries, and registers again.
    let at = |n: usize| registration("cam", n).endpoint;
    for follower in [1, 2] {
        all.answers("cam", &at(0), follower);
    }
    for n in 1..ENDPOINTS_MAX {
        all.answers("cam", &at(n), 1);
    }
    all.register(registration("cam", 0)).unwrap();
    let before = all.clone();
    let refused = all.register(registration("cam", 100)).unwrap_err();
    assert!(matches!(refused, Refused::TooMany(_)), "{refused}");
    assert_eq!(all, before);
    all.ended(Some(&at(0)), 1, Duration::ZERO);
    assert!(
        all.register(registration("cam", 100)).is_err(),
        "one follows it"
    );
    all.ended(None, 2, Duration::ZERO);
    assert_eq!(
        all.register(registration("cam", 100)),
        Ok(Some(Forgotten::Endpoint(at(0))))
    );
}

#[test]
fn an_isolated_handler_has_its_place_is_in_no_file_and_is_never_forgotten() {
    let mut all = Registrations::default();
    let socket = "/var/lib/akri/isolated/cam/cam.sock".to_owned();
    all.add_isolated("cam", socket, Scope::Shared);
    assert_eq!(
        all.names(),
        BTreeMap::from([("cam".to_owned(), Scope::Shared)])
    );
    assert!(!all.text().contains("cam"), "{}", all.text());
    let mut last_used = Duration::ZERO;
    for n in 0..2 * NAMES_MAX {
        last_used += UNUSED_NAME_HOLD;
        let other = Registration {
            last_used,
            ..registration(&format!("other-{n}"), 0)
        };
        all.register(other).unwrap();
    }
    assert_eq!(all.of("cam").filter(|r| r.is_isolated).count(), 1);
}

#[test]
fn only_what_is_reached_by_a_file_gives_paths_and_of_the_isolated_handlers_those_of_the_node() {
    let mut all = Registrations::default();
    let isolated = |name: &str| format!("/var/lib/akri/isolated/{name}/{name}.sock");
    all.add_isolated("zeroconf", isolated("zeroconf"), Scope::Shared);
    all.add_isolated("udev", isolated("udev"), Scope::Node);
    all.register(registration("remote", 0)).unwrap();
    let local = Registration {
        endpoint: Endpoint::Unix("/var/lib/akri/cam.sock".to_owned()),
        ..registration("local", 1)
    };
    all.register(local).unwrap();
    let allowed = Arc::new(HostPaths::all());
    let paths = |name| all.of(name).next().unwrap().paths(&allowed);
    let names = ["zeroconf", "udev", "remote", "local"];
    let nodes = names.map(|name| !paths(name).device_nodes.is_empty());
    assert_eq!(nodes, [false, true, false, true]);
    let mounts = names.map(|name| !paths(name).mounts.is_empty());
    assert_eq!(mounts, [false, false, false, true]);
}

#[test]
fn an_endpoint_from_the_file_is_restored_until_it_answers() {
    let mut all = Registrations::default();
    all.register(registration("cam", 1)).unwrap();
    let is_restored = |all: &Registrations| all.of("cam").all(|r| r.is_restored);
    assert!(!is_restored(&all));
    let (mut all, _) = Registrations::parse(&all.text(), &rules());
    all.register(registration("cam", 1)).unwrap();
    assert!(is_restored(&all), "it has said nothing of its devices");
    all.answers("cam", &registration("cam", 1).endpoint, 1);
    assert!(!is_restored(&all));
}

#[test]
fn a_name_that_no_configuration_has_used_for_long_is_forgotten_for_one_beyond_the_bound() {
    let at = |name: &str, now| Registration {
        last_used: now,
        ..registration(name, 1)
    };
    let mut all = Registrations::default();
    for n in 0..NAMES_MAX {
        let now = Duration::from_secs(n as u64);
        all.register(at(&format!("h{n}"), now)).unwrap();
    }
    // The first one is used. The second one was used until now, and the third one registers again.
    all.begun("h0", 1);
    all.begun("h1", 2);
    let second = registration("h1", 1).endpoint;
    all.answers("h1", &second, 2);
    all.ended(None, 2, UNUSED_NAME_HOLD);
    all.register(at("h2", UNUSED_NAME_HOLD)).unwrap();
    let before = all.clone();
    let early = UNUSED_NAME_HOLD + Duration::from_secs(2);
    assert!(all.register(at("more", early)).is_err());
    assert_eq!(all, before);
    let late = UNUSED_NAME_HOLD + Duration::from_secs(3);
    let gone = Ok(Some(Forgotten::Name("h3".to_owned())));
    assert_eq!(all.register(at("more", late)), gone);
    assert!(!all.names().contains_key("h3") && all.names().contains_key("more"));
    assert_eq!(all.names().len(), NAMES_MAX);
    assert!(all.register(at("another", late)).is_err());
    // The handler of the first one did not answer. A Configuration that is deleted and created again keeps the name.
    all.ended(None, 1, late);
    assert!(all.register(at("another", late)).is_err());
    let later = late + Duration::from_secs(1);
    let gone = Ok(Some(Forgotten::Name("h4".to_owned())));
    assert_eq!(all.register(at("another", later)), gone);
}

#[test]
fn names_beyond_the_bound_are_refused_and_none_is_forgotten_for_them() {
    let mut all = Registrations::default();
    for n in 0..NAMES_MAX {
        all.register(registration(&format!("h{n}"), n)).unwrap();
    }
    let before = all.clone();
    let refused = all.register(registration("one-more", 1)).unwrap_err();
    assert!(
        refused.to_string().contains("32 other handlers"),
        "{refused}"
    );
    assert_eq!(all, before);
    all.register(registration("h0", 200)).unwrap();
}

#[test]
fn all_endpoints_of_a_name_say_the_same_of_shared_and_the_only_one_may_change_it() {
    let mut all = Registrations::default();
    let as_local = |n: usize| Registration {
        shared: false,
        ..registration("cam", n)
    };
    all.register(registration("cam", 1)).unwrap();
    let refused = all.register(as_local(2)).unwrap_err();
    assert!(matches!(refused, Refused::Contradicts(_)), "{refused}");
    assert!(
        refused
            .to_string()
            .contains("true for http://10.0.0.1:10000"),
        "{refused}"
    );
    assert_eq!(all.names()["cam"], Scope::Shared);
    all.register(as_local(1)).unwrap();
    assert_eq!(all.names()["cam"], Scope::Node);
    all.register(as_local(2)).unwrap();
    assert!(all.register(registration("cam", 1)).is_err(), "two say no");
}

#[test]
fn a_damaged_file_costs_only_what_is_damaged() {
    let mut all = Registrations::default();
    all.register(registration("cam", 1)).unwrap();
    let text = all.text();
    let all = Registrations::parse(&text, &rules()).0;
    assert_eq!(all.text(), text);
    let more = text.replace("[\n", "[\n7, {\"name\": \"udev\", \"endpoint\": {\"network\": \"http://a:1\"}, \"shared\": true},\n");
    let (read, problems) = Registrations::parse(&more, &rules());
    assert_eq!((read, problems.len()), (all, 2), "{problems:?}");
    for text in ["", "[]", "{\"handlers\": 7}", &text[..20]] {
        let (read, problems) = Registrations::parse(text, &rules());
        assert_eq!((read, problems.len()), (Registrations::default(), 1));
    }
}

proptest! {
    #[test]
    fn what_is_registered_is_bounded_and_comes_back_from_the_file(
        asked in vec(("[a-d]{1,2}[0-9]?", 0_usize..20, any::<bool>()), 0..200),
    ) {
        let mut all = Registrations::default();
        for (name, n, shared) in asked {
            let new = Registration { shared, ..registration(&name, n) };
            all.register(new).ok(); // the bounds refuse some
        }
        prop_assert!(all.names().len() <= NAMES_MAX);
        prop_assert!(all.names().keys().all(|name| all.of(name).count() <= ENDPOINTS_MAX));
        let text = all.text();
        prop_assert!(text.len() as u64 <= FILE_MAX);
        let (read, problems) = Registrations::parse(&text, &rules());
        prop_assert_eq!(problems, Vec::<String>::new());
        prop_assert_eq!(read.text(), text);
    }
}
