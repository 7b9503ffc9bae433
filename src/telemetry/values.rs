//! Defines kinds of metrics that the library does not have.
use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder},
    metrics::{MetricType, TypedMetric, counter::Counter, histogram::Histogram},
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};
use tokio::time::Instant;

/// The names of labels with their values.
pub(crate) type Labels<const N: usize> = [(&'static str, String); N];

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

/// A gauge that is replaced as a whole, so that values of things that are gone disappear.
#[derive(Debug, Clone)]
pub(crate) struct State<const N: usize>(Arc<RwLock<BTreeMap<Labels<N>, i64>>>);

impl<const N: usize> Default for State<N> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<const N: usize> State<N> {
    pub(crate) fn set(&self, whole: impl IntoIterator<Item = (Labels<N>, i64)>) {
        let whole = whole.into_iter().collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = whole;
    }
}

impl<const N: usize> EncodeMetric for State<N> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let values = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for (labels, value) in values.iter() {
            match labels.is_empty() {
                true => encoder.encode_gauge(value)?,
                false => encoder.encode_family(labels)?.encode_gauge(value)?,
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }

    /// Returns true if the process never set the gauge. It is not written then.
    fn is_empty(&self) -> bool {
        let values = self.0.read().unwrap_or_else(PoisonError::into_inner);
        values.is_empty()
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
