//! Defines what several registries of metrics have in common, and the library does not have.
use crate::collect::CollectMap as _;
use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder},
    metrics::MetricType,
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

/// The content type of the OpenMetrics text format.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The names of labels with their values.
pub type Labels<const N: usize> = [(&'static str, String); N];

/// A gauge that is replaced as a whole, so that values of things that are gone disappear.
#[derive(Debug, Clone)]
pub struct State<const N: usize>(Arc<RwLock<BTreeMap<Labels<N>, i64>>>);

impl<const N: usize> Default for State<N> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<const N: usize> State<N> {
    /// Replaces all values.
    pub fn set(&self, whole: impl IntoIterator<Item = (Labels<N>, i64)>) {
        let whole = whole.into_iter().collect_map();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = whole;
    }
}

impl<const N: usize> EncodeMetric for State<N> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let values = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for (labels, value) in values.iter() {
            if labels.is_empty() {
                encoder.encode_gauge(value)?
            } else {
                encoder.encode_family(labels)?.encode_gauge(value)?
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
