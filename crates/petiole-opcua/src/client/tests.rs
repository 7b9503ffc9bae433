use super::*;
use crate::{
    answer::{Application, ApplicationType, Endpoint, SecurityMode, UserToken},
    chunk::{CHUNK_MAX, write},
    server::{Quirks, Server},
    status::Status,
};
use proptest::{collection::vec, prelude::*};

const ALL: [Question; 3] = [
    Question::FindServers,
    Question::FindServersOnNetwork,
    Question::GetEndpoints,
];

fn start(questions: &[Question]) -> (Client, Vec<u8>) {
    let url = "opc.tcp://plc:4840/".parse().unwrap();
    Client::start(&url, questions, Duration::from_secs(1_700_000_000))
}

/// Has the whole conversation, with `at_once` bytes of the server at a time.
fn talk(server: &Server, questions: &[Question], at_once: usize) -> Result<Vec<Answer>, Failure> {
    let (mut client, mut send) = start(questions);
    let mut answers = vec![];
    loop {
        let said = server.receive(&std::mem::take(&mut send));
        assert!(!said.is_empty() || client.step() == Step::Closed);
        for bytes in said.chunks(at_once) {
            let turn = client.receive(bytes)?;
            send.extend(turn.send);
            answers.extend(turn.answers);
            if turn.is_over {
                assert_eq!(client.hung_up(), None);
                assert_eq!(server.receive(&send), b"", "it is closed");
                return Ok(answers);
            }
        }
    }
}

fn server() -> Server {
    Server {
        applications: vec![Application {
            uri: "urn:plc".to_owned(),
            product_uri: "urn:product".to_owned(),
            name: "Press 4 (Halle ä)".to_owned(),
            kind: ApplicationType::CLIENT_AND_SERVER,
            discovery_urls: vec!["opc.tcp://plc:4840/".to_owned(), "https://plc".to_owned()],
        }],
        on_network: vec!["opc.tcp://oven:4841/".to_owned()],
        endpoints: vec![Endpoint {
            url: "opc.tcp://plc:4840/".to_owned(),
            mode: SecurityMode::SIGN_AND_ENCRYPT,
            policy: "http://opcfoundation.org/UA/SecurityPolicy#Basic256Sha256".to_owned(),
            users: vec![UserToken::USER_NAME, UserToken::CERTIFICATE],
            level: 3,
        }],
        quirks: Quirks::default(),
    }
}

fn expected(server: &Server) -> Vec<Answer> {
    vec![
        Answer::Servers(server.applications.clone()),
        Answer::ServersOnNetwork(server.on_network.clone()),
        Answer::Endpoints(server.endpoints.clone()),
    ]
}

#[test]
fn each_question_is_answered_however_the_bytes_come() {
    let server = server();
    for at_once in [1, 7, 100_000] {
        let answers = talk(&server, &ALL, at_once).unwrap();
        assert_eq!(answers, expected(&server));
    }
    assert_eq!(server.endpoints[0].policy_name(), "Basic256Sha256");
    assert_eq!(talk(&server, &[], 100).unwrap(), []);
}

#[test]
fn section_6_7_a_message_of_several_chunks_is_one_and_chunks_are_bounded() {
    let mut server = server();
    server.quirks.chunk = 10;
    assert_eq!(talk(&server, &ALL, 9).unwrap(), expected(&server));
    server.quirks.chunk = 1;
    let why = talk(&server, &ALL, 1000).unwrap_err();
    assert_eq!(why.step, Step::Ask(Question::FindServers));
    assert!(
        why.to_string().contains("65 chunks, and 64 are the most"),
        "{why}"
    );
}

#[test]
fn section_6_7_3_a_message_that_its_sender_gives_up_is_a_refusal() {
    let mut server = server();
    server.quirks.chunk = 10;
    server.quirks.aborts = Some(Status(0x80B9_0000));
    let refused = ALL.map(|question| Answer::Refused(question, Status(0x80B9_0000)));
    assert_eq!(talk(&server, &ALL, 1000).unwrap(), refused);
}

#[test]
fn section_5_3_a_service_fault_refuses_one_question_and_the_next_is_asked() {
    let mut server = server();
    let status = Status(0x800B_0000);
    server.quirks.refuses = Some((Question::FindServersOnNetwork, status));
    let answers = talk(&server, &ALL, 1000).unwrap();
    let refused = Answer::Refused(Question::FindServersOnNetwork, status);
    assert_eq!(answers[1], refused);
    assert_eq!(answers[2], expected(&server)[2]);
}

#[test]
fn what_a_server_refuses_is_named_with_its_step() {
    let failure = |quirks| {
        let server = Server { quirks, ..server() };
        talk(&server, &ALL, 1000).unwrap_err().to_string()
    };
    let refuses_hello = Quirks {
        refuses_hello: Some(Status(0x8083_0000)),
        ..Quirks::default()
    };
    assert_eq!(
        failure(refuses_hello),
        "the server answered Hello with BadTcpEndpointUrlInvalid (\"no\")"
    );
    let refuses_open = Quirks {
        refuses_open: Some(Status(0x8055_0000)),
        ..Quirks::default()
    };
    assert_eq!(
        failure(refuses_open),
        "the server answered OpenSecureChannel with BadSecurityPolicyRejected"
    );
}

