use super::*;
use petiole_onvif::{Answer, Inquiry, Step, Wanted};

const SECOND: Duration = Duration::from_secs(1);

fn catalog(yaml: &str) -> Catalog {
    let mut catalog = Catalog::new(Arc::new(Details::parse(yaml).unwrap()));
    catalog.set_near(vec!["10.0.0.1/24".parse().unwrap()]);
    catalog
}

fn camera(uuid: &str, ip: &str) -> Arc<Found> {
    Arc::new(Found {
        endpoint: format!("urn:uuid:{uuid}"),
        scopes: ["name/Front%20Door", "hardware/H1", "location/city/berlin"]
            .map(|scope| format!("onvif://www.onvif.org/{scope}"))
            .to_vec(),
        xaddrs: vec![format!("http://{ip}/onvif/device_service")],
        sources: vec![format!("{ip}:3702").parse().unwrap()],
        generation: 1,
    })
}

/// The facts of a camera that answers everything, or refuses all but its time.
fn facts(url: &Url, is_open: bool) -> Facts {
    let mut inquiry = Inquiry::new(vec![url.clone()], Wanted::default(), 1);
    loop {
        let body = match inquiry.next(0) {
            Step::Done(done) => return (*done).unwrap(),
            Step::Send(request) if request.body.contains("GetSystemDateAndTime") => {
                "<GetSystemDateAndTimeResponse/>"
            }
            Step::Send(_) if !is_open => "",
            Step::Send(request) if request.body.contains("GetDeviceInformation") => {
                "<GetDeviceInformationResponse><SerialNumber>S1</SerialNumber></GetDeviceInformationResponse>"
            }
            Step::Send(_) => "<GetNetworkInterfacesResponse/>",
        };
        let answer = Answer {
            status: if body.is_empty() { 401 } else { 200 },
            challenges: &[],
            body: body.as_bytes(),
        };
        inquiry.answer(&answer, 0);
    }
}

fn outcome(job: &Job, mac: Option<&str>) -> Outcome {
    Outcome {
        result: Ok(facts(&job.urls[0], true)),
        mac: mac.map(str::to_owned),
    }
}

fn failure() -> Outcome {
    let result = Err(Failure {
        url: "http://10.0.0.7/".to_owned(),
        call: "GetSystemDateAndTime",
        why: "no answer in time".to_owned(),
    });
    Outcome { result, mac: None }
}

fn found(catalog: &mut Catalog, cameras: &[Arc<Found>], mac: Option<&str>) -> DeviceSet {
    catalog.set_cameras(cameras.iter(), Duration::ZERO);
    for job in catalog.start(0, Duration::ZERO) {
        catalog.finished(&job.camera, outcome(&job, mac), SECOND);
    }
    catalog.devices()
}

fn ids(set: &DeviceSet) -> Vec<&str> {
    set.devices.keys().map(|id| id.as_str()).collect()
}

#[test]
fn a_camera_has_akris_id_and_properties() {
    let set = found(
        &mut catalog(""),
        &[camera("a-1", "10.0.0.7")],
        Some("00:11:22:33:44:55"),
    );
    assert_eq!(ids(&set), ["http://10.0.0.7/onvif/device_service-a-1"]);
    let device = set.devices.values().next().unwrap();
    let properties: Vec<(&str, &str)> = device
        .properties
        .iter()
        .map(|(k, v)| (k.strip_prefix("ONVIF_DEVICE_").unwrap(), v.as_str()))
        .collect();
    let expected = [
        ("HARDWARE", "H1"),
        ("IP_ADDRESS", "10.0.0.7"),
        ("LOCATION", "city/berlin"),
        ("MAC_ADDRESS", "00:11:22:33:44:55"),
        ("NAME", "Front Door"),
        ("SERIAL_NUMBER", "S1"),
        ("SERVICE_URL", "http://10.0.0.7/onvif/device_service"),
        ("UUID", "a-1"),
    ];
    assert_eq!(properties, expected);
}

#[test]
fn the_identity_is_what_the_details_name_and_a_camera_that_moves_keeps_it() {
    for (identity, expected) in [
        ("endpoint", "a-1"),
        ("mac", "00:11:22:33:44:55"),
        ("serial", "S1"),
    ] {
        for ip in ["10.0.0.7", "10.0.0.99"] {
            let mut catalog = catalog(&format!("identity: {identity}"));
            let set = found(
                &mut catalog,
                &[camera("a-1", ip)],
                Some("00:11:22:33:44:55"),
            );
            assert_eq!(ids(&set), [expected]);
        }
    }
    let set = found(
        &mut catalog("identity: mac"),
        &[camera("a-1", "10.0.0.7")],
        None,
    );
    assert!(
        set.devices.is_empty() && set.problems[0].contains("identity"),
        "{:?}",
        set.problems
    );
    let twins = [camera("a-1", "10.0.0.7"), camera("b-2", "10.0.0.8")];
    let set = found(&mut catalog("identity: serial"), &twins, None);
    assert_eq!(set.devices.len(), 1);
    assert!(
        set.problems[0].contains("another one has its identity S1"),
        "{:?}",
        set.problems
    );
}

