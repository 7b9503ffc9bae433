use super::*;
use proptest::prelude::*;

const NOW: i64 = 1_700_000_000;

/// A device that wants one scheme, or both of them.
struct Camera {
    wants: &'static str,
    password: &'static str,
    /// Its addresses that answer.
    host: &'static str,
    seen: Vec<(String, String)>,
}

fn operation(body: &str) -> String {
    let root = xml::read(body.as_bytes()).unwrap();
    root.at(&["Body"]).unwrap().children[0].name.clone()
}

impl Camera {
    fn new(wants: &'static str) -> Self {
        Self {
            wants,
            password: "secret",
            host: "10.0.0.7",
            seen: vec![],
        }
    }

    fn reply(&mut self, request: &Request) -> (u16, Vec<String>, String) {
        let operation = operation(&request.body);
        let scheme = match (
            &request.authorization,
            request.body.contains("UsernameToken"),
        ) {
            (Some(_), _) => "digest",
            (None, true) => "token",
            (None, false) => "none",
        };
        self.seen.push((operation.clone(), scheme.to_owned()));
        assert!(!request.body.contains("secret"));
        let is_open = operation == "GetSystemDateAndTime"
            || operation == "GetCapabilities"
            || self.wants == "none";
        let is_right = self.password == "secret" && self.wants.contains(scheme);
        if !is_open && !is_right {
            let challenges = if self.wants.contains("digest") {
                vec![
                    "Basic realm=\"x\"".to_owned(),
                    "Digest realm=\"x\", nonce=\"n\", qop=\"auth\"".to_owned(),
                ]
            } else {
                vec![]
            };
            let fault = "<e><Body><Fault><Code><Value>s:Sender</Value><Subcode><Value>ter:NotAuthorized</Value></Subcode></Code></Fault></Body></e>";
            return (
                if challenges.is_empty() { 400 } else { 401 },
                challenges,
                fault.to_owned(),
            );
        }
        (
            200,
            vec![],
            format!("<e><Body>{}</Body></e>", body(&operation)),
        )
    }
}

fn body(operation: &str) -> &'static str {
    match operation {
        "GetSystemDateAndTime" => {
            "<GetSystemDateAndTimeResponse><UTCDateTime><Time><Hour>0</Hour><Minute>0</Minute><Second>9</Second></Time>\
             <Date><Year>2000</Year><Month>1</Month><Day>1</Day></Date></UTCDateTime></GetSystemDateAndTimeResponse>"
        }
        "GetNetworkInterfaces" => {
            "<GetNetworkInterfacesResponse><NetworkInterfaces><Info><HwAddress>00:11:22:33:44:55</HwAddress></Info></NetworkInterfaces></GetNetworkInterfacesResponse>"
        }
        "GetDeviceInformation" => {
            "<GetDeviceInformationResponse><SerialNumber>S1</SerialNumber></GetDeviceInformationResponse>"
        }
        "GetCapabilities" => "<r><Media><XAddr>http://192.0.2.99:8080/media</XAddr></Media></r>",
        "GetProfiles" => {
            "<GetProfilesResponse><Profiles token='p1'/><Profiles token='p2'/></GetProfilesResponse>"
        }
        "GetStreamUri" => "<r><MediaUri><Uri>rtsp://10.0.0.7/1</Uri></MediaUri></r>",
        other => panic!("{other}"),
    }
}

fn run(inquiry: &mut Inquiry, camera: &mut Camera) -> Result<Facts, Failure> {
    loop {
        let request = match inquiry.next(NOW) {
            Step::Send(request) => request,
            Step::Done(done) => return *done,
        };
        if request.url.host != camera.host {
            inquiry.failed("no answer");
            continue;
        }
        let (status, challenges, body) = camera.reply(&request);
        let answer = Answer {
            status,
            challenges: &challenges,
            body: body.as_bytes(),
        };
        inquiry.answer(&answer, NOW);
    }
}

fn begin(camera: &mut Camera, wanted: Wanted) -> Result<Facts, Failure> {
    let urls = ["http://192.0.2.1/d", "http://10.0.0.7/d"].map(|u| Url::parse(u).unwrap());
    run(&mut Inquiry::new(urls.to_vec(), wanted, 1), camera)
}

fn again(camera: &mut Camera, facts: Facts) -> Facts {
    let credentials = Credentials {
        user: "admin".to_owned(),
        password: "secret".to_owned(),
    };
    camera.seen.clear();
    run(&mut Inquiry::again(facts, credentials, 2), camera).unwrap()
}

#[test]
fn an_address_that_does_not_answer_is_followed_by_the_next() {
    let facts = begin(&mut Camera::new("none"), Wanted::default()).unwrap();
    assert_eq!(facts.url.to_string(), "http://10.0.0.7/d");
    assert_eq!(facts.interfaces[0].mac, "00:11:22:33:44:55");
    assert_eq!(facts.information.as_ref().unwrap().serial, "S1");
    assert!(!facts.wants_credentials());
    let mut deaf = Camera::new("none");
    deaf.host = "";
    let failure = begin(&mut deaf, Wanted::default()).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "GetSystemDateAndTime at http://10.0.0.7/d: no answer"
    );
}

