//! Tests of machines that share a host name, and of a machine with two interfaces.
use super::*;

/// Lets each source answer for its services every ten seconds. Returns the twin of the first service after that.
fn twin_of_a(answers: &[(&str, &[&str])]) -> Option<String> {
    let mut querier = Querier::new(3);
    querier.set_links(vec![eth()], &[], ms(0));
    querier.subscribe(1, wanted(TYPE), ms(0));
    let mut twin = None;
    for round in 0..9_u64 {
        for (n, (source, services)) in answers.iter().enumerate() {
            let now = ms(round * 10_000 + u64::try_from(n).unwrap());
            let ip: Ipv4Addr = source.parse().unwrap();
            for label in *services {
                let mut records = service(label);
                records[3].data = Data::A(ip);
                records[3].flush = false;
                let packet = Packet {
                    link: ETH,
                    family: Family::V4,
                    source: SocketAddr::from((ip, 5353)),
                    is_multicast: true,
                    hop_limit: 255,
                    bytes: &response(&records),
                };
                querier.receive(&packet, now);
            }
            for change in querier.turn(now).changes {
                let Change {
                    name,
                    service: found,
                    ..
                } = change;
                if name == instance("a") {
                    twin = found.and_then(|s| s.twin.as_ref().map(ToString::to_string));
                }
            }
        }
    }
    twin
}

#[test]
fn two_machines_of_one_host_name_are_noticed() {
    let twins: &[(&str, &[&str])] = &[("10.0.0.7", &["a"]), ("10.0.0.8", &["b"])];
    assert_eq!(twin_of_a(twins).as_deref(), Some("b._t._tcp.local"));
}

#[test]
fn one_machine_with_two_interfaces_or_two_services_is_no_twin_of_itself() {
    let two_interfaces: &[(&str, &[&str])] =
        &[("10.0.0.7", &["a", "b"]), ("10.0.0.8", &["a", "b"])];
    assert_eq!(twin_of_a(two_interfaces), None);
    let two_services: &[(&str, &[&str])] = &[("10.0.0.7", &["a", "b"])];
    assert_eq!(twin_of_a(two_services), None);
    let moved: &[(&str, &[&str])] = &[("10.0.0.7", &["a"]), ("10.0.0.8", &["a"])];
    assert_eq!(twin_of_a(moved), None);
}
