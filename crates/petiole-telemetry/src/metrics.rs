//! Defines the metrics of the process and writes them for Prometheus. `docs/metrics.md` lists all of them.
//!
//! Counters and histograms are increased where the event happens. Gauges that describe a state are replaced as a whole
//! by the task that reads the whole state ([`State`]), so that none can become stale. No label names an Instance or a
//! device.
//!
//! Metrics of the form `akri_…` are those that Akri documents, with its labels. Those of the process are `process_…`, as
//! everywhere. All others are `petiole_…`: they are not part of Akri's contract, and later metrics of Akri cannot collide
//! with them.
use super::{
    cluster::ClusterMetrics,
    mdns::MdnsMetrics,
    process::ProcessMetrics,
    values::{Late, Timer, Untyped, gauge},
};
use petiole_base::metrics::{Labels, State};
use petiole_model::model::typed_names::ConfigurationName;
use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, histogram::Histogram, info::Info},
    registry::Registry,
};
use std::{collections::BTreeMap, fmt, sync::LazyLock, time::Duration};

/// The buckets of Akri.
const DISCOVERY_SECONDS: [f64; 9] = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 60.0];
/// The buckets of Allocate calls, which are answered within 3 s.
const ALLOCATE_SECONDS: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 2.5, 3.0];

/// The reasons for which a claim is refused.
pub(super) const REFUSALS: [&str; 19] = [
    "beyond_capacity",
    "busy",
    "by_claims",
    "device_changed",
    "device_gone",
    "device_nodes",
    "full",
    "held_elsewhere",
    "held_here",
    "internal",
    "not_seen",
    "same_device",
    "stopping",
    "store",
    "timeout",
    "too_large",
    "twice",
    "unconfirmed",
    "unknown_slot",
];

/// The outcome of an attempt to register a plugin with the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    Registered,
    /// The kubelet rejected the call or did not answer it.
    Failed,
    /// The kubelet accepted the call and never opened ListAndWatch.
    NoStream,
}

/// The outcome of a patch of this node's capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityPatch {
    Applied,
    /// Someone else had changed the entry in between. The next pass decides again.
    Superseded,
    Failed,
}

/// The outcome of a Kubernetes Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventOutcome {
    Written,
    Failed,
    /// The Event was dropped, because too many waited to be written.
    Dropped,
}

/// The labels of one write to the API server. Each has a bounded set of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiWrite {
    /// The plural of the resource with its subresource, such as `instances/status`.
    pub kind: &'static str,
    pub verb: &'static str,
    /// `2xx`, `4xx`, …, or `none` if there was no answer.
    pub code: &'static str,
}

/// The slots of a Configuration on this node. Each slot counts as exactly one of the four.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Slots that a container of any node holds and whose device is present.
    pub used: i64,
    /// Slots that can be allocated.
    pub free: i64,
    /// Slots whose device is gone, held or not.
    pub unhealthy: i64,
    /// Slots without Instances whose device is present: the kubelet alone knows which of them are held.
    pub offered: i64,
}

/// The metrics of a process.
pub struct Metrics {
    registry: Registry,
    instances: State<2>,
    broker_pods: State<2>,
    slots: State<2>,
    slots_held_twice: State<0>,
    checkpoint_unreadable: State<0>,
    plugins: State<0>,
    plugins_registered: State<0>,
    discovery_results: Family<Labels<2>, Untyped>,
    discovery_time: Family<Labels<1>, Histogram, fn() -> Histogram>,
    registrations: Family<Labels<1>, Counter>,
    claims: Family<Labels<2>, Counter>,
    pub(super) allocate_time: Late<Histogram>,
    capacity_patches: Family<Labels<1>, Counter>,
    api_writes: Family<Labels<3>, Counter>,
    events: Family<Labels<1>, Counter>,
    pub cluster: ClusterMetrics,
    pub mdns: MdnsMetrics,
}

/// Returns the metrics of this process. They are global, because many layers count and one registry is written.
pub fn metrics() -> &'static Metrics {
    static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);
    &METRICS
}

