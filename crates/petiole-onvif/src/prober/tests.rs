use super::*;
use proptest::prelude::*;

const ETH0: u32 = 2;

/// A camera of the LAN, which answers the spellings that it knows.
struct Camera {
    uuid: String,
    at: SocketAddr,
    is_on: bool,
    answers: Vec<Spelling>,
    /// It hears no multicast: it is in another network.
    is_remote: bool,
}

struct Lan {
    prober: Prober,
    cameras: Vec<Camera>,
    now: Duration,
    sent: Vec<(Duration, Outgoing)>,
}

fn settings() -> Settings {
    Settings {
        window: SECOND,
        subnets: vec![],
        per_second: 50,
    }
}

fn message(kind: &str, uuid: &str, sequence: &str, xaddrs: &str) -> Vec<u8> {
    format!(
        "<e><Header>{sequence}</Header><Body><{kind}><EndpointReference><Address>urn:uuid:{uuid}</Address></EndpointReference>\
         <Types>dn:NetworkVideoTransmitter</Types><XAddrs>{xaddrs}</XAddrs></{kind}></Body></e>"
    )
    .into_bytes()
}

fn spelling_of(bytes: &[u8]) -> Spelling {
    let text = String::from_utf8_lossy(bytes);
    let found = Spelling::ALL.into_iter().find(|spelling| match spelling {
        Spelling::Transmitter => text.contains("dn:NetworkVideoTransmitter<"),
        Spelling::Device => text.contains("tds:Device<"),
        Spelling::Any => text.contains("<d:Types/>"),
    });
    found.unwrap()
}

impl Lan {
    fn new(settings: Settings, cameras: usize) -> Self {
        let camera = |n: usize| Camera {
            uuid: format!("cam-{n}"),
            at: SocketAddr::from((
                [
                    10,
                    0,
                    u8::try_from(n / 250).unwrap(),
                    u8::try_from(n % 250 + 1).unwrap(),
                ],
                PORT,
            )),
            is_on: true,
            answers: Spelling::ALL.to_vec(),
            is_remote: false,
        };
        let mut prober = Prober::new(settings, 7, Duration::ZERO);
        prober.set_paths(BTreeSet::from([(ETH0, Family::V4)]), Duration::ZERO);
        Self {
            prober,
            cameras: (0..cameras).map(camera).collect(),
            now: Duration::ZERO,
            sent: vec![],
        }
    }

    /// Takes every turn until `end`.
    fn run_until(&mut self, end: Duration) {
        loop {
            let turn = self.prober.turn(self.now);
            assert!(turn.wake > self.now, "a busy loop at {:?}", self.now);
            for probe in turn.send {
                self.answer(&probe);
                self.sent.push((self.now, probe));
            }
            if turn.wake > end {
                break;
            }
            self.now = turn.wake;
        }
        self.now = end;
    }

    fn answer(&mut self, probe: &Outgoing) {
        let spelling = spelling_of(&probe.bytes);
        for camera in self
            .cameras
            .iter()
            .filter(|c| c.is_on && c.answers.contains(&spelling))
        {
            let is_reached = match probe.to {
                To::Group { .. } => !camera.is_remote,
                To::Address(address) => address == camera.at,
            };
            if is_reached {
                let url = format!("http://{}/onvif/device_service", camera.at.ip());
                let bytes = message("ProbeMatch", &camera.uuid, "", &url);
                // Each answer comes twice.
                for _ in 0..2 {
                    self.prober
                        .receive(camera.at, &bytes, self.now + Duration::from_millis(1));
                }
            }
        }
    }

    fn names(&self) -> Vec<&str> {
        self.prober.devices().map(|device| device.uuid()).collect()
    }

    fn tell(&mut self, source: SocketAddr, bytes: &[u8]) {
        assert!(self.prober.receive(source, bytes, self.now));
    }
}

