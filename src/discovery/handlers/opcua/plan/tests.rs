use super::*;
use crate::model::device::Device;
use petiole_opcua::{Application, ApplicationType, Endpoint, ServerOnNetwork};

const LDS: &str = "opc.tcp://10.0.0.1:4840/";
const SERVER: &str = "opc.tcp://10.0.0.2:4841/";

fn plan(yaml: &str) -> Plan {
    Plan::new(Details::parse(yaml).unwrap())
}

fn standard(urls: &[&str], more: &str) -> Plan {
    let urls: Vec<String> = urls.iter().map(|url| format!("\"{url}\"")).collect();
    let urls = urls.join(", ");
    plan(&format!(
        "opcuaDiscoveryMethod: {{standard: {{discoveryUrls: [{urls}]{more}}}}}"
    ))
}

fn url(text: &str) -> EndpointUrl {
    text.parse().unwrap()
}

fn application(name: &str, kind: ApplicationType, url: &str) -> Application {
    Application {
        name: name.to_owned(),
        kind,
        discovery_urls: vec![url.to_owned()],
        ..Application::default()
    }
}

fn server(name: &str, url: &str) -> Application {
    application(name, ApplicationType::Server, url)
}

type World<'a> = BTreeMap<&'a str, Result<Vec<Answer>, String>>;

/// Has one round in which servers answer as `world` says, and hosts are known if they are in `known`. Returns what was asked.
fn round(plan: &mut Plan, world: &World<'_>, known: &[&str]) -> Vec<String> {
    plan.begin(vec![]);
    let mut story = vec![];
    loop {
        let due = plan.due();
        if due.is_empty() {
            break;
        }
        for ask in due {
            plan.hear(match ask {
                Ask::Server(url, questions) => {
                    let questions: Vec<String> =
                        questions.iter().map(ToString::to_string).collect();
                    story.push(format!("{url} {}", questions.join(" ")));
                    let answer = world.get(url.as_str()).cloned();
                    Heard::Server(url, answer.unwrap_or_else(|| Err("refused".to_owned())))
                }
                Ask::Lookup(host) => {
                    story.push(format!("lookup {host}"));
                    let is_known = known.contains(&host.as_str());
                    Heard::Lookup(host, is_known)
                }
            });
            let set = plan.devices();
            assert!(set.devices.len() <= SERVERS_MAX);
        }
    }
    plan.end(true);
    story
}

fn ids(plan: &Plan) -> Vec<String> {
    let set = plan.devices();
    set.devices.keys().map(ToString::to_string).collect()
}

fn device(plan: &Plan, id: &str) -> Device {
    let set = plan.devices();
    (*set.devices[&DeviceId::new(id)]).clone()
}

/// A discovery server with a server that has registered.
fn lds_and_server() -> World<'static> {
    let lds = application("LDS", ApplicationType::DiscoveryServer, LDS);
    let endpoint = Endpoint {
        policy: "http://x#None".to_owned(),
        ..Endpoint::default()
    };
    BTreeMap::from([
        (
            LDS,
            Ok(vec![Answer::Servers(vec![lds, server("press", SERVER)])]),
        ),
        (SERVER, Ok(vec![Answer::Endpoints(vec![endpoint])])),
    ])
}

#[test]
fn a_server_is_asked_once_in_a_round_and_a_registered_one_for_its_endpoints() {
    let mut plan = standard(&[LDS], "");
    assert!(!plan.devices().complete);
    for _ in 0..2 {
        let story = round(&mut plan, &lds_and_server(), &[]);
        let expected = [
            "opc.tcp://10.0.0.1:4840/ FindServers GetEndpoints",
            "opc.tcp://10.0.0.2:4841/ GetEndpoints",
        ];
        assert_eq!(story, expected);
    }
    assert_eq!(ids(&plan), [SERVER], "a discovery server is no device");
    let set = plan.devices();
    assert!(
        set.complete && set.problems.is_empty(),
        "{:?}",
        set.problems
    );
    let device = device(&plan, SERVER);
    assert_eq!(device.properties["OPCUA_SECURITY_POLICIES"], "None");
}

