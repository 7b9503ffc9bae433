use super::{super::super::super::part::Bytes, *};
use crate::model::typed_names::ConfigurationKey;
use petiole_probe::certificate;

fn catalog(details: &str, bytes: usize) -> Catalog {
    let part = Part::new(&Bytes::new(bytes), &ConfigurationKey::new("a", "b"));
    Catalog::new(
        Arc::new(Details::parse(details, "public").unwrap_or_else(|e| panic!("{e}"))),
        part,
        &[target("10.1.9.9")],
    )
}

fn target(address: &str) -> Target {
    Target::Address(address.parse().unwrap())
}

fn answer(address: &str, shown: &[u8]) -> Result<Answer, String> {
    Ok(Answer {
        address: format!("{address}:443").parse().unwrap(),
        mac: None,
        facts: certificate(shown),
    })
}

fn addresses(catalog: &Catalog) -> Vec<String> {
    let set = catalog.devices(true);
    set.devices
        .values()
        .map(|d| d.properties["PROBE_ADDRESS"].clone())
        .collect()
}

fn fails(catalog: &mut Catalog, address: &str) {
    catalog.hear(target(address), Err("no connection: why?".to_owned()));
}

/// The problems beside that of the address that is not asked.
fn problems(catalog: &Catalog) -> Vec<String> {
    let mut problems = catalog.devices(true).problems;
    problems.retain(|problem| !problem.starts_with("1 addresses are not asked, such as 10.1.9.9"));
    problems
}

#[test]
fn a_device_is_gone_after_three_rounds_without_an_answer_and_one_answer_starts_anew() {
    let mut catalog = catalog("{hosts: 10.1.2.0/24, ask: https}", 1 << 20);
    fails(&mut catalog, "10.1.2.3");
    catalog.end_round();
    assert!(problems(&catalog).is_empty(), "nobody is there");
    for answers in [true, true, false] {
        catalog.hear(target("10.1.2.3"), answer("10.1.2.3", b"a"));
        for _ in 0..2 {
            fails(&mut catalog, "10.1.2.3");
            catalog.end_round();
            assert_eq!(addresses(&catalog), ["10.1.2.3"]);
            let said = &problems(&catalog)[0];
            assert!(
                said.starts_with("1 devices do not answer, such as 10.1.2.3"),
                "{said}"
            );
        }
        if !answers {
            fails(&mut catalog, "10.1.2.3");
            catalog.end_round();
        }
    }
    assert!(addresses(&catalog).is_empty() && problems(&catalog).is_empty());
    assert_eq!((catalog.bytes, catalog.len()), (0, 0));
}

#[test]
fn problems_are_few_however_many_hosts_do_not_answer() {
    let hosts: Vec<_> = (0..200).map(|n| format!("10.1.2.{n}")).collect();
    let details = format!("{{hosts: [{}, 10.1.3.0/24], ask: https}}", hosts.join(", "));
    let mut catalog = catalog(&details, 1 << 20);
    for host in &hosts {
        fails(&mut catalog, host);
    }
    for n in 1..200 {
        let address = format!("10.1.3.{n}");
        catalog.hear(target(&address), answer(&address, &[n]));
        fails(&mut catalog, &address);
    }
    catalog.end_round();
    let problems = problems(&catalog);
    assert_eq!(problems.len(), FAILURES_MAX + 2, "{problems:?}");
    assert!(
        problems[FAILURES_MAX].starts_with("184 more named hosts"),
        "{problems:?}"
    );
    assert!(
        problems[FAILURES_MAX + 1].starts_with("199 devices"),
        "{problems:?}"
    );
}

#[test]
fn a_host_that_is_named_by_itself_is_a_problem_until_it_answers() {
    let mut catalog = catalog("{hosts: [10.1.2.3, plc], ask: https}", 1 << 20);
    for round in 0..5 {
        fails(&mut catalog, "10.1.2.3");
        assert_eq!(problems(&catalog).len(), 1, "{round}");
    }
    catalog.hear(Target::Name("plc".to_owned()), answer("10.1.2.4", b"b"));
    catalog.hear(target("10.1.2.3"), answer("10.1.2.3", b"a"));
    assert!(problems(&catalog).is_empty());
    let set = catalog.devices(true);
    let ids: Vec<_> = set.devices.keys().map(|id| id.as_str()).collect();
    assert_eq!(ids, ["10.1.2.3:443", "plc:443"]);
}