#[test]
fn a_camera_that_a_filter_leaves_out_is_not_asked_or_not_given_credentials() {
    for yaml in [
        "uuids: {items: [b-2]}",
        "scopes: {action: Exclude, items: [hardware/H1]}",
        "ipAddresses: {items: [10.0.0.8]}",
    ] {
        let mut catalog = catalog(yaml);
        catalog.set_cameras([camera("a-1", "10.0.0.7")].iter(), Duration::ZERO);
        assert!(catalog.start(0, Duration::ZERO).is_empty(), "{yaml}");
        assert!(catalog.devices().devices.is_empty() && catalog.is_settled());
    }
    let (camera, url) = (
        camera("a-1", "10.0.0.7"),
        Url::parse("http://10.0.0.7/").unwrap(),
    );
    let mac = "00:11:22:33:44:55";
    for (yaml, mac, expected) in [
        ("", None, true),
        (
            "macAddresses: {items: ['00:11:22:33:44:55']}",
            Some(mac),
            true,
        ),
        ("macAddresses: {items: ['00:11:22:33:44:55']}", None, false),
        (
            "macAddresses: {action: Exclude, items: ['00:11:22:33:44:55']}",
            Some(mac),
            false,
        ),
        (
            "macAddresses: {action: Exclude, items: ['66:11:22:33:44:55']}",
            None,
            false,
        ),
        (
            "ipAddresses: {action: Exclude, items: [10.0.0.0/8]}",
            Some(mac),
            false,
        ),
    ] {
        let details = Details::parse(yaml).unwrap();
        assert_eq!(
            takes(&details, &camera, &url, mac),
            expected,
            "{yaml} {mac:?}"
        );
    }
}

#[test]
fn the_node_itself_is_asked_only_if_the_camera_answered_from_there() {
    let mut catalog = catalog("");
    let mut liar = (*camera("a-1", "10.0.0.7")).clone();
    liar.xaddrs = ["10.0.0.1:10250", "169.254.169.254", "10.96.0.1"]
        .map(|host| format!("http://{host}/x"))
        .to_vec();
    catalog.set_cameras([Arc::new(liar)].iter(), Duration::ZERO);
    let jobs = catalog.start(0, Duration::ZERO);
    assert!(
        jobs[0].urls.iter().all(|url| url.host == "10.0.0.7"),
        "{:?}",
        jobs[0].urls
    );
}

#[test]
fn slow_cameras_hold_up_nobody_and_all_are_bounded() {
    let mut catalog = catalog("");
    let cameras: Vec<_> = (0..100)
        .map(|n| camera(&format!("{n:03}"), "10.0.0.7"))
        .collect();
    catalog.set_cameras(cameras.iter(), Duration::ZERO);
    let jobs = catalog.start(0, Duration::ZERO);
    assert_eq!(jobs.len(), ASKED_AT_ONCE_MAX);
    for job in &jobs {
        catalog.finished(&job.camera, failure(), SECOND);
    }
    // Those that failed are due again, and the others go first.
    let jobs = catalog.start(0, 7 * SECOND);
    assert_eq!(jobs.len(), ASKED_AT_ONCE_MAX);
    assert!(jobs.iter().all(|job| job.camera.uuid() >= "032"));
    for job in &jobs {
        catalog.finished(&job.camera, outcome(job, None), 8 * SECOND);
    }
    catalog.start(0, 9 * SECOND);
    let slow = catalog
        .cameras
        .values()
        .filter(|t| t.due.is_none() && t.failures > 0)
        .count();
    assert!(slow <= SLOW_AT_ONCE_MAX, "{slow}");
    assert!(catalog.start(ASKED_AT_ONCE_MAX, 100 * SECOND).is_empty());
}

#[test]
fn what_a_camera_said_is_believed_until_three_failures() {
    let mut catalog = catalog("");
    let camera = camera("a-1", "10.0.0.7");
    assert_eq!(
        found(&mut catalog, std::slice::from_ref(&camera), None)
            .devices
            .len(),
        1
    );
    for (failures, offered) in [(1, 1), (2, 1), (3, 0)] {
        catalog.finished(&camera, failure(), 60 * SECOND);
        let set = catalog.devices();
        assert_eq!(set.devices.len(), offered, "{failures}");
        assert!(
            set.problems[0].contains("camera a-1: GetSystemDateAndTime at http://10.0.0.7/"),
            "{:?}",
            set.problems
        );
    }
    catalog.set_cameras([].iter(), 61 * SECOND);
    assert_eq!(catalog.devices(), DeviceSet::default());
}

#[test]
fn what_a_camera_does_not_answer_once_is_as_it_was_and_asked_again_soon() {
    let mut catalog = catalog("identity: serial");
    let camera = camera("a-1", "10.0.0.7");
    assert_eq!(
        found(&mut catalog, std::slice::from_ref(&camera), None)
            .devices
            .len(),
        1
    );
    let mut lacking = facts(
        &Url::parse("http://10.0.0.7/onvif/device_service").unwrap(),
        true,
    );
    lacking.information = None;
    lacking.failed = vec![failure().result.unwrap_err()];
    for (times, offered) in [(1, 1), (2, 1), (3, 0)] {
        let outcome = Outcome {
            result: Ok(lacking.clone()),
            mac: None,
        };
        catalog.finished(&camera, outcome, 60 * SECOND);
        assert_eq!(catalog.devices().devices.len(), offered, "{times}");
        let again = catalog.wake(60 * SECOND).unwrap();
        assert_eq!(again < 60 * SECOND + REFRESH, offered == 1, "{times}");
    }
}