impl Metrics {
    fn new() -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(DISCOVERY_SECONDS);
        let mut metrics = Self {
            registry: Registry::default(),
            instances: State::default(),
            broker_pods: State::default(),
            slots: State::default(),
            slots_held_twice: State::default(),
            checkpoint_unreadable: State::default(),
            plugins: State::default(),
            plugins_registered: State::default(),
            discovery_results: Family::default(),
            discovery_time: Family::new_with_constructor(seconds),
            registrations: Family::default(),
            claims: Family::default(),
            allocate_time: Late::new(Histogram::new(ALLOCATE_SECONDS)),
            capacity_patches: Family::default(),
            api_writes: Family::default(),
            events: Family::default(),
            cluster: ClusterMetrics::default(),
            mdns: MdnsMetrics::default(),
        };
        metrics.register_akris();
        metrics.register_ours();
        metrics.cluster.register(&mut metrics.registry);
        metrics.mdns.register(&mut metrics.registry);
        (metrics.registry).register_collector(Box::new(ProcessMetrics));
        metrics
    }

    /// Registers the metrics of Akri 0.12, with its names, labels and values. Its agent was the last with metrics.
    fn register_akris(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "akri_instance_count",
            "Instances whose device this node can reach",
            self.instances.clone(),
        );
        registry.register(
            "akri_discovery_response_result",
            "Discoveries whose first answer arrived (Success), and discoveries that ended without being stopped (Fail)",
            self.discovery_results.clone(),
        );
        registry.register(
            "akri_discovery_response_time",
            "Seconds from the start of a discovery to its first complete set of devices",
            self.discovery_time.clone(),
        );
        registry.register(
            "akri_broker_pod_count",
            "Broker Pods on each node",
            self.broker_pods.clone(),
        );
    }

    fn register_ours(&mut self) {
        let registry = &mut self.registry;
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        registry.register("petiole_build", "The version that runs", Info::new(version));
        registry.register(
            "petiole_slots",
            "Usage slots of this node's Instances: used (by a container of any node), free, unhealthy (the device is gone), and of devices without Instances offered",
            self.slots.clone(),
        );
        registry.register(
            "petiole_slots_held_twice",
            "Slots that containers of this node use and that are held by others",
            self.slots_held_twice.clone(),
        );
        registry.register(
            "petiole_checkpoint_unreadable",
            "1 while the kubelet's checkpoint exists and is unreadable, which prevents the release of slots",
            self.checkpoint_unreadable.clone(),
        );
        registry.register(
            "petiole_plugins",
            "Device plugins that should be registered with the kubelet",
            self.plugins.clone(),
        );
        registry.register(
            "petiole_plugins_registered",
            "Device plugins whose ListAndWatch stream is open",
            self.plugins_registered.clone(),
        );
        registry.register(
            "petiole_plugin_registrations",
            "Attempts to register a device plugin with the kubelet",
            self.registrations.clone(),
        );
        registry.register(
            "petiole_claims",
            "Claims of slots for containers, with the reason of a refused one",
            self.claims.clone(),
        );
        registry.register(
            "petiole_allocate_duration_seconds",
            "Seconds until an Allocate call of the kubelet was answered",
            self.allocate_time.clone(),
        );
        registry.register(
            "petiole_capacity_patches",
            "Patches of the node's capacity and allocatable",
            self.capacity_patches.clone(),
        );
        registry.register(
            "petiole_api_writes",
            "Requests to the API server that write",
            self.api_writes.clone(),
        );
        registry.register(
            "petiole_events",
            "Kubernetes Events by outcome",
            self.events.clone(),
        );
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Sets the number of Instances on this node, by Configuration and by whether they are shared.
    pub fn set_instances(&self, counts: &BTreeMap<(ConfigurationName, bool), i64>) {
        self.instances
            .set(counts.iter().map(|((name, is_shared), count)| {
                let labels = [label("configuration", name), label("is_shared", is_shared)];
                (labels, *count)
            }));
    }

    /// Sets the number of broker Pods by `(configuration, node)`.
    pub fn set_broker_pods(&self, counts: &BTreeMap<(String, String), i64>) {
        self.broker_pods
            .set(counts.iter().map(|((name, node), count)| {
                ([label("configuration", name), label("node", node)], *count)
            }));
    }

    /// Sets the number of slots on this node by Configuration.
    pub fn set_slots(&self, counts: &BTreeMap<ConfigurationName, SlotCounts>) {
        self.slots.set(counts.iter().flat_map(|(name, slots)| {
            let states = [
                ("used", slots.used),
                ("free", slots.free),
                ("unhealthy", slots.unhealthy),
                ("offered", slots.offered),
            ];
            states.map(|(state, count)| {
                ([label("configuration", name), label("state", state)], count)
            })
        }));
    }

    /// Sets the number of slots that containers of this node use and that others hold.
    pub fn set_slots_held_twice(&self, count: usize) {
        self.slots_held_twice.set([([], gauge(count))]);
    }

    /// Sets whether the kubelet's checkpoint exists and cannot be read.
    pub fn set_checkpoint_unreadable(&self, is_unreadable: bool) {
        self.checkpoint_unreadable
            .set([([], i64::from(is_unreadable))]);
    }

    /// Sets the number of device plugins that should be registered.
    pub fn set_plugins(&self, count: usize) {
        self.plugins.set([([], gauge(count))]);
    }

    /// Sets the number of device plugins whose ListAndWatch the kubelet has opened.
    pub fn set_plugins_registered(&self, count: usize) {
        self.plugins_registered.set([([], gauge(count))]);
    }

    /// Counts the first complete answer of a discovery.
    pub fn count_first_answer(&self, handler: &str) {
        self.discoveries(handler, "Success").inc_by(1);
    }

    /// Counts the end of a discovery that was not stopped.
    pub fn count_failed_discovery(&self, handler: &str) {
        self.discoveries(handler, "Fail").inc_by(1);
    }

    pub(super) fn discoveries(&self, handler: &str, result: &str) -> Counter {
        let labels = [
            label("discovery_handler_name", handler),
            label("result", result),
        ];
        self.discovery_results.get_or_create(&labels).0.clone()
    }

    /// Records the time from the start of a discovery to its first complete set.
    pub fn observe_discovery(&self, configuration: &str, took: Duration) {
        let labels = [label("configuration", configuration)];
        (self.discovery_time.get_or_create(&labels)).observe(took.as_secs_f64());
    }

    /// Removes the measurements of a Configuration that is gone.
    pub fn forget_discovery(&self, configuration: &str) {
        self.discovery_time
            .remove(&[label("configuration", configuration)]);
    }

    pub fn registrations(&self, outcome: Registration) -> Counter {
        let result = match outcome {
            Registration::Registered => "registered",
            Registration::Failed => "failed",
            Registration::NoStream => "no_stream",
        };
        let labels = [label("result", result)];
        self.registrations.get_or_create_owned(&labels)
    }

    /// `refused` is the reason of refused claims, from a bounded list.
    pub fn claims(&self, refused: Option<&'static str>) -> Counter {
        debug_assert!(refused.is_none_or(|reason| REFUSALS.contains(&reason)));
        let result = if refused.is_some() {
            "refused"
        } else {
            "granted"
        };
        let labels = [
            label("result", result),
            label("reason", refused.unwrap_or_default()),
        ];
        self.claims.get_or_create_owned(&labels)
    }

    /// Returns a timer that records the duration of an Allocate call when it is dropped.
    pub fn time_allocate(&self) -> Timer<'_> {
        Timer::new(self.allocate_time.metric())
    }

    pub fn capacity_patches(&self, outcome: CapacityPatch) -> Counter {
        let result = match outcome {
            CapacityPatch::Applied => "applied",
            CapacityPatch::Superseded => "superseded",
            CapacityPatch::Failed => "failed",
        };
        let labels = [label("result", result)];
        self.capacity_patches.get_or_create_owned(&labels)
    }

    pub fn count_api_write(&self, write: ApiWrite) {
        let labels = [
            label("kind", write.kind),
            label("verb", write.verb),
            label("code", write.code),
        ];
        self.api_writes.get_or_create(&labels).inc();
    }

    pub fn events(&self, outcome: EventOutcome) -> Counter {
        let result = match outcome {
            EventOutcome::Written => "written",
            EventOutcome::Failed => "failed",
            EventOutcome::Dropped => "dropped",
        };
        let labels = [label("result", result)];
        self.events.get_or_create_owned(&labels)
    }
}

fn label(name: &'static str, value: impl ToString) -> (&'static str, String) {
    (name, value.to_string())
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
