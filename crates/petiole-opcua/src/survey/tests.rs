use super::*;
use crate::said::NAMED_FOR;
use crate::{answer::ApplicationType, status::Status};

const LDS: &str = "opc.tcp://10.0.0.1:4840/";
const SERVER: &str = "opc.tcp://10.0.0.2:4841/";

fn asks(urls: &[&str], asks_for_network: bool) -> Survey {
    Survey::new(
        urls.iter().map(|text| url(text)).collect(),
        asks_for_network,
        |_| true,
    )
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
    application(name, ApplicationType::SERVER, url)
}

type World<'a> = BTreeMap<&'a str, Result<Vec<Answer>, String>>;

/// Has one round in which servers answer as `world` says, and hosts are known if they are in `known`. Returns what was asked.
fn round(survey: &mut Survey, world: &World<'_>, known: &[&str]) -> Vec<String> {
    survey.begin(vec![]);
    let mut story = vec![];
    loop {
        let due = survey.due();
        if due.is_empty() {
            break;
        }
        for ask in due {
            survey.hear(match ask {
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
            assert!(survey.seen().servers.len() <= SERVERS_MAX);
        }
    }
    survey.end();
    story
}

fn ids(survey: &Survey) -> Vec<String> {
    survey
        .seen()
        .servers
        .keys()
        .map(ToString::to_string)
        .collect()
}

fn policy(survey: &Survey, id: &str) -> String {
    let seen = survey.seen();
    seen.servers[&url(id)].endpoints[0].policy_name().to_owned()
}

/// A discovery server with a server that has registered.
fn lds_and_server() -> World<'static> {
    let lds = application("LDS", ApplicationType::DISCOVERY_SERVER, LDS);
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
    let mut survey = asks(&[LDS], false);
    for _ in 0..2 {
        let story = round(&mut survey, &lds_and_server(), &[]);
        let expected = [
            "opc.tcp://10.0.0.1:4840/ FindServers GetEndpoints",
            "opc.tcp://10.0.0.2:4841/ GetEndpoints",
        ];
        assert_eq!(story, expected);
    }
    assert_eq!(ids(&survey), [SERVER], "a discovery server is no device");
    assert_eq!(survey.seen().problems, [""; 0]);
    assert_eq!(policy(&survey, SERVER), "None");
}

#[test]
fn a_discovery_server_that_is_down_takes_no_server_with_it() {
    let mut survey = asks(&[LDS], false);
    let mut world = lds_and_server();
    round(&mut survey, &world, &[]);
    world.insert(LDS, Err("down".to_owned()));
    for _ in 0..5 {
        round(&mut survey, &world, &[]);
        assert_eq!(ids(&survey), [SERVER]);
        assert_eq!(survey.seen().problems, [format!("{LDS}: down")]);
    }
    // The server itself is gone after the second failure in a row, not after the first.
    world.remove(SERVER);
    round(&mut survey, &world, &[]);
    assert_eq!(ids(&survey), [SERVER]);
    round(&mut survey, &world, &[]);
    assert_eq!(ids(&survey), [""; 0]);
    let problems = survey.seen().problems;
    assert!(
        problems[1].contains("of which opc.tcp://10.0.0.1:4840/ tells: refused"),
        "{problems:?}"
    );
    // And back at once.
    round(&mut survey, &lds_and_server(), &[]);
    assert_eq!(ids(&survey), [SERVER]);
    assert_eq!(survey.seen().problems, [""; 0]);
}

#[test]
fn a_server_that_does_not_answer_at_first_is_a_problem_and_no_device() {
    let mut survey = asks(&[SERVER, LDS], false);
    round(&mut survey, &lds_and_server(), &[]);
    assert_eq!(ids(&survey), [SERVER]);
    let mut survey = asks(&[SERVER], false);
    round(&mut survey, &BTreeMap::new(), &[]);
    let seen = survey.seen();
    assert!(!seen.leaves_out && seen.servers.is_empty());
    assert_eq!(seen.problems, ["opc.tcp://10.0.0.2:4841/: refused"]);
}

#[test]
fn a_host_is_looked_up_once_and_again_after_a_minute_and_replaced_while_it_is_unknown() {
    let mut survey = asks(&["opc.tcp://10.0.0.2:4841/"], false);
    let own = server("press", "opc.tcp://press-pc:4841/UA");
    let world: World<'_> = BTreeMap::from([
        (SERVER, Ok(vec![Answer::Servers(vec![own])])),
        ("opc.tcp://press-pc:4841/UA", Ok(vec![])),
    ]);
    let story = round(&mut survey, &world, &[]);
    assert_eq!(story[1], "lookup press-pc");
    let replaced = "opc.tcp://10.0.0.2:4841/UA";
    assert_eq!(ids(&survey), [replaced]);
    let advertised = survey.seen().servers[&url(replaced)].advertised.to_owned();
    assert_eq!(advertised, "opc.tcp://press-pc:4841/UA");
    // The name is known now, but is not looked up in each round.
    for _ in 1..LOOKUP_ROUNDS {
        let story = round(&mut survey, &world, &["press-pc"]);
        assert!(
            !story.iter().any(|asked| asked.starts_with("lookup")),
            "{story:?}"
        );
    }
    // It stays what it is until the answer comes.
    survey.begin(vec![]);
    let due = survey.due();
    assert!(due.contains(&Ask::Lookup("press-pc".to_owned())), "{due:?}");
    assert_eq!(ids(&survey), [replaced]);
    survey.hear(Heard::Lookup("press-pc".to_owned(), true));
    round(&mut survey, &world, &["press-pc"]);
    assert_eq!(ids(&survey), ["opc.tcp://press-pc:4841/UA"]);
}

