//! Reads Events. Pure.
use k8s_openapi::{
    api::core::v1::Event,
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::Timestamp,
};

/// Returns the time at which an Event happened last. It is in old fields or in new ones.
pub(crate) fn last_seen(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref();
    let series = series.and_then(|series| series.last_observed_time.as_ref());
    let micro = [series, event.event_time.as_ref()];
    let micro = micro.into_iter().flatten().map(|MicroTime(at)| *at);
    let plain = [
        event.last_timestamp.as_ref(),
        event.metadata.creation_timestamp.as_ref(),
    ];
    let plain = plain.into_iter().flatten().map(|Time(at)| *at);
    micro.chain(plain).max()
}