#[test]
fn credentials_are_sent_only_again_and_by_the_scheme_that_is_asked_for() {
    for (wants, expected) in [
        ("digest", ["none", "digest", "digest"].as_slice()),
        ("token", &["none", "token", "token"]),
        ("digest token", &["none", "digest", "digest"]),
    ] {
        let mut camera = Camera::new(wants);
        let facts = begin(&mut camera, Wanted::default()).unwrap();
        assert!(facts.wants_credentials() && facts.interfaces.is_empty());
        assert!(camera.seen.iter().all(|(_, scheme)| scheme == "none"));
        let facts = again(&mut camera, facts);
        assert_eq!(facts.interfaces.len(), 1, "{wants}");
        assert_eq!(facts.information.as_ref().unwrap().serial, "S1");
        let schemes: Vec<&str> = camera
            .seen
            .iter()
            .map(|(_, scheme)| scheme.as_str())
            .collect();
        assert_eq!(schemes, expected, "{wants}");
        assert!(!facts.has_refused_credentials && !facts.wants_credentials());
    }
}

#[test]
fn wrong_credentials_are_sent_twice_and_not_for_every_call() {
    let mut camera = Camera::new("digest token");
    let facts = begin(&mut camera, Wanted { streams: true }).unwrap();
    camera.password = "another";
    let facts = again(&mut camera, facts);
    assert!(facts.has_refused_credentials);
    let attempts = camera
        .seen
        .iter()
        .filter(|(_, scheme)| scheme != "none")
        .count();
    assert_eq!(attempts, 2, "{:?}", camera.seen);
}

#[test]
fn the_token_has_the_time_of_the_device() {
    let mut camera = Camera::new("token");
    let facts = begin(&mut camera, Wanted::default()).unwrap();
    let credentials = Credentials {
        user: "admin".to_owned(),
        password: "secret".to_owned(),
    };
    let mut inquiry = Inquiry::again(facts, credentials, 3);
    let mut created = None;
    while let Step::Send(request) = inquiry.next(NOW + 60) {
        let root = xml::read(request.body.as_bytes()).unwrap();
        created = root.find("Created").map(|c| c.text.clone()).or(created);
        let (status, challenges, body) = camera.reply(&request);
        let answer = Answer {
            status,
            challenges: &challenges,
            body: body.as_bytes(),
        };
        inquiry.answer(&answer, NOW + 60);
    }
    assert_eq!(created.as_deref(), Some("2000-01-01T00:01:09Z"));
}

#[test]
fn streams_are_asked_for_at_the_host_that_was_found() {
    let mut camera = Camera::new("digest");
    let facts = begin(&mut camera, Wanted { streams: true }).unwrap();
    let facts = again(&mut camera, facts);
    let stream = |profile: &str| Stream {
        profile: profile.to_owned(),
        uri: "rtsp://10.0.0.7/1".to_owned(),
    };
    assert_eq!(facts.streams, ["p1", "p2"].map(stream));
    assert!(facts.failed.is_empty(), "{:?}", facts.failed);
}

#[test]
fn credentials_are_in_no_debug_text() {
    let facts = begin(&mut Camera::new("token"), Wanted::default()).unwrap();
    let credentials = Credentials {
        user: "admin".to_owned(),
        password: "secret".to_owned(),
    };
    let inquiry = Inquiry::again(facts, credentials, 4);
    assert!(!format!("{inquiry:?}").contains("secret"));
}

#[test]
fn what_is_no_device_is_none() {
    for (status, body, why) in [
        (200, "<html/>", "none of a device"),
        (404, "", "status 404"),
        (301, "", "status 301"),
        (
            500,
            "<e><Body><Fault><Reason><Text>broken</Text></Reason></Fault></Body></e>",
            "broken",
        ),
    ] {
        let url = Url::parse("http://10.0.0.7/d").unwrap();
        let mut inquiry = Inquiry::new(vec![url], Wanted::default(), 1);
        assert!(matches!(inquiry.next(NOW), Step::Send(_)));
        let answer = Answer {
            status,
            challenges: &[],
            body: body.as_bytes(),
        };
        inquiry.answer(&answer, NOW);
        let Step::Done(done) = inquiry.next(NOW) else {
            panic!("{body}")
        };
        let failure = done.unwrap_err();
        assert!(failure.why.contains(why), "{failure}");
    }
}

proptest! {
    #[test]
    fn every_conversation_ends(answers in proptest::collection::vec((any::<u16>(), "\\PC{0,60}", "(Digest nonce=1)?"), 0..64)) {
        let url = Url::parse("http://10.0.0.7/d").unwrap();
        let mut inquiry = Inquiry::new(vec![url; 4], Wanted { streams: true }, 1);
        let mut sent = 0;
        let mut answers = answers.into_iter().cycle();
        while let Step::Send(_) = inquiry.next(NOW) {
            sent += 1;
            match answers.next() {
                Some((status, body, challenge)) => {
                    let challenges = [challenge];
                    let answer = Answer { status, challenges: &challenges, body: body.as_bytes() };
                    inquiry.answer(&answer, NOW);
                }
                None => inquiry.failed("no answer"),
            }
        }
        prop_assert!(sent <= REQUESTS_MAX);
    }
}
