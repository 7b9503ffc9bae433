//! Reads the API server's own metrics: requests, bytes sent by watches, CPU time and memory.
use kube::Client;
use std::{collections::BTreeMap, ops::Sub, time::Duration};
use tokio::time::sleep;

/// The counters at one time, or their growth between two.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counters {
    /// Creations, changes and deletions of Instances, NodeDevices and Events, and of the status of Configurations.
    pub(super) writes: f64,
    /// The writes of NodeDevices, which the agents make; nearly all others are the controller's.
    pub(super) reports: f64,
    /// The writes that the API server refused, because the object had changed or existed already.
    pub(super) conflicts: f64,
    pub(super) watch_megabytes: f64,
    pub(super) cpu_seconds: f64,
    /// The CPU time of this process, which runs all agents.
    pub(super) agents_cpu_seconds: f64,
    /// The resident memory, which is not a counter.
    pub(super) memory_megabytes: f64,
}

impl Counters {
    pub(super) async fn read(client: &Client) -> Self {
        let text = loop {
            let request = hyper::http::Request::get("/metrics").body(vec![]).unwrap();
            match client.request_text(request).await {
                Ok(text) => break text,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        };
        let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let value = value.parse::<f64>().unwrap_or_default();
            if let Some(sum) = sum_of(series) {
                *sums.entry(sum).or_default() += value;
                if ["writes", "conflicts"].contains(&sum) && series.contains("\"nodedevices\"") {
                    *sums.entry("reports").or_default() += value;
                }
            }
        }
        let sum = |name| sums.get(name).copied().unwrap_or_default();
        Self {
            writes: sum("writes"),
            reports: sum("reports"),
            conflicts: sum("conflicts"),
            watch_megabytes: sum("watches") / 1e6,
            cpu_seconds: sum("cpu"),
            agents_cpu_seconds: own_cpu_seconds(),
            memory_megabytes: sum("memory") / 1e6,
        }
    }
}

/// Returns the CPU time of this process, in ticks of 10 ms (proc_pid_stat(5): utime and stime).
fn own_cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |n: usize| fields[n].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

/// Returns which sum a series is part of.
fn sum_of(series: &str) -> Option<&'static str> {
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let label = |name: &str| {
        let (_, rest) = labels.split_once(&format!("{name}=\""))?;
        rest.split_once('"').map(|(value, _)| value)
    };
    let is_ours = label("group") == Some("akri.sh");
    match name {
        "process_cpu_seconds_total" => Some("cpu"),
        "process_resident_memory_bytes" => Some("memory"),
        "apiserver_watch_events_sizes_sum" if is_ours => Some("watches"),
        "apiserver_request_total" => {
            let writes = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];
            let is_write = label("verb").is_some_and(|verb| writes.contains(&verb));
            // This bench itself creates and deletes whole Configurations.
            let is_measured = match label("resource") {
                Some("configurations") => label("subresource") == Some("status"),
                Some("events") => label("group") == Some("events.k8s.io"),
                _ => is_ours,
            };
            let is_refused = ["409", "422"].contains(&label("code").unwrap_or_default());
            match (is_write && is_measured, is_refused) {
                (true, true) => Some("conflicts"),
                (true, false) => Some("writes"),
                (false, _) => None,
            }
        }
        _ => None,
    }
}

impl Sub for Counters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            writes: self.writes - before.writes + self.conflicts - before.conflicts,
            reports: self.reports - before.reports,
            conflicts: self.conflicts - before.conflicts,
            watch_megabytes: self.watch_megabytes - before.watch_megabytes,
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            agents_cpu_seconds: self.agents_cpu_seconds - before.agents_cpu_seconds,
            memory_megabytes: self.memory_megabytes,
        }
    }
}
