//! Reads Events. Pure.
use super::snapshot::Snapshot;
use k8s_openapi::{
    api::core::v1::Event,
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::Timestamp,
};

/// Returns the Event that happened last, of some with one of these reasons, about objects of a namespace.
pub(crate) fn last<'a>(
    snapshot: &'a Snapshot,
    namespace: &str,
    reasons: &[&str],
    is_it: impl Fn(&Event) -> bool,
) -> Option<&'a Event> {
    let its = snapshot.events.iter().filter(|event| {
        let about = &event.involved_object;
        let reason = event.reason.as_deref();
        about.namespace.as_deref() == Some(namespace)
            && reason.is_some_and(|reason| reasons.contains(&reason))
            && is_it(event)
    });
    its.max_by_key(|event| last_seen(event))
}

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