#[test]
fn a_discovery_server_that_is_down_takes_no_server_with_it() {
    let mut plan = standard(&[LDS], "");
    let mut world = lds_and_server();
    round(&mut plan, &world, &[]);
    world.insert(LDS, Err("down".to_owned()));
    for _ in 0..5 {
        round(&mut plan, &world, &[]);
        assert_eq!(ids(&plan), [SERVER]);
        assert_eq!(plan.devices().problems, [format!("{LDS}: down")]);
    }
    // The server itself is gone after the second failure in a row, not after the first.
    world.remove(SERVER);
    round(&mut plan, &world, &[]);
    assert_eq!(ids(&plan), [SERVER]);
    round(&mut plan, &world, &[]);
    assert_eq!(ids(&plan), [""; 0]);
    let problems = plan.devices().problems;
    assert!(
        problems[1].contains("of which opc.tcp://10.0.0.1:4840/ tells: refused"),
        "{problems:?}"
    );
    // And back at once.
    round(&mut plan, &lds_and_server(), &[]);
    assert_eq!(ids(&plan), [SERVER]);
    assert_eq!(plan.devices().problems, [""; 0]);
}

#[test]
fn a_server_that_does_not_answer_at_first_is_a_problem_and_no_device() {
    let mut plan = standard(&[SERVER, LDS], "");
    round(&mut plan, &lds_and_server(), &[]);
    assert_eq!(ids(&plan), [SERVER]);
    let mut plan = standard(&[SERVER], "");
    round(&mut plan, &BTreeMap::new(), &[]);
    let set = plan.devices();
    assert!(set.complete && !set.left_out && set.devices.is_empty());
    assert_eq!(set.problems, ["opc.tcp://10.0.0.2:4841/: refused"]);
}

#[test]
fn a_host_is_looked_up_once_and_again_after_a_minute_and_replaced_while_it_is_unknown() {
    let mut plan = standard(&["opc.tcp://10.0.0.2:4841/"], "");
    let own = server("press", "opc.tcp://press-pc:4841/UA");
    let world: World<'_> = BTreeMap::from([
        (SERVER, Ok(vec![Answer::Servers(vec![own])])),
        ("opc.tcp://press-pc:4841/UA", Ok(vec![])),
    ]);
    let story = round(&mut plan, &world, &[]);
    assert_eq!(story[1], "lookup press-pc");
    let replaced = "opc.tcp://10.0.0.2:4841/UA";
    assert_eq!(ids(&plan), [replaced]);
    let advertised = &device(&plan, replaced).properties["OPCUA_ADVERTISED_URL"];
    assert_eq!(advertised, "opc.tcp://press-pc:4841/UA");
    // The name is known now, but is not looked up in each round.
    for _ in 1..LOOKUP_ROUNDS {
        assert_eq!(round(&mut plan, &world, &["press-pc"]).len(), 1);
    }
    // It stays what it is until the answer comes.
    plan.begin(vec![]);
    let due = plan.due();
    assert!(due.contains(&Ask::Lookup("press-pc".to_owned())), "{due:?}");
    assert_eq!(ids(&plan), [replaced]);
    plan.hear(Heard::Lookup("press-pc".to_owned(), true));
    round(&mut plan, &world, &["press-pc"]);
    assert_eq!(ids(&plan), ["opc.tcp://press-pc:4841/UA"]);
}

#[test]
fn a_server_that_tells_of_its_endpoints_only_at_its_own_address_is_asked_there_too() {
    let own = "opc.tcp://10.0.0.2:4841";
    let endpoints = lds_and_server()[SERVER].clone();
    let world: World<'_> = BTreeMap::from([
        (
            SERVER,
            Ok(vec![Answer::Servers(vec![server("press", own)])]),
        ),
        (own, endpoints),
    ]);
    let mut plan = standard(&[SERVER], "");
    let story = round(&mut plan, &world, &[]);
    assert_eq!(story[1], "opc.tcp://10.0.0.2:4841 GetEndpoints");
    assert_eq!(
        device(&plan, own).properties["OPCUA_SECURITY_POLICIES"],
        "None"
    );
    // It is there all the same if it refuses that.
    let mut plan = standard(&[SERVER], "");
    let mut refuses = world;
    refuses.remove(own);
    round(&mut plan, &refuses, &[]);
    assert_eq!(ids(&plan), [own]);
    assert_eq!(plan.devices().problems, [""; 0]);
}

