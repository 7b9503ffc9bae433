//! Defines the metrics of multicast DNS.
use super::values::{Late, gauge};
use petiole_base::metrics::{Labels, State};
use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

#[derive(Default)]
pub struct MdnsMetrics {
    packets: Family<Labels<1>, Counter>,
    refused: Late<Counter>,
    records: State<0>,
}

impl MdnsMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "petiole_mdns_packets",
            "Packets of multicast DNS that were sent or received; of the received ones, those that were ignored, by reason",
            self.packets.clone(),
        );
        registry.register(
            "petiole_mdns_refused_records",
            "Records of multicast DNS that were left out because the limits of the cache are reached",
            self.refused.clone(),
        );
        registry.register(
            "petiole_mdns_records",
            "Records of multicast DNS that are known",
            self.records.clone(),
        );
    }

    /// Begins the series of a process that asks by multicast DNS.
    pub(super) fn begin(&self) {
        self.refused.begin();
    }

    /// Adds packets, by what was done with them.
    pub fn count_packets(&self, packets: impl IntoIterator<Item = (&'static str, usize)>) {
        for (what, count) in packets {
            let packets = self.packets.get_or_create(&[("what", what.to_owned())]);
            packets.inc_by(number(count));
        }
    }

    /// Adds records that were refused, and sets how many are known.
    pub fn count_records(&self, refused: usize, known: usize) {
        self.refused.metric().inc_by(number(refused));
        self.records.set([([], gauge(known))]);
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or_default()
}