#[test]
fn one_lookup_that_fails_makes_no_other_server() {
    let mut survey = asks(&["opc.tcp://10.0.0.2:4841/"], false);
    let own = server("press", "opc.tcp://press-pc:4841/UA");
    let world: World<'_> = BTreeMap::from([
        (SERVER, Ok(vec![Answer::Servers(vec![own])])),
        ("opc.tcp://press-pc:4841/UA", Ok(vec![])),
    ]);
    let named = "opc.tcp://press-pc:4841/UA";
    let is_looked_up = |story: &[String]| story.iter().any(|asked| asked.starts_with("lookup"));
    round(&mut survey, &world, &["press-pc"]);
    while !is_looked_up(&round(&mut survey, &world, &[])) {}
    assert_eq!(ids(&survey), [named]);
    let story = round(&mut survey, &world, &["press-pc"]);
    assert!(is_looked_up(&story), "again in the next round: {story:?}");
    assert_eq!(ids(&survey), [named]);
    // The DNS server is away for some minutes, and comes back.
    for _ in 0..2 {
        for _ in 0..20 {
            round(&mut survey, &world, &[]);
            assert_eq!(ids(&survey), [named]);
        }
        round(&mut survey, &world, &["press-pc"]);
    }
    for _ in 0..=30 + LOOKUP_ROUNDS {
        round(&mut survey, &world, &[]);
    }
    assert_eq!(ids(&survey), ["opc.tcp://10.0.0.2:4841/UA"]);
}