#[test]
fn two_hundred_cameras_are_found_in_the_first_round_and_cost_less_than_two_packets_a_second() {
    let mut lan = Lan::new(settings(), 200);
    lan.run_until(SECOND / 2);
    assert_eq!(lan.names().len(), 200);
    assert!(!lan.prober.is_complete(lan.now));
    lan.run_until(2 * SECOND);
    assert!(lan.prober.is_complete(lan.now));
    lan.run_until(20 * SECOND);
    lan.sent.clear();
    lan.run_until(620 * SECOND);
    assert!(lan.sent.len() < 200, "{} packets in 600 s", lan.sent.len());
    assert!(
        lan.sent
            .iter()
            .all(|(_, probe)| matches!(probe.to, To::Group { .. }))
    );
}

#[test]
fn a_camera_that_knows_one_spelling_is_found_and_stays() {
    for spelling in Spelling::ALL {
        let mut lan = Lan::new(settings(), 1);
        lan.cameras[0].answers = vec![spelling];
        lan.run_until(2 * SECOND);
        assert_eq!(lan.names(), ["cam-0"], "{spelling:?}");
        lan.run_until(300 * SECOND);
        assert_eq!(lan.names(), ["cam-0"], "{spelling:?}");
    }
}

#[test]
fn a_camera_that_dies_is_asked_at_its_address_and_is_gone_within_a_minute() {
    let mut lan = Lan::new(settings(), 2);
    lan.run_until(30 * SECOND);
    let died = 30 * SECOND;
    lan.cameras[0].is_on = false;
    let mut gone_at = None;
    while lan.now < died + 60 * SECOND {
        let end = lan.now + SECOND;
        lan.run_until(end);
        if lan.names() == ["cam-1"] {
            gone_at.get_or_insert(lan.now);
        }
    }
    let gone_at = gone_at.unwrap();
    assert!(gone_at > died + 30 * SECOND, "after {:?}", gone_at - died);
    let own = To::Address(lan.cameras[0].at);
    assert!(lan.sent.iter().any(|(_, probe)| probe.to == own));
    lan.cameras[0].is_on = true;
    lan.run_until(lan.now + 14 * SECOND);
    assert_eq!(lan.names().len(), 2);
}

#[test]
fn a_lost_round_is_no_lost_camera() {
    let mut lan = Lan::new(settings(), 1);
    lan.run_until(30 * SECOND);
    lan.cameras[0].is_on = false;
    lan.run_until(48 * SECOND);
    lan.cameras[0].is_on = true;
    let generation = lan.prober.devices().next().unwrap().generation;
    lan.run_until(200 * SECOND);
    let device = lan.prober.devices().next().unwrap();
    assert_eq!(device.generation, generation);
}

#[test]
fn a_bye_ends_a_device_at_once_and_answers_from_before_do_not_bring_it_back() {
    let mut lan = Lan::new(settings(), 1);
    lan.run_until(5 * SECOND);
    lan.cameras[0].is_on = false;
    let at = lan.cameras[0].at;
    lan.tell(at, &message("Bye", "cam-0", "", ""));
    assert!(lan.names().is_empty());
    assert!(lan.prober.turn(lan.now).has_changed);
    lan.tell(at, &message("ProbeMatch", "cam-0", "", "http://10.0.0.1/"));
    assert!(lan.names().is_empty());
    lan.run_until(60 * SECOND);
    assert!(lan.names().is_empty());
    lan.tell(at, &message("Hello", "cam-0", "", "http://10.0.0.1/"));
    assert_eq!(lan.names(), ["cam-0"]);
}

#[test]
fn a_forged_bye_is_healed_in_seconds_and_one_from_elsewhere_ends_nothing() {
    let mut lan = Lan::new(settings(), 1);
    lan.run_until(5 * SECOND);
    let (at, elsewhere) = (lan.cameras[0].at, "10.0.9.9:1".parse().unwrap());
    lan.tell(elsewhere, &message("Bye", "cam-0", "", ""));
    assert_eq!(lan.names(), ["cam-0"]);
    lan.tell(at, &message("Bye", "cam-0", "", ""));
    assert!(lan.names().is_empty());
    let end = lan.now + 3 * SECOND;
    lan.run_until(end);
    assert_eq!(lan.names(), ["cam-0"]);
}