#[test]
fn a_device_that_moves_stays_the_same_one_and_no_other_host_takes_its_identity() {
    let mut catalog = catalog("{hosts: 10.1.2.0/24, ask: tls}", 1 << 20);
    catalog.hear(target("10.1.2.3"), answer("10.1.2.3", b"a"));
    catalog.end_round();
    let id = catalog.devices(true).devices.keys().next().unwrap().clone();
    catalog.hear(target("10.1.2.2"), answer("10.1.2.2", b"a"));
    catalog.hear(target("10.1.2.9"), answer("10.1.2.9", b"a"));
    for _ in 0..2 {
        assert_eq!(addresses(&catalog), ["10.1.2.3"]);
        let problem = &problems(&catalog)[0];
        assert!(
            problem.starts_with("2 hosts are left out, such as 10.1.2.2"),
            "{problem}"
        );
        fails(&mut catalog, "10.1.2.3");
    }
    fails(&mut catalog, "10.1.2.3");
    assert_eq!(addresses(&catalog), ["10.1.2.2"]);
    catalog.end_round();
    catalog.hear(target("10.1.2.3"), answer("10.1.2.3", b"a"));
    assert_eq!(addresses(&catalog), ["10.1.2.2"]);
    catalog.hear(target("10.1.2.2"), answer("10.1.2.2", b"another"));
    assert_eq!(addresses(&catalog).len(), 2);
    let moved = &catalog.devices(true).devices[&id];
    assert_eq!(moved.properties["PROBE_ADDRESS"], "10.1.2.9");
}

#[test]
fn one_address_is_one_device_whatever_its_names_are() {
    let mut catalog = catalog("{hosts: [plc, 10.1.2.3], ask: modbus}", 1 << 20);
    catalog.hear(Target::Name("plc".to_owned()), answer("10.1.2.3", b"a"));
    catalog.hear(target("10.1.2.3"), answer("10.1.2.3", b"a"));
    assert_eq!(addresses(&catalog), ["10.1.2.3"]);
    assert!(problems(&catalog)[0].starts_with("1 hosts are left out, such as plc"));
}

#[test]
fn hosts_that_do_not_match_or_lack_their_identity_are_no_devices() {
    let filter =
        "{hosts: 10.1.2.0/24, ask: tls, match: {PROBE_ADDRESS: {regex: \"10[.]1[.]2[.]3\"}}}";
    let mut filtered = catalog(filter, 1 << 20);
    filtered.hear(target("10.1.2.3"), answer("10.1.2.3", b"a"));
    filtered.hear(target("10.1.2.4"), answer("10.1.2.4", b"b"));
    assert_eq!(addresses(&filtered), ["10.1.2.3"]);
    let mut nameless = catalog("{hosts: 10.1.2.0/24, ask: tls, identity: mac}", 1 << 20);
    nameless.hear(target("10.1.2.3"), answer("10.1.2.3", b"a"));
    let set = nameless.devices(true);
    assert!(set.devices.is_empty() && set.problems[0].contains("`identity`"));
}

#[test]
fn what_is_kept_is_bounded_and_devices_that_are_there_stay() {
    let mut catalog = catalog("{hosts: 10.1.2.0/24, ask: tls}", 4 * (ANSWER_BYTES + 200));
    for n in 1..9 {
        let address = format!("10.1.2.{n}");
        catalog.hear(target(&address), answer(&address, &[n]));
    }
    let set = catalog.devices(true);
    assert!(set.left_out && !set.is_whole() && (1..8).contains(&set.devices.len()));
    catalog.end_round();
    catalog.hear(target("10.1.2.1"), answer("10.1.2.1", b"another"));
    assert!(addresses(&catalog).contains(&"10.1.2.1".to_owned()));
    assert!(
        !catalog.devices(true).is_whole(),
        "until a round says otherwise"
    );
    catalog.end_round();
    assert!(catalog.devices(true).is_whole());
}