#[test]
fn another_program_and_one_that_hangs_up_are_named() {
    let (mut client, _) = start(&ALL);
    let why = client.receive(b"SSH-2.0-OpenSSH").unwrap_err().to_string();
    assert_eq!(
        why,
        "what answered Hello does not speak OPC UA over TCP (opc.tcp)"
    );
    assert!(client.receive(b"more").unwrap().is_over);
    let (client, _) = start(&ALL);
    let why = client.hung_up().unwrap().to_string();
    assert_eq!(
        why,
        "the server closed the connection instead of answering Hello"
    );
}

#[test]
fn a_message_at_the_wrong_time_of_another_request_or_of_another_type_ends_it() {
    let (mut client, hello) = start(&ALL);
    let acknowledged = server().receive(&hello);
    let why = client.receive(&[acknowledged.clone(), acknowledged].concat());
    let why = why.unwrap_err();
    assert_eq!(why.step, Step::Open);
    assert_eq!(why.reason, Reason::Unexpected("an Acknowledge"));

    // The answer to the first question comes again in the place of the second.
    let (mut client, hello) = start(&ALL);
    let open = client.receive(&server().receive(&hello)).unwrap().send;
    let ask = client.receive(&server().receive(&open)).unwrap().send;
    let answer = server().receive(&ask);
    let why = client
        .receive(&[answer.clone(), answer].concat())
        .unwrap_err();
    assert_eq!(
        why.reason,
        Reason::Unexpected("the answer to another request")
    );

    // An answer to the open question, by another one's type.
    let (mut client, hello) = start(&[Question::GetEndpoints]);
    let open = client.receive(&server().receive(&hello)).unwrap().send;
    client.receive(&server().receive(&open)).unwrap();
    let why = client.receive(&server().receive(&ask)).unwrap_err();
    assert_eq!(why.reason, Reason::Unexpected("a message of another type"));
}

#[test]
fn section_7_1_2_4_a_server_with_a_small_buffer_is_named() {
    let (mut client, _) = start(&ALL);
    let acknowledge = [0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let bytes = write(Kind::Acknowledge, Place::Last, &acknowledge);
    let why = client.receive(&bytes).unwrap_err().to_string();
    assert!(why.contains("messages of 100 bytes at most"), "{why}");
}

#[test]
fn a_message_that_is_too_large_ends_before_it_is_kept() {
    let mut server = server();
    server.applications = vec![
        Application {
            name: "x".repeat(4000),
            ..Application::default()
        };
        100
    ];
    let why = talk(&server, &ALL, CHUNK_MAX).unwrap_err().to_string();
    assert!(why.contains("bytes, and 262144 are the most"), "{why}");
}

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

fn applications() -> impl Strategy<Value = Vec<Application>> {
    let kind = (-1..6).prop_map(ApplicationType);
    let application = (text(), text(), text(), kind, vec(text(), 0..4));
    let application =
        application.prop_map(
            |(uri, product_uri, name, kind, discovery_urls)| Application {
                uri,
                product_uri,
                name,
                kind,
                discovery_urls,
            },
        );
    vec(application, 0..4)
}

fn endpoints() -> impl Strategy<Value = Vec<Endpoint>> {
    let users = vec((-1..5).prop_map(UserToken), 0..4);
    let mode = (1..5).prop_map(SecurityMode);
    let endpoint = (text(), mode, text(), users, any::<u8>());
    let endpoint = endpoint.prop_map(|(url, mode, policy, users, level)| Endpoint {
        url,
        mode,
        policy,
        users,
        level,
    });
    vec(endpoint, 0..4)
}

fn servers() -> impl Strategy<Value = Server> {
    let parts = (
        applications(),
        vec(text(), 0..4),
        endpoints(),
        40..2000_usize,
    );
    parts.prop_map(|(applications, on_network, endpoints, chunk)| Server {
        applications,
        on_network,
        endpoints,
        quirks: Quirks {
            chunk,
            ..Quirks::default()
        },
    })
}

proptest! {
    #[test]
    fn what_a_server_says_is_what_is_read(server in servers(), at_once in 1..500_usize) {
        prop_assert_eq!(talk(&server, &ALL, at_once).unwrap(), expected(&server));
    }

    #[test]
    fn no_bytes_make_it_panic_or_take_more_steps_than_bytes(
        noise in vec(any::<u8>(), 0..400),
        at in 0..400_usize,
        step in 0..4_usize,
    ) {
        let server = server();
        let (mut client, mut send) = start(&ALL);
        let mut bytes = 0;
        for _ in 0..step {
            let said = server.receive(&send);
            bytes += said.len();
            send = client.receive(&said).unwrap().send;
        }
        // The right answer, with something else from some place on.
        let mut said = server.receive(&send);
        said.truncate(at);
        said.extend(noise);
        bytes += said.len();
        drop(client.receive(&said));
        // A message is read once as chunks, and once as a whole; each value that cannot be read ends it.
        prop_assert!(client.steps() <= 2 * bytes + 8, "{} {bytes}", client.steps());
    }
}
