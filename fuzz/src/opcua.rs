//! Answers of an OPC UA server. An input is a byte that says how many messages of an honest server come first, one that says in what
//! pieces the network brings the rest, and then that rest.
use crate::bytes::Reader;
use petiole_opcua::{
    Answer, Application, ApplicationType, Ask, Client, Endpoint, EndpointUrl, Failure, Heard,
    Question, Server, Survey,
    limits::{APPLICATIONS_MAX, ENDPOINTS_MAX, RECORDS_MAX, SERVERS_MAX},
};

const QUESTIONS: [Question; 3] = [
    Question::FindServers,
    Question::FindServersOnNetwork,
    Question::GetEndpoints,
];
/// A chunk's values are read once, and a message's once more.
const STEPS_PER_BYTE: usize = 2;
/// The values that may be begun and not read: the first one that fails, of a chunk and of a message.
const STEPS_BEYOND: usize = 8;

pub fn run(input: &[u8]) {
    let mut input = Reader(input);
    let (honest, piece) = (input.below(6), usize::from(input.byte()) + 1);
    let (whole, steps) = talk(honest, input.0, input.0.len().max(1));
    assert!(
        steps <= STEPS_PER_BYTE * (input.0.len() + 4096) + STEPS_BEYOND,
        "{steps} steps for {} bytes",
        input.0.len()
    );
    // However the network cuts them, the same bytes say the same.
    let (pieces, _) = talk(honest, input.0, piece);
    match (&whole.1, &pieces.1) {
        (None, None) => assert_eq!(whole.0, pieces.0),
        (whole, pieces) => assert_eq!(whole, pieces),
    }
    for answer in &whole.0 {
        check(answer);
    }
    survey(&whole.0);
    if let Ok(text) = std::str::from_utf8(input.0) {
        check_url(text);
    }
}

/// Returns the answers, the failure, and the number of steps.
fn talk(honest: u8, rest: &[u8], piece: usize) -> ((Vec<Answer>, Option<Failure>), usize) {
    let server = server();
    let url: EndpointUrl = "opc.tcp://plc:4840/".parse().expect("an address");
    let (mut client, mut send) = Client::start(&url, &QUESTIONS, std::time::Duration::ZERO);
    for _ in 0..honest {
        let said = server.receive(&send);
        let turn = client.receive(&said).expect("an honest server");
        send = turn.send;
        if turn.is_over {
            return ((vec![], None), client.steps());
        }
    }
    let mut answers = vec![];
    for bytes in rest.chunks(piece) {
        match client.receive(bytes) {
            Ok(turn) => answers.extend(turn.answers),
            Err(failure) => {
                assert!(failure.to_string().len() < 32_768);
                return ((answers, Some(failure)), client.steps());
            }
        }
    }
    ((answers, None), client.steps())
}

fn check(answer: &Answer) {
    match answer {
        Answer::Servers(applications) => assert!(applications.len() <= APPLICATIONS_MAX),
        Answer::ServersOnNetwork(servers) => assert!(servers.len() <= RECORDS_MAX),
        Answer::Endpoints(endpoints) => assert!(endpoints.len() <= ENDPOINTS_MAX),
        Answer::Refused(..) => {}
    }
}

/// Whatever a server answers, only so many others are asked, each once in a round, and a second round of the same answers says the same.
fn survey(answers: &[Answer]) {
    let url: EndpointUrl = "opc.tcp://10.0.0.1:4840/".parse().expect("an address");
    let mut survey = Survey::new(vec![url.clone()], true, |_| true);
    let mut before = None;
    for _ in 0..2 {
        survey.begin(vec![]);
        let mut count = 0;
        loop {
            let due = survey.due();
            if due.is_empty() {
                break;
            }
            count += due.len();
            assert!(count <= 4 * SERVERS_MAX, "{count} questions");
            for ask in due {
                survey.hear(match ask {
                    Ask::Lookup(host) => {
                        let is_known = host.len() % 2 == 0;
                        Heard::Lookup(host, is_known)
                    }
                    Ask::Server(asked, _) if asked == url => {
                        Heard::Server(asked, Ok(answers.to_vec()))
                    }
                    Ask::Server(asked, _) if asked.port() % 3 == 0 => {
                        Heard::Server(asked, Err("no".to_owned()))
                    }
                    Ask::Server(asked, _) => Heard::Server(asked, Ok(vec![])),
                });
            }
        }
        survey.end();
        let seen = survey.seen();
        assert!(seen.servers.len() <= SERVERS_MAX);
        assert!(survey.bytes() <= 2 << 20);
        let now = (
            seen.servers.keys().cloned().collect::<Vec<_>>(),
            seen.problems,
        );
        assert!(
            before
                .replace(now.clone())
                .is_none_or(|before| before == now)
        );
    }
}

/// An address that was read is shown as it was written, and its parts make the same one.
fn check_url(text: &str) {
    let Ok(url) = text.parse::<EndpointUrl>() else {
        return;
    };
    assert_eq!(url.as_str(), text);
    if let Ok(again) = EndpointUrl::new(url.host(), url.port(), url.path()) {
        assert_eq!(
            (again.host(), again.port(), again.path()),
            (url.host(), url.port(), url.path())
        );
    }
}

fn server() -> Server {
    Server {
        applications: vec![Application {
            name: "Press".to_owned(),
            kind: ApplicationType::SERVER,
            discovery_urls: vec!["opc.tcp://plc:4840/".to_owned()],
            ..Application::default()
        }],
        endpoints: vec![Endpoint::default()],
        ..Server::default()
    }
}