#[test]
fn the_order_of_messages_is_that_of_their_sender() {
    let mut lan = Lan::new(settings(), 0);
    lan.run_until(5 * SECOND);
    let at = "10.0.0.7:3702".parse().unwrap();
    let sequence = |instance: u64, number: u64| {
        format!("<AppSequence InstanceId='{instance}' MessageNumber='{number}'/>")
    };
    let url = "http://10.0.0.7/";
    lan.tell(at, &message("Hello", "a", &sequence(5, 3), url));
    lan.tell(at, &message("Bye", "a", &sequence(5, 1), url));
    assert_eq!(lan.names(), ["a"], "the Bye is older than the Hello");
    let generation = |lan: &Lan| lan.prober.devices().next().unwrap().generation;
    let before = generation(&lan);
    lan.tell(at, &message("Hello", "a", &sequence(4, 9), url));
    assert_eq!(generation(&lan), before, "the Hello is of an earlier life");
    lan.tell(at, &message("Hello", "a", &sequence(6, 1), url));
    assert!(generation(&lan) > before, "it was restarted");
    lan.tell(at, &message("Bye", "a", &sequence(6, 4), url));
    lan.tell(at, &message("ProbeMatch", "a", &sequence(6, 3), url));
    lan.tell(at, &message("Hello", "a", &sequence(6, 1), url));
    assert!(lan.names().is_empty(), "both are older than the Bye");
    lan.tell(at, &message("ProbeMatch", "a", &sequence(6, 5), url));
    assert_eq!(lan.names(), ["a"]);
}

#[test]
fn cameras_of_other_networks_are_found_one_by_one_and_kept_by_questions_of_their_own() {
    let subnets = vec!["10.0.0.0/28".parse().unwrap()];
    let mut lan = Lan::new(
        Settings {
            subnets,
            ..settings()
        },
        3,
    );
    for camera in &mut lan.cameras {
        camera.is_remote = true;
        camera.answers = vec![Spelling::Device];
    }
    lan.run_until(3 * SECOND);
    assert_eq!(lan.names().len(), 3);
    assert!(lan.prober.is_complete(lan.now));
    lan.run_until(280 * SECOND);
    assert_eq!(lan.names().len(), 3);
    lan.cameras[0].is_on = false;
    lan.run_until(350 * SECOND);
    assert_eq!(lan.names().len(), 2);
}

#[test]
fn a_camera_with_two_addresses_is_one_device_whose_description_rests() {
    let mut lan = Lan::new(settings(), 0);
    lan.run_until(SECOND);
    let [first, second] = ["10.0.0.7:3702", "10.0.0.8:3702"].map(|s| s.parse().unwrap());
    let tell = |lan: &mut Lan| {
        lan.tell(first, &message("ProbeMatch", "a", "", "http://10.0.0.7/"));
        lan.tell(second, &message("ProbeMatch", "a", "", "http://10.0.0.8/"));
    };
    tell(&mut lan);
    let device = lan.prober.devices().next().unwrap().clone();
    assert_eq!(device.xaddrs, ["http://10.0.0.7/", "http://10.0.0.8/"]);
    assert_eq!(device.sources, [first, second]);
    tell(&mut lan);
    assert_eq!(*lan.prober.devices().next().unwrap(), device);
}

