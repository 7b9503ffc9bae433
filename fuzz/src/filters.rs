//! Fuzzes filters. An input is a line of the filter, and then the text that it is put to.
use crate::bytes::Reader;
use petiole::discovery::handlers::zeroconf::fuzzing::{Filter, STEPS_MAX, Service};
use regex_lite::Regex;
use serde_json::{Value, json};

const TYPE: &str = "_http._tcp";

pub fn run(input: &[u8]) {
    let mut input = Reader(input);
    let (Some(pattern), Ok(text)) = (input.line(), std::str::from_utf8(input.0)) else {
        return;
    };
    check_name(pattern, text);
    check_host(pattern, text);
    check_txt(pattern, text);
}

fn filter(field: &str, matcher: &Value) -> Option<Filter> {
    let details = json!({"kind": TYPE, field: matcher});
    let filter = Filter::new(&details.to_string())?;
    assert!(filter.steps() <= STEPS_MAX, "{details}: {}", filter.steps());
    Some(filter)
}

fn service(name: &str) -> Service {
    Service {
        fullname: format!("{name}.{TYPE}.local."),
        host: "host.local.".to_owned(),
        port: 80,
        address: [10, 0, 0, 7].into(),
        txt: vec![],
    }
}

/// A name is matched whole and as it is written.
fn check_name(pattern: &str, text: &str) {
    let service = service(text);
    if text.is_empty() || text.contains('\0') || service.fullname.len() > 255 {
        return;
    }
    let takes = |filter: &Filter| filter.takes(&service);
    if let Some(filter) = filter("name", &json!([pattern, "another"])) {
        assert_eq!(takes(&filter), pattern == text || text == "another");
    }
    let regex = filter("name", &json!({"regex": pattern}));
    match (regex, Regex::new(pattern)) {
        (Some(filter), Ok(bare)) => check_regex(&bare, text, takes(&filter)),
        (Some(_), Err(error)) => panic!("{pattern:?} is taken: {error}"),
        (None, _) => {}
    }
}

fn check_regex(bare: &Regex, text: &str, is_taken: bool) {
    let is_whole = (bare.find(text)).is_some_and(|found| found.range() == (0..text.len()));
    assert!(!is_whole || is_taken, "{bare} is all of {text:?}");
    assert!(
        !is_taken || bare.is_match(text),
        "{bare} is not in {text:?}"
    );
}

/// A host is matched whatever its case.
fn check_host(pattern: &str, text: &str) {
    let Some(filter) = filter("host", &json!(pattern)) else {
        return;
    };
    let takes = |host: String| {
        let service = Service {
            host,
            ..service("a")
        };
        filter.takes(&service)
    };
    let is_taken = takes(text.to_owned());
    assert_eq!(takes(text.to_ascii_uppercase()), is_taken);
    assert_eq!(takes(format!("{text}.")), is_taken);
}

/// The first of several equal keys counts, whatever its case.
fn check_txt(pattern: &str, text: &str) {
    let Some(filter) = filter("txt", &json!({"Key": pattern})) else {
        return;
    };
    let takes = |keys: [&str; 2]| {
        let txt = |key: &str, value: &str| (key.to_owned(), Some(value.as_bytes().to_vec()));
        let service = Service {
            txt: vec![txt(keys[0], text), txt(keys[1], "something else")],
            ..service("a")
        };
        filter.takes(&service)
    };
    assert_eq!(takes(["key", "KEY"]), pattern == text);
    assert!(!takes(["other", "key"]) || pattern == "something else");
}
