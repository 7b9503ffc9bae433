//! One conversation with a host. Pure.
use crate::{
    facts::Facts,
    failure::Failure,
    http::{self, Http},
    message::Message,
    modbus::Modbus,
    rtsp, snmp,
    turn::Turn,
};

/// What a host is asked. SNMP needs a datagram for each message, the others a connection.
#[derive(Clone, PartialEq, Eq)]
pub enum Question {
    /// A page by HTTP.
    Http(Http),
    /// The service root of Redfish, by HTTP.
    Redfish,
    /// The methods of an RTSP server, for this path.
    Rtsp(String),
    /// The identification of this unit by Modbus TCP.
    Modbus(u8),
    /// The description of a host by SNMP 2c, for this community.
    Snmp(String),
}

/// A conversation with one host.
pub struct Inquiry(Talk);

enum Talk {
    Http(Http, Message),
    Redfish(Message),
    Rtsp(Message),
    Modbus(Modbus),
    /// The number of the request.
    Snmp(u32),
}

impl Inquiry {
    /// Begins, with bytes to send. `authority` is the host as in a URL, with its port. `id` is a number that nobody can guess.
    pub fn start(question: &Question, authority: &str, id: u32) -> (Self, Vec<u8>) {
        let (talk, request) = match question {
            Question::Http(http) => {
                let message = Message::new(http::PROTOCOL, http.json.is_some());
                (
                    Talk::Http(http.clone(), message),
                    http::request(&http.path, authority),
                )
            }
            Question::Redfish => {
                let request = http::request(http::REDFISH_PATH, authority);
                (Talk::Redfish(Message::new(http::PROTOCOL, true)), request)
            }
            Question::Rtsp(path) => {
                let message = Message::new(rtsp::PROTOCOL, false);
                (Talk::Rtsp(message), rtsp::request(path, authority))
            }
            Question::Modbus(unit) => {
                let (modbus, request) = Modbus::start(*unit);
                (Talk::Modbus(modbus), request)
            }
            Question::Snmp(community) => (Talk::Snmp(id), snmp::request(community, id)),
        };
        (Self(talk), request)
    }

    /// Takes bytes of the host.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Turn, Failure> {
        let is_whole = match &mut self.0 {
            Talk::Http(_, message) | Talk::Redfish(message) | Talk::Rtsp(message) => {
                message.receive(bytes)?
            }
            Talk::Modbus(modbus) => return modbus.receive(bytes),
            Talk::Snmp(id) => {
                return snmp::answer(bytes, *id)
                    .map_or(Ok(Turn::More), |facts| facts.map(Turn::Done));
            }
        };
        if is_whole {
            self.facts().map(Turn::Done)
        } else {
            Ok(Turn::More)
        }
    }

    /// Takes the end of the connection.
    pub fn hung_up(&self) -> Result<Facts, Failure> {
        match &self.0 {
            Talk::Http(_, message) | Talk::Redfish(message) if message.is_whole_at_end() => {
                self.facts()
            }
            Talk::Http(..) | Talk::Redfish(_) | Talk::Rtsp(_) | Talk::Modbus(_) | Talk::Snmp(_) => {
                Err(Failure::HungUp)
            }
        }
    }

    fn facts(&self) -> Result<Facts, Failure> {
        match &self.0 {
            Talk::Http(http, message) => http.answer(message),
            Talk::Redfish(message) => http::redfish(message),
            Talk::Rtsp(message) => Ok(rtsp::answer(message)),
            Talk::Modbus(_) | Talk::Snmp(_) => Err(Failure::HungUp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn questions() -> [Question; 5] {
        let http = Http {
            path: "/".to_owned(),
            json: Some(String::new()),
            ..Http::default()
        };
        [
            Question::Http(http),
            Question::Redfish,
            Question::Rtsp("/".to_owned()),
            Question::Modbus(1),
            Question::Snmp("public".to_owned()),
        ]
    }

    #[test]
    fn a_server_of_rtsp_is_known_by_its_answer_whatever_its_status() {
        let (mut inquiry, request) =
            Inquiry::start(&Question::Rtsp("/a".to_owned()), "10.1.2.3:554", 0);
        let request = String::from_utf8(request).unwrap();
        assert!(request.starts_with("OPTIONS rtsp://10.1.2.3:554/a RTSP/1.0\r\nCSeq: 1\r\n"));
        let answer =
            "RTSP/1.0 401 Unauthorized\r\nServer: acme\r\nPublic: OPTIONS, DESCRIBE\r\n\r\n";
        let Ok(Turn::Done(facts)) = inquiry.receive(answer.as_bytes()) else {
            panic!("it is one");
        };
        let facts: Vec<_> = facts.iter().collect();
        assert_eq!(
            facts,
            [
                ("METHODS", "OPTIONS, DESCRIBE"),
                ("SERVER", "acme"),
                ("STATUS", "401")
            ]
        );
    }

    #[test]
    fn the_end_of_the_connection_is_the_end_of_an_answer_or_a_failure() {
        let question = Question::Http(Http {
            json: Some("/a".to_owned()),
            ..Http::default()
        });
        let (mut inquiry, _) = Inquiry::start(&question, "h", 0);
        assert_eq!(inquiry.hung_up(), Err(Failure::HungUp));
        assert_eq!(
            inquiry.receive(b"HTTP/1.0 200 OK\r\n\r\n{\"a\": \"b\"}"),
            Ok(Turn::More)
        );
        assert_eq!(inquiry.hung_up().unwrap().get("JSON"), Some("b"));
    }

    #[test]
    fn a_host_that_sends_our_own_bytes_back_is_nothing() {
        for question in questions() {
            let (mut inquiry, request) = Inquiry::start(&question, "10.1.2.3:80", 7);
            let echoed = inquiry.receive(&request);
            assert!(
                !matches!(echoed, Ok(Turn::Done(_) | Turn::Send(_))),
                "{echoed:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), size in 1_usize..50) {
            for question in questions() {
                let (mut inquiry, _) = Inquiry::start(&question, "h", 7);
                let ended = bytes.chunks(size).find_map(|part| inquiry.receive(part).err());
                prop_assert!(ended.is_some() || inquiry.hung_up().is_err());
            }
        }
    }
}
