//! Defines kinds of metrics that the library does not have.
use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder},
    metrics::{MetricType, TypedMetric, counter::Counter, histogram::Histogram},
};
use std::{
    fmt,
    sync::{Arc, OnceLock},
};
use tokio::time::Instant;

/// Returns a number as gauges hold it.
pub(super) fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A timer that records the seconds from its creation to its drop.
pub struct Timer<'a> {
    histogram: &'a Histogram,
    begun: Instant,
}

impl<'a> Timer<'a> {
    pub(super) fn new(histogram: &'a Histogram) -> Self {
        Self {
            histogram,
            begun: Instant::now(),
        }
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.histogram.observe(self.begun.elapsed().as_secs_f64());
    }
}

/// A counter whose name is written unchanged. OpenMetrics appends `_total` to the name of every counter, and the
/// counter that Akri documents has no such suffix. As a metric of unknown type it keeps the name that dashboards query.
#[derive(Debug, Clone, Default)]
pub(super) struct Untyped(pub(super) Counter);

impl TypedMetric for Untyped {
    const TYPE: MetricType = MetricType::Unknown;
}

impl EncodeMetric for Untyped {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.0.get())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// A metric without labels that is written only once it has begun: a process of another kind does not have it.
#[derive(Debug, Clone, Default)]
pub(super) struct Late<M> {
    metric: M,
    has_begun: Arc<OnceLock<()>>,
}

impl<M> Late<M> {
    pub(super) fn new(metric: M) -> Self {
        let has_begun = Arc::default();
        Self { metric, has_begun }
    }

    pub(super) fn begin(&self) {
        self.has_begun.get_or_init(|| ());
    }

    pub(super) fn metric(&self) -> &M {
        &self.metric
    }
}

impl<M: EncodeMetric> EncodeMetric for Late<M> {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        self.metric.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.metric.metric_type()
    }

    fn is_empty(&self) -> bool {
        self.has_begun.get().is_none()
    }
}
