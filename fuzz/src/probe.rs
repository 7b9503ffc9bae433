//! Fuzzes what a host that is asked sends. An input begins with a byte for the question, and one for the size of the parts in which the
//! rest comes.
use crate::bytes::Reader;
use petiole_probe::{
    Facts, Http, Inquiry, Question, Turn, certificate,
    limits::{REQUESTS_MAX, VALUE_MAX},
};

pub fn run(input: &[u8]) {
    let mut input = Reader(input);
    let http = Http {
        path: "/".to_owned(),
        header: Some("x-serial".to_owned()),
        json: Some("/serial".to_owned()),
        status: None,
    };
    let question = match input.below(6) {
        0 => Question::Http(http),
        1 => Question::Redfish,
        2 => Question::Rtsp("/".to_owned()),
        3 => Question::Modbus(1),
        4 => Question::Snmp("public".to_owned()),
        _ => return check(&certificate(input.0)),
    };
    let size = usize::from(input.byte()) + 1;
    let (mut inquiry, _) = Inquiry::start(&question, "h:1", 0x0102_0304);
    let mut sent = 1;
    for part in input.0.chunks(size) {
        match inquiry.receive(part) {
            Ok(Turn::More) => {}
            Ok(Turn::Send(request)) => {
                sent += 1;
                assert!(!request.is_empty() && sent <= REQUESTS_MAX);
            }
            Ok(Turn::Done(facts)) => return check(&facts),
            Err(failure) => return assert!(failure.to_string().len() < 500),
        }
    }
    if let Ok(facts) = inquiry.hung_up() {
        check(&facts);
    }
}

fn check(facts: &Facts) {
    for (name, value) in facts.iter() {
        assert!(!name.is_empty() && !value.is_empty() && value.len() <= VALUE_MAX);
        assert!(!value.contains(char::is_control));
    }
}