#[test]
fn what_devices_say_is_bounded_in_bytes_and_known_ones_stay() {
    let mut lan = Lan::new(settings(), 0);
    lan.run_until(SECOND);
    lan.prober.limit_to(20_000);
    let source = |n: u32| SocketAddr::from((std::net::Ipv4Addr::from(n), 1));
    for n in 0..100 {
        lan.tell(source(n), &message("ProbeMatch", &format!("x{n}"), "", ""));
    }
    let known: Vec<String> = lan.names().into_iter().map(str::to_owned).collect();
    assert!((10..50).contains(&known.len()), "{}", known.len());
    assert!(lan.prober.has_left_out() && lan.prober.bytes() <= 20_000);
    // They grow, and others that had a part are there again.
    let long: String = (0..8)
        .map(|n| format!("http://10.0.0.1/{n}{} ", "x".repeat(200)))
        .collect();
    for n in 0..100 {
        lan.tell(
            source(n),
            &message("ProbeMatch", &format!("x{n}"), "", &long),
        );
        assert!(lan.prober.bytes() <= 20_000);
    }
    // One that says more and more is there all the same, as it was.
    let has_addresses = |device: &Arc<Device>| !device.sources.is_empty();
    lan.prober.limit_to(10);
    for round in 0..6 {
        lan.run_until(SECOND + ROUND * (round + 1));
        for n in 0..100 {
            let more = format!("http://10.0.0.1/{}", "y".repeat(100 + round as usize));
            lan.tell(
                source(n),
                &message("ProbeMatch", &format!("x{n}"), "", &more),
            );
        }
        assert_eq!(lan.names(), known);
        assert!(lan.prober.devices().all(has_addresses));
    }
    // One that has another address has no room there, and goes.
    for round in 6..12 {
        lan.run_until(SECOND + ROUND * (round + 1));
        for n in 0..100 {
            let elsewhere = message("ProbeMatch", &format!("x{n}"), "", "");
            lan.tell(source(n + 100), &elsewhere);
        }
        assert!(lan.prober.devices().all(has_addresses));
    }
    assert_eq!(lan.names(), [""; 0]);
    let turned = lan.prober.bytes();
    lan.prober.turn(SECOND);
    assert_eq!(lan.prober.bytes(), turned, "it is counted right");
}

#[test]
fn no_host_takes_the_place_of_the_others_and_all_are_bounded() {
    let mut lan = Lan::new(settings(), 0);
    lan.run_until(SECOND);
    for n in 0..2000 {
        lan.tell(
            "10.0.0.7:1".parse().unwrap(),
            &message("ProbeMatch", &n.to_string(), "", ""),
        );
    }
    assert_eq!(lan.names().len(), DEVICES_OF_SOURCE_MAX);
    assert!(lan.prober.has_left_out());
    for n in 0..3000_u32 {
        let source = SocketAddr::from((std::net::Ipv4Addr::from(n), 1));
        lan.tell(source, &message("ProbeMatch", &format!("x{n}"), "", ""));
    }
    assert_eq!(lan.names().len(), DEVICES_MAX);
}

#[test]
fn a_further_interface_is_asked_at_once() {
    let mut lan = Lan::new(settings(), 0);
    lan.run_until(30 * SECOND);
    lan.sent.clear();
    let paths = BTreeSet::from([(ETH0, Family::V4), (3, Family::V6)]);
    lan.prober.set_paths(paths, lan.now);
    lan.run_until(31 * SECOND);
    let other = To::Group {
        link: 3,
        family: Family::V6,
    };
    let count = lan
        .sent
        .iter()
        .filter(|(_, probe)| probe.to == other)
        .count();
    assert!(count >= 3, "{count}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_story_makes_a_busy_loop_or_exceeds_a_bound(
        story in proptest::collection::vec((0u8..4, 0u8..4, 0u64..4, 0u64..4, 0u64..20_000), 0..40)
    ) {
        let mut lan = Lan::new(settings(), 2);
        for (kind, who, instance, number, wait) in story {
            let kind = ["Hello", "Bye", "ProbeMatch", "ResolveMatch"][usize::from(kind)];
            let sequence = format!("<AppSequence InstanceId='{instance}' MessageNumber='{number}'/>");
            let source = SocketAddr::from(([10, 0, 0, who], 1));
            let now = lan.now;
            lan.prober.receive(source, &message(kind, &format!("x{who}"), &sequence, ""), now);
            lan.run_until(now + Duration::from_millis(wait));
        }
        // Whoever does not answer is gone a minute later.
        lan.run_until(lan.now + 62 * SECOND);
        prop_assert_eq!(lan.names(), ["cam-0", "cam-1"]);
    }
}
