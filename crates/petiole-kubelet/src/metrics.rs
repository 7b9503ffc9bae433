//! Counts and measures calls of plugins, under the Go kubelet's metric names. Each kubelet has its own metrics, because
//! several kubelets can run in one process.
use super::resource_name::is_extended;
use petiole_base::metrics::{Labels, State};
use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use std::{collections::BTreeSet, fmt, path::Path, time::Duration};

/// The default buckets of Prometheus, which the Go kubelet uses.
const ALLOCATE_SECONDS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The metrics of one kubelet. All clones share them.
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
    /// Counts a call of the Registration service, whatever its outcome.
    pub(crate) fn count_registration(&self, resource: &str) {
        let name = if is_extended(resource) {
            resource
        } else {
            "invalid" // whatever a caller makes up
        };
        let labels = [("resource_name", name.to_owned())];
        self.registrations.get_or_create(&labels).inc();
    }

    /// Removes the metrics of a resource that is gone. Without that the number of labels would grow without bound, as
    /// resource names come and go with devices.
    pub(crate) fn forget(&self, resource: &str) {
        let labels = [("resource_name", resource.to_owned())];
        self.registrations.remove(&labels);
        self.allocate_time.remove(&labels);
    }

    /// Records the duration of an Allocate call that has ended, with or without an answer.
    pub(crate) fn observe_allocate(&self, resource: &str, took: Duration) {
        let labels = [("resource_name", resource.to_owned())];
        let time = self.allocate_time.get_or_create(&labels);
        time.observe(took.as_secs_f64());
    }

    /// Replaces the plugin gauges by the sockets in `plugins_registry` and the registered ones among them.
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

    /// Returns all metrics in the OpenMetrics text format.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_labels_than_resources() {
        let metrics = Metrics::default();
        for name in ["x.io/gone", "x.io/stays", "no name", "x.io/no name"] {
            metrics.count_registration(name);
            metrics.observe_allocate("x.io/gone", Duration::ZERO);
        }
        metrics.forget("x.io/gone");
        let text = metrics.text().unwrap();
        assert!(
            !text.contains("gone") && !text.contains("no name"),
            "{text}"
        );
        for line in [
            "resource_name=\"x.io/stays\"} 1",
            "resource_name=\"invalid\"} 2",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