#[test]
fn servers_of_the_network_are_asked_only_if_that_is_wished_and_not_further() {
    let oven = "opc.tcp://10.0.0.3:4840/";
    let record = |url: &str| ServerOnNetwork {
        discovery_url: url.to_owned(),
        ..ServerOnNetwork::default()
    };
    let named = record("opc.tcp://oven-pc:4840/");
    let on_network = vec![record(oven), record(LDS), record("nonsense"), named];
    let beyond = Answer::ServersOnNetwork(vec![record("opc.tcp://10.0.0.9:1/")]);
    let world: World<'_> = BTreeMap::from([
        (LDS, Ok(vec![Answer::ServersOnNetwork(on_network)])),
        (
            oven,
            Ok(vec![Answer::Servers(vec![server("oven", oven)]), beyond]),
        ),
    ]);
    let mut plan = standard(&[LDS], ", findServersOnNetwork: true");
    let story = round(&mut plan, &world, &["oven-pc"]);
    let expected = [
        "opc.tcp://10.0.0.1:4840/ FindServers GetEndpoints FindServersOnNetwork",
        "opc.tcp://10.0.0.3:4840/ FindServers GetEndpoints",
        "lookup oven-pc",
        "opc.tcp://oven-pc:4840/ FindServers GetEndpoints",
    ];
    assert_eq!(story, expected);
    assert_eq!(ids(&plan), [oven]);
}

#[test]
fn only_servers_of_the_wanted_names_become_devices() {
    let kinds = [
        ("press", ApplicationType::Server),
        ("oven", ApplicationType::ClientAndServer),
        ("hmi", ApplicationType::Client),
        ("lds", ApplicationType::DiscoveryServer),
        ("odd", ApplicationType::Other(7)),
    ];
    let applications =
        kinds.map(|(name, kind)| application(name, kind, &format!("{SERVER}{name}")));
    let world: World<'_> =
        BTreeMap::from([(SERVER, Ok(vec![Answer::Servers(applications.to_vec())]))]);
    let names = |filter: &str| {
        let yaml = format!(
            "opcuaDiscoveryMethod: {{standard: {{discoveryUrls: [\"{SERVER}\"]}}}}\napplicationNames: {filter}"
        );
        let mut plan = plan(&yaml);
        round(&mut plan, &world, &[]);
        let devices = plan.devices().devices;
        let name = |device: &Arc<Device>| device.properties["OPCUA_APPLICATION_NAME"].clone();
        devices.values().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names("{action: Exclude, items: []}"), ["oven", "press"]);
    assert_eq!(names("{action: Exclude, items: [oven]}"), ["press"]);
    assert_eq!(names("{action: Include, items: [oven, hmi]}"), ["oven"]);
}

#[test]
fn a_server_that_names_very_many_is_bounded_in_questions_devices_and_bytes() {
    let many: Vec<Application> = (0..1000)
        .map(|n| {
            server(
                &format!("s{n}"),
                &format!("opc.tcp://10.1.{}.{}:1/", n / 250, n % 250),
            )
        })
        .collect();
    let world: World<'_> = BTreeMap::from([(LDS, Ok(vec![Answer::Servers(many)]))]);
    let mut plan = standard(&[LDS], "");
    let story = round(&mut plan, &world, &[]);
    assert_eq!(story.len(), SERVERS_MAX);
    let set = plan.devices();
    assert!(set.left_out && set.problems.last().unwrap().contains("256 are the most"));

    let mut large = server("large", SERVER);
    large.uri = "x".repeat(4096);
    let large = vec![large; 300];
    let world: World<'_> = BTreeMap::from([(SERVER, Ok(vec![Answer::Servers(large)]))]);
    let mut plan = standard(&[SERVER], "");
    round(&mut plan, &world, &[]);
    assert_eq!((plan.bytes(), ids(&plan).len()), (0, 0));
    let problems = plan.devices().problems;
    assert!(problems[0].contains("1024 KiB at most"), "{problems:?}");
    plan.other_bytes = ALL_BYTES_MAX;
    round(&mut plan, &lds_and_server(), &[]);
    assert_eq!(ids(&plan), [""; 0], "others leave nothing");
}

#[test]
fn what_is_announced_no_more_is_forgotten() {
    let mut plan = plan("opcuaDiscoveryMethod: {mdns: {}}");
    plan.begin(vec![url(SERVER), url(SERVER)]);
    assert_eq!(plan.due().len(), 1);
    let answer = vec![Answer::Servers(vec![server("press", SERVER)])];
    plan.hear(Heard::Server(url(SERVER), Ok(answer)));
    assert_eq!(plan.due(), []);
    plan.end(false);
    assert_eq!(ids(&plan), [SERVER]);
    assert!(
        !plan.devices().complete,
        "another may not have announced itself yet"
    );
    plan.begin(vec![]);
    assert_eq!(plan.due(), []);
    plan.end(true);
    assert!(plan.devices().complete && plan.devices().devices.is_empty());
    assert!(plan.asked.is_empty());
}