#[test]
fn a_camera_that_is_slow_once_is_not_asked_at_its_other_address() {
    let mut catalog = catalog("");
    let mut camera = (*camera("a-1", "10.0.0.7")).clone();
    camera
        .xaddrs
        .push("http://10.0.0.3/onvif/device_service".to_owned());
    let camera = Arc::new(camera);
    catalog.set_cameras([&camera].into_iter(), Duration::ZERO);
    let job = catalog.start(0, Duration::ZERO).remove(0);
    assert_eq!(job.urls.len(), 2);
    let own = job.urls[0].clone();
    catalog.finished(&camera, outcome(&job, None), SECOND);
    let mut now = SECOND + REFRESH;
    for failures in 0..FAILURES {
        let job = catalog.start(0, now).remove(0);
        assert_eq!(job.urls[0], own);
        assert_eq!(job.urls.len() == 1, failures + 1 < FAILURES, "{failures}");
        catalog.finished(&camera, failure(), now);
        now += LAST_RETRY;
    }
}

#[test]
fn a_camera_that_changes_is_asked_again_and_keeps_its_address() {
    let mut catalog = catalog("");
    let first = camera("a-1", "10.0.0.7");
    found(&mut catalog, std::slice::from_ref(&first), None);
    assert!(catalog.start(0, 5 * SECOND).is_empty());
    let mut second = (*first).clone();
    second.generation = 2;
    second
        .xaddrs
        .insert(0, "http://10.0.0.3/onvif/device_service".to_owned());
    catalog.set_cameras([Arc::new(second)].iter(), 5 * SECOND);
    assert!(
        catalog.start(0, 5 * SECOND).is_empty(),
        "not more often than every {BETWEEN:?}"
    );
    assert_eq!(catalog.wake(5 * SECOND), Some(11 * SECOND));
    let jobs = catalog.start(0, 11 * SECOND);
    assert_eq!(jobs[0].urls[0].host, "10.0.0.7");
}

#[test]
fn a_camera_that_does_not_count_gets_no_credentials_as_far_as_its_identity_is_known_without() {
    const MAC: &str = "00:11:22:33:44:55";
    let camera = camera("a-1", "10.0.0.7");
    let url = &candidates(&camera.xaddrs, &camera.sources, |_| true)[0];
    for (yaml, mac, expected) in [
        (
            "{only: ['http://10.0.0.7/onvif/device_service-a-1']}",
            None,
            true,
        ),
        ("{identity: endpoint, only: a-1}", None, true),
        ("{identity: endpoint, only: [b-2]}", None, false),
        (
            "{identity: mac, only: ['00:11:22:33:44:55']}",
            Some(MAC),
            true,
        ),
        (
            "{identity: mac, only: ['00:11:22:33:44:66']}",
            Some(MAC),
            false,
        ),
        ("{identity: mac, only: ['00:11:22:33:44:55']}", None, true),
        ("{identity: serial, only: [S2]}", None, true),
    ] {
        let details = Details::parse(yaml).unwrap();
        assert_eq!(takes(&details, &camera, url, mac), expected, "{yaml}");
    }
    let cameras = [camera];
    let ids_of = |yaml: &str| found(&mut catalog(yaml), &cameras, None).devices.len();
    assert_eq!(ids_of("{identity: serial, only: [S2]}"), 0);
    assert_eq!(ids_of("{identity: serial, only: [S1, S2]}"), 1);
}

#[test]
fn cameras_without_news_are_asked_again_one_after_the_other() {
    let mut catalog = catalog("");
    let cameras = ["a-1", "b-2", "c-3"].map(|uuid| camera(uuid, "10.0.0.7"));
    found(&mut catalog, &cameras, None);
    let mut now = SECOND + REFRESH;
    let ask = |catalog: &mut Catalog, now| {
        let jobs = catalog.start(0, now);
        for job in &jobs {
            catalog.finished(&job.camera, outcome(job, None), now);
        }
        jobs.len()
    };
    assert_eq!(ask(&mut catalog, now), 1);
    assert_eq!(ask(&mut catalog, now + SECOND), 0);
    assert_eq!(catalog.wake(now + SECOND), Some(now + BETWEEN_REFRESHES));
    let mut newer = Found::clone(&cameras[2]);
    newer.generation += 1;
    catalog.set_cameras(
        [&cameras[0], &cameras[1], &Arc::new(newer)].into_iter(),
        now,
    );
    assert_eq!(ask(&mut catalog, now + SECOND), 1, "news do not wait");
    now += BETWEEN_REFRESHES;
    assert_eq!(ask(&mut catalog, now), 1);
}
