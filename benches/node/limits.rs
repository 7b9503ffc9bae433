//! Checks that an agent stays within a memory limit when everything that is bounded is at its limit: as many services
//! as a discovery admits, with TXT records that fill its bytes, and as many Instances as an agent may have.
//!
//! The agent runs in a cgroup of its own with that limit, which requires root. An agent that exceeds it is killed.
use super::{
    mdns_publisher::{Announced, Publisher},
    measurements::zeroconf,
    node::Node,
};
use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// The hosts that announce them: each may use half of what the others leave, so that sixteen use nearly all.
const HOSTS: u8 = 16;
const SERVICES: usize = 256 * HOSTS as usize;
/// The most Instances of one Configuration.
const INSTANCES: usize = 1000;
/// The least number of Instances of a second Configuration, in another namespace, whose `brokerProperties` are as large as they may
/// be: with a thousand devices it has half of the bytes that the first one leaves.
const OTHERS: usize = 200;
/// The bytes of the name and the value of one of eight properties.
const PROPERTY: usize = 4096;
/// The least number of Instances of a third one: half of what the others leave.
const THIRD: usize = 350;
/// The Configurations beside these three, as many as an agent works with.
const PATTERNS: usize = 97;
/// The groups of the regular expression of each of them, for which a match keeps nearly all bytes that a Configuration may use.
const GROUPS: usize = 40;
/// The least number of Instances of all together: each of the others has half of what is left, of the chart's 2000.
const ALL: usize = 1900;
/// The number of keys of one TXT record. The next constant is the bytes of each value. A thousand of these services, and the
/// pointers to others, are just below the bytes that the records of all services may have.
const KEYS: usize = 16;
const VALUE: usize = 160;
/// The number of rounds in which the services change. The next constant is the time that the agent gets for each.
const CHANGES: usize = 3;
const SETTLES: Duration = Duration::from_secs(15);

/// A memory cgroup, of either version. Dropping the value removes it.
struct Cgroup {
    folder: PathBuf,
    is_v1: bool,
}

impl Cgroup {
    fn new(limit: u64) -> Result<Self, String> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (root, is_v1) = if v1.exists() {
            (v1, true)
        } else {
            (Path::new("/sys/fs/cgroup"), false)
        };
        let folder = root.join(format!("petiole-bench-{}", std::process::id()));
        let failed = |e: std::io::Error| format!("{}: {e}; root is needed", folder.display());
        fs::create_dir(&folder).map_err(failed)?;
        let cgroup = Self {
            folder: folder.clone(),
            is_v1,
        };
        let file = cgroup.named("memory.limit_in_bytes", "memory.max");
        fs::write(file, limit.to_string()).map_err(failed)?;
        Ok(cgroup)
    }

    fn named(&self, v1: &str, v2: &str) -> PathBuf {
        self.folder.join(if self.is_v1 { v1 } else { v2 })
    }

    /// Returns the most memory that was used, in MB, including pages of files.
    fn peak(&self) -> f64 {
        let file = self.named("memory.max_usage_in_bytes", "memory.peak");
        let text = fs::read_to_string(file).unwrap_or_default();
        text.trim().parse().unwrap_or(0.0) / 1e6
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir(&self.folder) {
            eprintln!("{} stays: {e}", self.folder.display());
        }
    }
}

/// Lets each host announce its services in their `round`th state.
fn announce(hosts: &[Publisher], kind: &str, round: usize) {
    for (n, host) in hosts.iter().enumerate() {
        host.announce_all(services(n, kind, round));
    }
}

/// Returns the services of a host.
fn services(host: usize, kind: &str, round: usize) -> Vec<Announced> {
    let value = |key: usize| {
        let fill = VALUE - 10;
        format!("k{key}={round:010}{}", "x".repeat(fill)).into_bytes()
    };
    let record: Vec<Vec<u8>> = (0..KEYS).map(value).collect();
    let record: Vec<&[u8]> = record.iter().map(Vec::as_slice).collect();
    (0..SERVICES / usize::from(HOSTS))
        .map(|n| Announced::new(&format!("service {host}-{n}"), kind).txt(&record))
        .collect()
}

/// Returns the details of a discovery of all services, by a pattern whose match takes much memory.
fn details_of_pattern(kind: &str) -> String {
    let groups = "()".repeat(GROUPS);
    format!(
        "{}verify: off\ntxt:\n  k0: {{regex: '{groups}.*'}}\n",
        zeroconf(kind)
    )
}

