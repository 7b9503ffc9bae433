use super::{
    super::{Cli, Command},
    Flags, Kinds,
};
use clap::Parser as _;
use std::collections::BTreeSet;

fn agent(flags: &[&str]) -> Box<Flags> {
    let agent = ["petiole", "agent", "--node-name", "box"];
    let args = agent.iter().chain(flags).copied();
    let Command::Agent(flags) = Cli::try_parse_from(args).unwrap().command else {
        panic!("another subcommand");
    };
    flags
}

fn kinds(flags: &[&str]) -> Kinds {
    agent(flags).cdi_kinds()
}

#[test]
fn no_subsystem_is_allowed_in_a_cluster_unless_it_is_named() {
    use super::Subsystems;
    let subsystems = |flags: &[&str]| agent(flags).udev_subsystems();
    assert_eq!(subsystems(&[]), Subsystems::Only(BTreeSet::new()));
    let named = ["tty", "usb"].map(|name| name.parse().unwrap());
    let only = Subsystems::Only(BTreeSet::from(named));
    assert_eq!(subsystems(&["--udev-subsystems", "tty,usb"]), only);
    assert_eq!(subsystems(&["--udev-subsystems", "*"]), Subsystems::All);
}

#[test]
fn no_kind_of_cdi_device_is_allowed_in_a_cluster_unless_it_is_named() {
    assert_eq!(kinds(&[]), Kinds::Only(BTreeSet::new()));
    let named = Kinds::Only(BTreeSet::from(["a.b/c".parse().unwrap()]));
    assert_eq!(kinds(&["--cdi-kinds", "a.b/c"]), named);
    assert_eq!(kinds(&["--cdi-kinds", "*"]), Kinds::All);
}

#[test]
fn no_path_is_allowed_in_a_cluster_unless_it_is_named() {
    let allowed = |flags: &[&str]| {
        let agent = agent(flags);
        agent.paths.allowed(agent.is_standalone())
    };
    let paths = |paths: &[&str]| paths.iter().map(|path| path.parse().unwrap()).collect();
    assert_eq!(allowed(&[]), paths(&[]));
    let named = ["--device-paths", "/dev/kvm,/dev/dri/"];
    assert_eq!(allowed(&named), paths(&["/dev/kvm", "/dev/dri"]));
    #[cfg(feature = "people")]
    assert_eq!(allowed(&["--standalone"]), paths(&["/"]));
}

#[test]
fn no_network_is_probed_in_a_cluster_unless_it_is_named() {
    use super::Networks;
    let networks = |flags: &[&str]| agent(flags).probe_networks();
    assert_eq!(networks(&[]), Networks::from_iter([]));
    let named = ["10.1.2.0/24", "fd00::/64"].map(|text| text.parse().unwrap());
    let flags = ["--probe-networks", "10.1.2.0/24,fd00::/64"];
    assert_eq!(networks(&flags), Networks::from_iter(named));
    assert_eq!(networks(&["--probe-networks", "*"]), Networks::ALL);
    let flags = [
        "--probe-networks",
        "*",
        "--probe-cluster-networks",
        "fd00::/64",
    ];
    let cluster = ["fd00::/64".parse().unwrap()];
    assert_eq!(networks(&flags), Networks::ALL.with_cluster(cluster));
}

#[cfg(feature = "people")]
#[test]
fn a_standalone_agent_allows_all_devices_unless_some_are_named() {
    assert_eq!(kinds(&["--standalone"]), Kinds::All);
    let named = Kinds::Only(BTreeSet::from(["a.b/c".parse().unwrap()]));
    assert_eq!(kinds(&["--standalone", "--cdi-kinds", "a.b/c"]), named);
    assert_eq!(
        agent(&["--standalone"]).udev_subsystems(),
        super::Subsystems::All
    );
}

#[cfg(feature = "people")]
#[test]
fn a_standalone_agent_has_no_pod() {
    let agent = ["petiole", "agent", "--node-name", "box"];
    let pod = ["--namespace", "n", "--pod-name", "p"];
    let parsed =
        |flags: &[&str]| Cli::try_parse_from(agent.iter().chain(&pod).chain(flags).copied());
    assert!(parsed(&[]).is_ok());
    let refused = parsed(&["--standalone"]).map(drop).unwrap_err().to_string();
    assert!(refused.contains("--pod-name"), "{refused}");
}

#[cfg(feature = "people")]
#[test]
fn brokers_are_rendered_without_a_cluster_only() {
    let parsed = |standalone: &[&str]| {
        let agent = ["petiole", "agent", "--node-name", "box"];
        let brokers = ["--render-brokers", "/run/pods"];
        let args = agent.iter().chain(standalone).chain(&brokers);
        Cli::try_parse_from(args.copied())
    };
    assert!(parsed(&["--standalone"]).is_ok());
    let refused = parsed(&[]).map(drop).unwrap_err().to_string();
    assert!(refused.contains("--standalone"), "{refused}");
}
