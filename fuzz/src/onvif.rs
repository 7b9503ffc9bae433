//! Fuzzes what cameras send: datagrams of WS-Discovery, and answers to SOAP requests.
//!
//! An input of datagrams begins with 0; then each has a byte of time, a byte of its source, two bytes of length, and the message. An input
//! of answers begins with 1; then each has two bytes of status, a line with the challenge, two bytes of length, and the body.
use crate::bytes::Reader;
use petiole_onvif::{
    Answer, Credentials, Family, Inquiry, Prober, Settings, Step, Url, Wanted,
    limits::{ADDRESSES_MAX, DEVICES_MAX, REQUESTS_MAX, SCOPES_MAX, TEXT_MAX},
    scope_values,
};
use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

/// The unit of the byte of time.
const TICK: Duration = Duration::from_millis(200);
/// After this time without answers no device is left.
const ALL_IS_OVER: Duration = Duration::from_secs(120);
/// The most probes of a turn: a round on one interface, and one to each address of each device.
const PROBES_MAX: usize = 4 * DEVICES_MAX + 16;
const USER: &str = "user";
const PASSWORD: &str = "S3cr&t<of\"camera";

pub fn run(input: &[u8]) {
    let mut input = Reader(input);
    match input.below(2) {
        0 => datagrams(&mut input),
        _ => answers(&mut input),
    }
}

fn datagrams(input: &mut Reader<'_>) {
    let settings = Settings {
        window: Duration::from_secs(1),
        subnets: vec![],
        per_second: 50,
    };
    let mut now = Duration::ZERO;
    let mut prober = Prober::new(settings, 1, now);
    prober.set_paths(BTreeSet::from([(2, Family::V4)]), now);
    while !input.0.is_empty() {
        now = pass(&mut prober, now, TICK * u32::from(input.byte()));
        let source = SocketAddr::from(([10, 0, 0, input.byte()], 3702));
        let length = usize::from(u16::from_be_bytes([input.byte(), input.byte()]));
        prober.receive(source, input.bytes(length), now);
        for device in prober.devices() {
            assert!(device.endpoint.len() <= TEXT_MAX && !device.endpoint.contains('\0'));
            assert!(device.scopes.len() <= SCOPES_MAX && device.xaddrs.len() <= ADDRESSES_MAX);
            assert!(!device.sources.is_empty());
            scope_values(&device.scopes, "name");
            petiole_onvif::candidates(&device.xaddrs, &device.sources, |_| true);
        }
    }
    pass(&mut prober, now, ALL_IS_OVER);
    assert_eq!(prober.devices().count(), 0, "a device stays for ever");
}

/// Takes every turn until `time` has passed.
fn pass(prober: &mut Prober, mut now: Duration, time: Duration) -> Duration {
    let end = now + time;
    loop {
        let turn = prober.turn(now);
        assert!(turn.wake > now, "a busy loop");
        assert!(turn.send.len() <= PROBES_MAX);
        assert!(prober.devices().count() <= DEVICES_MAX);
        if turn.wake > end {
            return end;
        }
        now = turn.wake;
    }
}

fn answers(input: &mut Reader<'_>) {
    let url = Url::parse("http://10.0.0.7/onvif/device_service").expect("it is an address");
    let inquiry = Inquiry::new(vec![url], Wanted { streams: true }, 1);
    let Some(facts) = converse(inquiry, input) else {
        return;
    };
    let credentials = Credentials {
        user: USER.to_owned(),
        password: PASSWORD.to_owned(),
    };
    converse(Inquiry::again(facts, credentials, 2), input);
}

fn converse(mut inquiry: Inquiry, input: &mut Reader<'_>) -> Option<petiole_onvif::Facts> {
    for _ in 0..=REQUESTS_MAX {
        let request = match inquiry.next(1_700_000_000) {
            Step::Done(done) => return (*done).ok(),
            Step::Send(request) => request,
        };
        assert_eq!(request.url.host, "10.0.0.7", "another host is asked");
        assert!(!request.body.contains("S3cr") && !request.body.contains('\0'));
        let authorization = request.authorization.unwrap_or_default();
        assert!(!authorization.contains("S3cr") && !authorization.contains('\n'));
        let status = u16::from_be_bytes([input.byte(), input.byte()]);
        let challenges = [input.line().unwrap_or_default().to_owned()];
        let length = usize::from(u16::from_be_bytes([input.byte(), input.byte()]));
        let answer = Answer {
            status,
            challenges: &challenges,
            body: input.bytes(length),
        };
        inquiry.answer(&answer, 1_700_000_000);
    }
    panic!("a conversation has no end");
}