/// Returns the spec of a Configuration of a thousand devices with as many `brokerProperties` as it may have.
fn large_properties() -> String {
    let names: Vec<String> = (0..INSTANCES).map(|n| format!("device-{n}")).collect();
    let property = |n: usize| format!("P{n}: {}", "x".repeat(PROPERTY - 2));
    let properties: Vec<String> = (0..8).map(property).collect();
    format!(
        "{{discoveryHandler: {{name: debugEcho, discoveryDetails: 'descriptions: [{}]'}}, brokerProperties: {{{}}}}}",
        names.join(", "),
        properties.join(", ")
    )
}

/// Waits for so many Instances. An error means that the agent did not survive, or is stuck.
async fn until_there_are(node: &mut Node, instances: usize) -> Result<(), String> {
    let begun = Instant::now();
    while node.instances() < instances {
        let count = node.instances();
        if let Some(ended) = node.agent_ended() {
            return Err(format!("the agent ended with {count} Instances: {ended}"));
        }
        if begun.elapsed() > 10 * SETTLES {
            return Err(format!("there are only {count} Instances of {instances}"));
        }
        sleep(SETTLES / 15).await;
    }
    Ok(())
}

/// Writes the other Configurations, and waits for the Instances of all. The second one has `others`.
async fn fill_up(node: &mut Node, kind: &str, others: usize) -> Result<(), String> {
    let names: Vec<String> = (0..INSTANCES).map(|n| format!("third-{n}")).collect();
    let third = format!("descriptions: [{}]\n", names.join(", "));
    node.configure_as("third", "debugEcho", 1, &third);
    until_there_are(node, INSTANCES + others + THIRD).await?;
    for n in 0..PATTERNS {
        node.configure_as(
            &format!("pattern-{n}"),
            "zeroconf",
            1,
            &details_of_pattern(kind),
        );
    }
    until_there_are(node, ALL).await
}

/// Runs the measurement, and returns the memory used. An error means that the agent did not survive.
pub(super) async fn run(binary: PathBuf, limit_mib: u64) -> Result<String, String> {
    let cgroup = Cgroup::new(limit_mib << 20)?;
    let kind = format!("_p{}limit._tcp", std::process::id());
    let hosts = (1..=HOSTS).map(|n| Publisher::start_at(Ipv4Addr::new(127, 0, 0, n), vec![]));
    let hosts: Vec<Publisher> = hosts.collect();
    let mut node = Node::new(binary);
    node.start_kubelet().await;
    // `verify` is off, because the publisher, not the agent, is too slow to answer the questions to all services.
    node.configure("zeroconf", 1, &format!("{}verify: off\n", zeroconf(&kind)));
    node.start_agent_in(&cgroup.folder);
    announce(&hosts, &kind, 0);
    node.until_allocatable(INSTANCES).await;
    let reached = node.agent_memory();
    for round in 1..=CHANGES {
        announce(&hosts, &kind, round);
        sleep(SETTLES).await;
        if let Some(ended) = node.agent_ended() {
            return Err(format!("the agent ended in round {round}: {ended}"));
        }
    }
    let status = fs::read_to_string(node.path(&format!(
        "state/configurations/{0}_{0}.yaml",
        super::node::CONFIGURATION
    )));
    if !status.unwrap_or_default().contains("are left out") {
        return Err("the Configuration does not say that services are left out".to_owned());
    }
    node.configure_another(&large_properties());
    until_there_are(&mut node, INSTANCES + OTHERS).await?;
    let others = node.instances() - INSTANCES;
    fill_up(&mut node, &kind, others).await?;
    // All patterns match again.
    announce(&hosts, &kind, CHANGES + 1);
    sleep(SETTLES).await;
    if let Some(ended) = node.agent_ended() {
        return Err(format!("the agent ended with all Instances: {ended}"));
    }
    let all = node.instances();
    let memory = node.agent_memory();
    let text = format!(
        "{SERVICES} services of {HOSTS} hosts with TXT records of {} bytes, {all} Instances, of which {others} have brokerProperties of 32 KiB, {PATTERNS} \
         Configurations with patterns of {GROUPS} groups, a limit of {limit_mib} MiB ({:.1} MB):\n\
         resident {:.1} MB when those of the services were allocatable, {:.1} MB after {CHANGES} changes of every record and with the \
         others, at most {:.1} MB;\n\
         the cgroup used {:.1} MB at most, pages of files included",
        KEYS * (VALUE + 4),
        (limit_mib << 20) as f64 / 1e6,
        reached.now,
        memory.now,
        memory.most,
        cgroup.peak()
    );
    drop(node);
    Ok(text)
}
