//! What the Go kubelet counts and measures of plugins, under its names. A kubelet's own, and not the process's:
//! several kubelets can run in one.
use crate::telemetry::values::{Labels, State};
use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use std::{collections::BTreeSet, fmt, path::Path, time::Duration};

/// Prometheus' defaults, as in the kubelet.
const ALLOCATE_SECONDS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// All clones are one.
#[derive(Clone)]
pub(crate) struct Metrics {
    registrations: Family<Labels<1>, Counter>,
    allocate_time: Family<Labels<1>, Histogram, fn() -> Histogram>,
    plugins: State<2>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            registrations: Family::default(),
            allocate_time: Family::new_with_constructor(|| Histogram::new(ALLOCATE_SECONDS)),
            plugins: State::default(),
        }
    }
}

impl Metrics {
    /// A call of the Registration service, whatever becomes of it.
    pub(crate) fn count_registration(&self, resource: &str) {
        let labels = [("resource_name", resource.to_owned())];
        self.registrations.get_or_create(&labels).inc();
    }

    /// An Allocate call has ended, with an answer or without.
    pub(crate) fn observe_allocate(&self, resource: &str, took: Duration) {
        let labels = [("resource_name", resource.to_owned())];
        let time = self.allocate_time.get_or_create(&labels);
        time.observe(took.as_secs_f64());
    }

    /// The sockets in `plugins_registry`, and those of them that are registered.
    pub(crate) fn set_plugins(&self, desired: &BTreeSet<&Path>, actual: &BTreeSet<&Path>) {
        let states = [
            ("desired_state_of_world", desired),
            ("actual_state_of_world", actual),
        ];
        self.plugins
            .set(states.into_iter().flat_map(|(state, sockets)| {
                sockets.iter().map(move |socket| {
                    let path = socket.display().to_string();
                    ([("socket_path", path), ("state", state.to_owned())], 1)
                })
            }));
    }

    /// All of it in the OpenMetrics text format.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register(
            "kubelet_device_plugin_registration",
            "Cumulative number of device plugin registrations. Broken down by resource name",
            self.registrations.clone(),
        );
        registry.register(
            "kubelet_device_plugin_alloc_duration_seconds",
            "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name",
            self.allocate_time.clone(),
        );
        registry.register(
            "plugin_manager_total_plugins",
            "Number of plugins in Plugin Manager",
            self.plugins.clone(),
        );
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }
}