#[test]
fn a_discovery_server_that_was_started_again_takes_no_server_with_it() {
    let mut survey = asks(&[LDS], false);
    let mut world = lds_and_server();
    round(&mut survey, &world, &[]);
    let lds = application("LDS", ApplicationType::DISCOVERY_SERVER, LDS);
    world.insert(LDS, Ok(vec![Answer::Servers(vec![lds])]));
    for _ in 0..NAMED_FOR {
        round(&mut survey, &world, &[]);
        assert_eq!(ids(&survey), [SERVER]);
    }
    round(&mut survey, &world, &[]);
    assert_eq!(ids(&survey), [""; 0], "it has not registered again");
    // It registers, and a server that is down is gone all the same.
    round(&mut survey, &lds_and_server(), &[]);
    round(&mut survey, &world, &[]);
    assert_eq!(ids(&survey), [SERVER]);
    world.remove(SERVER);
    for _ in 0..FAILURES {
        round(&mut survey, &world, &[]);
    }
    assert_eq!(ids(&survey), [""; 0]);
    assert_eq!(survey.seen().problems, [""; 0], "it is not expected");
    let named = |url: &str| {
        let answer = Answer::Servers(vec![server("press", url)]);
        World::from([(LDS, Ok(vec![answer]))])
    };
    round(&mut survey, &named("opc.tcp://plc:99999/"), &[]);
    assert!(survey.seen().problems[0].contains("99999"));
    round(&mut survey, &lds_and_server(), &[]);
    assert_eq!(survey.seen().problems, [""; 0], "it was corrected");
}

#[test]
fn a_server_that_has_another_address_is_no_second_one() {
    let mut survey = asks(&[LDS, SERVER], false);
    let named = |url: &str| Application {
        uri: "urn:press".to_owned(),
        ..server("press", url)
    };
    for url in ["opc.tcp://10.0.0.2:4841/a", "opc.tcp://10.0.0.2:4841/b"] {
        let endpoints = Answer::Endpoints(vec![Endpoint::default()]);
        let own = vec![Answer::Servers(vec![server("own", url)]), endpoints];
        let world = World::from([
            (LDS, Ok(vec![Answer::Servers(vec![named(url)])])),
            (SERVER, Ok(own.clone())),
            (url, Ok(own)),
        ]);
        round(&mut survey, &world, &[]);
        assert_eq!(ids(&survey), [url]);
    }
}

#[test]
fn servers_that_are_off_are_asked_in_every_third_round() {
    let urls: Vec<String> = (0..30)
        .map(|n| format!("opc.tcp://10.0.0.{n}:4840/"))
        .collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let mut survey = asks(&urls, false);
    let off = World::new();
    for _ in 0..OFF_AFTER {
        assert_eq!(round(&mut survey, &off, &[]).len(), 30);
    }
    for _ in 0..6 {
        assert_eq!(round(&mut survey, &off, &[]).len(), 10);
    }
    assert_eq!(survey.seen().problems.len(), 30);
}

#[test]
fn a_server_that_refuses_once_what_it_has_answered_stays_with_those_that_it_names() {
    let mut survey = asks(&[LDS], false);
    round(&mut survey, &lds_and_server(), &[]);
    let mut halted = lds_and_server();
    let status = Status(0x800E_0000);
    halted.insert(
        LDS,
        Ok(vec![Answer::Refused(Question::FindServers, status)]),
    );
    round(&mut survey, &halted, &[]);
    assert_eq!(ids(&survey), [SERVER]);
    let problems = survey.seen().problems;
    assert!(problems[0].contains("FindServers"), "{problems:?}");
    round(&mut survey, &halted, &[]);
    assert_eq!(ids(&survey), [SERVER], "it answers itself");
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
    let mut survey = asks(&[SERVER], false);
    let story = round(&mut survey, &world, &[]);
    assert_eq!(story[1], "opc.tcp://10.0.0.2:4841 GetEndpoints");
    assert_eq!(policy(&survey, own), "None");
    // It is there all the same if it refuses that.
    let mut survey = asks(&[SERVER], false);
    let mut refuses = world;
    refuses.remove(own);
    round(&mut survey, &refuses, &[]);
    assert_eq!(ids(&survey), [own]);
    assert_eq!(survey.seen().problems, [""; 0]);
}

