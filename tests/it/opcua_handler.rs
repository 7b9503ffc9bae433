//! Tests of OPC UA servers on `lo`: a server, a discovery server, names that nobody knows, and programs that are no servers.
use crate::support::{
    opcua_server::OpcuaServer,
    running_discovery::{RunningDiscovery, find},
};
use petiole_opcua::{
    Application, ApplicationType, Endpoint, Question, Quirks, SecurityMode, Server, Status,
    UserToken,
};
use std::time::Duration;
use tokio::time::Instant;

fn application(name: &str, url: String) -> Application {
    Application {
        uri: format!("urn:{name}"),
        name: name.to_owned(),
        kind: ApplicationType::SERVER,
        discovery_urls: vec![url],
        ..Application::default()
    }
}

fn server(name: &str, host: &str, port: u16) -> Server {
    let url = format!("opc.tcp://{host}:{port}/UA");
    Server {
        applications: vec![application(name, url.clone())],
        endpoints: vec![Endpoint {
            url,
            mode: SecurityMode::SIGN_AND_ENCRYPT,
            policy: "http://opcfoundation.org/UA/SecurityPolicy#Basic256Sha256".to_owned(),
            users: vec![UserToken::USER_NAME],
            level: 1,
        }],
        ..Server::default()
    }
}

fn discover(urls: &[String]) -> RunningDiscovery {
    let urls: Vec<String> = urls.iter().map(|url| format!("\"{url}\"")).collect();
    let details = format!(
        "opcuaDiscoveryMethod: {{standard: {{discoveryUrls: [{}]}}}}",
        urls.join(", ")
    );
    RunningDiscovery::start("opcua", &details)
}

#[tokio::test]
async fn a_server_is_a_device_by_its_address_with_its_security_and_another_program_is_named() {
    let press = OpcuaServer::start(|port| server("press", "127.0.0.1", port)).await;
    let ssh = OpcuaServer::other_program("SSH-2.0-OpenSSH_9.6\r\n").await;
    let silent = OpcuaServer::other_program("").await;
    let began = Instant::now();
    let mut running = discover(&[silent.url(), ssh.url(), press.url()]);
    let id = format!("opc.tcp://127.0.0.1:{}/UA", press.port);
    let device = running.device(&id).await;
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "a silent one holds up nobody"
    );
    assert_eq!(device.properties["OPCUA_DISCOVERY_URL"], id);
    assert_eq!(device.properties["OPCUA_APPLICATION_NAME"], "press");
    assert_eq!(
        device.properties["OPCUA_SECURITY_POLICIES"],
        "Basic256Sha256"
    );
    assert_eq!(
        device.properties["OPCUA_ENDPOINT_0_USER_TOKENS"],
        "UserName"
    );
    assert!(device.connection.contains("OPCUA_DISCOVERY_URL"));
    let set = running.until("complete", |set| set.complete).await;
    assert_eq!(set.devices.len(), 1);
    let problems = set.problems.join("\n");
    let named = |url: String, why: &str| {
        let is_named = set
            .problems
            .iter()
            .any(|p| p.starts_with(&url) && p.contains(why));
        assert!(is_named, "{url} {why}: {problems}");
    };
    named(ssh.url(), "does not speak OPC UA");
    named(silent.url(), "no whole answer to Hello within 5 s");
    running.stop().await;
}

#[tokio::test]
async fn a_discovery_server_tells_of_its_servers_each_is_asked_and_a_name_that_nobody_knows_is_replaced()
 {
    let oven = OpcuaServer::start(|port| server("oven", "no-such-host.invalid", port)).await;
    let press = OpcuaServer::start(|port| server("press", "127.0.0.1", port)).await;
    let port = oven.port;
    let refuses = OpcuaServer::start(|port| Server {
        quirks: Quirks {
            refuses_open: Some(Status(0x8055_0000)),
            ..Quirks::default()
        },
        ..server("safe", "127.0.0.1", port)
    })
    .await;
    let registered = vec![
        application("oven", format!("opc.tcp://no-such-host.invalid:{port}/UA")),
        application("press", press.url()),
        application("safe", refuses.url()),
    ];
    let lds = OpcuaServer::start(|port| {
        let own = Application {
            kind: ApplicationType::DISCOVERY_SERVER,
            ..application("LDS", format!("opc.tcp://127.0.0.1:{port}/"))
        };
        Server {
            applications: [vec![own], registered].concat(),
            quirks: Quirks {
                chunk: 100,
                refuses: Some((Question::GetEndpoints, Status(0x800B_0000))),
                ..Quirks::default()
            },
            ..Server::default()
        }
    })
    .await;
    let mut running = discover(&[lds.url()]);
    let set = running.until("complete", |set| set.complete).await;
    let replaced = format!("opc.tcp://127.0.0.1:{port}/UA");
    let device = find(&set, &replaced).unwrap();
    let advertised = format!("opc.tcp://no-such-host.invalid:{port}/UA");
    assert_eq!(device.properties["OPCUA_ADVERTISED_URL"], advertised);
    assert_eq!(device.properties["OPCUA_ENDPOINT_0_URL"], replaced);
    assert!(find(&set, &press.url()).is_some());
    assert_eq!(set.devices.len(), 2, "{:?}", set.devices.keys());
    assert_eq!(set.problems.len(), 1);
    let why = &set.problems[0];
    for part in [
        &refuses.url(),
        &lds.url(),
        "\"safe\"",
        "BadSecurityPolicyRejected",
        "must allow discovery",
    ] {
        assert!(why.contains(part), "{why}");
    }
}

#[tokio::test]
async fn a_server_that_is_down_is_a_problem_with_what_to_look_at_and_no_device() {
    let press = OpcuaServer::start(|port| server("press", "127.0.0.1", port)).await;
    let url = press.url();
    drop(press);
    let mut running = discover(std::slice::from_ref(&url));
    let set = running.until("complete", |set| set.complete).await;
    assert!(set.devices.is_empty());
    let problem = &set.problems[0];
    assert!(
        problem.starts_with(&url) && problem.contains("is the server running"),
        "{problem}"
    );
}

#[tokio::test]
async fn a_name_without_an_address_is_named_with_what_helps() {
    let mut running = discover(&["opc.tcp://no-such-host.invalid:4840/".to_owned()]);
    let set = running.until("complete", |set| set.complete).await;
    let problem = &set.problems[0];
    assert!(
        problem.contains("no address of no-such-host.invalid") && problem.contains("DNS"),
        "{problem}"
    );
}