#[test]
fn servers_of_the_network_are_asked_only_if_that_is_wished_and_not_further() {
    let oven = "opc.tcp://10.0.0.3:4840/";
    let on_network = [oven, LDS, "nonsense", "opc.tcp://oven-pc:4840/"];
    let on_network = on_network.map(str::to_owned).to_vec();
    let beyond = Answer::ServersOnNetwork(vec!["opc.tcp://10.0.0.9:1/".to_owned()]);
    let world: World<'_> = BTreeMap::from([
        (LDS, Ok(vec![Answer::ServersOnNetwork(on_network)])),
        (
            oven,
            Ok(vec![Answer::Servers(vec![server("oven", oven)]), beyond]),
        ),
    ]);
    let mut survey = asks(&[LDS], true);
    let story = round(&mut survey, &world, &["oven-pc"]);
    let expected = [
        "opc.tcp://10.0.0.1:4840/ FindServers GetEndpoints FindServersOnNetwork",
        "opc.tcp://10.0.0.3:4840/ FindServers GetEndpoints",
        "lookup oven-pc",
        "opc.tcp://oven-pc:4840/ FindServers GetEndpoints",
    ];
    assert_eq!(story, expected);
    assert_eq!(ids(&survey), [oven]);
    let problems = [
        "\"nonsense\", of which opc.tcp://10.0.0.1:4840/ tells, is left out: it must begin with opc.tcp://",
        "opc.tcp://oven-pc:4840/, of which a discovery server tells: refused",
    ];
    assert_eq!(survey.seen().problems, problems);
}

#[test]
fn only_servers_of_the_wanted_names_become_devices() {
    let kinds = [
        ("press", ApplicationType::SERVER),
        ("oven", ApplicationType::CLIENT_AND_SERVER),
        ("hmi", ApplicationType::CLIENT),
        ("lds", ApplicationType::DISCOVERY_SERVER),
        ("odd", ApplicationType(7)),
    ];
    let applications =
        kinds.map(|(name, kind)| application(name, kind, &format!("{SERVER}{name}")));
    let world: World<'_> =
        BTreeMap::from([(SERVER, Ok(vec![Answer::Servers(applications.to_vec())]))]);
    let names = |takes: fn(&str) -> bool| {
        let mut survey = Survey::new(vec![url(SERVER)], false, move |a| takes(&a.name));
        round(&mut survey, &world, &[]);
        let seen = survey.seen();
        let names = seen
            .servers
            .values()
            .map(|server| server.application.name.clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(|_| true), ["oven", "press"]);
    assert_eq!(names(|name| name != "oven"), ["press"]);
    assert_eq!(names(|name| name == "hmi"), [""; 0]);
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
    let mut survey = asks(&[LDS], false);
    let story = round(&mut survey, &world, &[]);
    assert_eq!(story.len(), SERVERS_MAX);
    let seen = survey.seen();
    assert!(seen.leaves_out && seen.problems.last().unwrap().contains("256 are the most"));

    let mut large = server("large", SERVER);
    large.uri = "x".repeat(4096);
    let large = vec![large; 300];
    let world: World<'_> = BTreeMap::from([(SERVER, Ok(vec![Answer::Servers(large)]))]);
    let mut survey = asks(&[SERVER], false);
    round(&mut survey, &world, &[]);
    assert_eq!((survey.bytes(), ids(&survey).len()), (0, 0));
    let problems = survey.seen().problems;
    assert!(problems[0].contains("1024 KiB at most"), "{problems:?}");
    survey.free_bytes = 0;
    round(&mut survey, &lds_and_server(), &[]);
    assert_eq!(ids(&survey), [""; 0], "others leave nothing");
}

#[test]
fn what_is_announced_no_more_is_forgotten() {
    let mut survey = asks(&[], false);
    survey.begin(vec![url(SERVER), url(SERVER)]);
    assert_eq!(survey.due().len(), 1);
    let answer = vec![Answer::Servers(vec![server("press", SERVER)])];
    survey.hear(Heard::Server(url(SERVER), Ok(answer)));
    assert_eq!(survey.due(), []);
    survey.end();
    assert_eq!(ids(&survey), [SERVER]);
    survey.begin(vec![]);
    assert_eq!(survey.due(), []);
    survey.end();
    assert!(survey.seen().servers.is_empty());
    assert!(survey.asked.is_empty());
}
