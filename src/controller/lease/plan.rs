//! Decides who acts, and when the Lease is to be taken or renewed. Pure.
//!
//! A holder believes its Lease for as long as that is valid by its own clock. Whether another's has ended is judged as client-go
//! does it (`tools/leaderelection`): by the time since this process saw it change, so that clocks of machines may differ.
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use std::time::Duration;
use tokio::time::Instant;

/// The time for which a Lease is valid that is not renewed: new devices wait for so long if the replica that acts is killed.
const VALID_S: i32 = 9;
/// The time before its end at which it is renewed.
const RENEWED_BEFORE: Duration = Duration::from_secs(4);

/// The parts of a Lease that are read. One that does not exist has none of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::controller) struct Held {
    version: Option<String>,
    pub(super) holder: Option<String>,
    acquired: Option<MicroTime>,
    /// The end of the Lease unless it is renewed.
    until: Option<Timestamp>,
    /// The time for which it was taken or renewed.
    valid: Duration,
    transitions: i32,
}

/// A Lease, and when this process saw that it was taken or renewed.
#[derive(Debug, Default)]
pub(super) struct SeenLease {
    pub(super) held: Held,
    at: Option<Instant>,
}

pub(in crate::controller) fn held(lease: Lease) -> Held {
    let spec = lease.spec.unwrap_or_default();
    let seconds = spec.lease_duration_seconds;
    let valid = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let valid = valid.map(Duration::from_secs);
    Held {
        version: lease.metadata.resource_version,
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        acquired: spec.acquire_time,
        until: (spec.renew_time.zip(valid))
            .and_then(|(renewed, valid)| renewed.0.checked_add(valid).ok()),
        valid: valid.unwrap_or_default(),
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}

impl Held {
    pub(super) fn is_of(&self, identity: &str) -> bool {
        self.holder.as_deref() == Some(identity)
    }

    pub(super) fn exists(&self) -> bool {
        self.version.is_some()
    }

    /// Returns for how much longer `identity` leads.
    fn leads_for(&self, identity: &str, now: Timestamp) -> Option<Duration> {
        let left = self.until.filter(|_| self.is_of(identity))?;
        let left = Duration::try_from(left.duration_since(now)).ok();
        left.filter(|left| !left.is_zero())
    }

    /// Returns the Lease as `identity` takes or renews it. The API server refuses it if another was faster.
    pub(super) fn taken(&self, identity: &str, now: Timestamp) -> LeaseSpec {
        let is_renewed = self.is_of(identity);
        LeaseSpec {
            holder_identity: Some(identity.to_owned()),
            lease_duration_seconds: Some(VALID_S),
            acquire_time: (self.acquired.clone())
                .filter(|_| is_renewed)
                .or(Some(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(self.transitions.saturating_add(i32::from(!is_renewed))),
            ..LeaseSpec::default()
        }
    }

    /// Returns the Lease as its holder gives it back: nobody has to wait for its end.
    pub(super) fn given_back(&self) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(String::new()),
            ..LeaseSpec::default()
        }
    }

    /// Returns an object with this `spec` that replaces just this version.
    pub(super) fn replaced_by(&self, name: &str, spec: LeaseSpec) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                resource_version: self.version.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
        }
    }
}

impl SeenLease {
    pub(super) fn notice(&mut self, held: Held, now: Instant) {
        if self.at.is_none() || self.held != held {
            self.at = Some(now);
            self.held = held;
        }
    }

    fn valid_for(&self, now: Instant) -> Duration {
        let seen_for = self.at.map_or(Duration::ZERO, |at| now - at);
        self.held.valid.saturating_sub(seen_for)
    }

    /// Returns for how much longer `identity` leads, by the Lease's times and by a clock that does not step: this
    /// machine's may be set back.
    pub(super) fn leads_for(
        &self,
        identity: &str,
        clock: Timestamp,
        now: Instant,
    ) -> Option<Duration> {
        let by_clock = self.held.leads_for(identity, clock)?;
        let left = by_clock.min(self.valid_for(now));
        (!left.is_zero()).then_some(left)
    }

    /// Returns the time until `identity` is to take or renew the Lease.
    pub(super) fn due_in(&self, identity: &str, clock: Timestamp, now: Instant) -> Duration {
        match self.held.holder {
            None => Duration::ZERO,
            Some(_) if self.held.is_of(identity) => {
                let left = self.leads_for(identity, clock, now).unwrap_or_default();
                left.saturating_sub(RENEWED_BEFORE)
            }
            Some(_) => self.valid_for(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, renewed: i64) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(at(renewed))),
            ..LeaseSpec::default()
        };
        Held::default().replaced_by("lease", spec)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_replica_leads_while_the_lease_names_it_and_is_valid() {
        let mine = held(lease("me", 100));
        assert_eq!(mine.leads_for("me", at(105)), Some(Duration::from_secs(10)));
        assert_eq!(mine.leads_for("me", at(115)), None);
        assert_eq!(mine.leads_for("me", at(200)), None);
        assert_eq!(held(lease("other", 100)).leads_for("me", at(105)), None);
        assert_eq!(held(lease("", 100)).leads_for("", at(105)), None);
        assert_eq!(held(Lease::default()).leads_for("me", at(105)), None);
    }

    #[test]
    fn a_clock_that_is_set_back_makes_nobody_lead_for_longer() {
        let (begin, mut seen) = (Instant::now(), SeenLease::default());
        let after = |seconds| begin + Duration::from_secs(seconds);
        seen.notice(held(lease("me", 100)), begin);
        let left = seen.leads_for("me", at(105), after(5));
        assert_eq!(left, Some(Duration::from_secs(10)));
        // The same Lease again, by a clock that was set back by an hour.
        seen.notice(held(lease("me", 100)), after(14));
        let left = seen.leads_for("me", at(114 - 3_600), after(14));
        assert_eq!(left, Some(Duration::from_secs(1)));
        assert_eq!(seen.leads_for("me", at(115 - 3_600), after(15)), None);
        seen.notice(held(lease("me", 115)), after(15));
        assert!(seen.leads_for("me", at(115), after(15)).is_some());
        // One that begins anew under its old name did not see the renewal.
        assert_eq!(seen.leads_for("me", at(200), after(16)), None);
    }

    #[test]
    fn a_lease_is_renewed_before_its_end_and_taken_after_it_whatever_another_s_clock_says() {
        let (begin, mut seen) = (Instant::now(), SeenLease::default());
        let after = |seconds| begin + Duration::from_secs(seconds);
        let due = |seen: &SeenLease, clock, seconds| {
            seen.due_in("me", at(clock), after(seconds)).as_secs()
        };
        // Nobody has it.
        assert_eq!(due(&seen, 100, 0), 0);
        seen.notice(held(lease("", 100)), begin);
        assert_eq!(due(&seen, 100, 0), 0);
        seen.notice(held(lease("me", 100)), begin);
        assert_eq!(due(&seen, 100, 0), 11);
        assert_eq!(due(&seen, 111, 11), 0);
        // An earlier process of this name took it long ago.
        assert_eq!(due(&seen, 900, 0), 0);
        for of_another in [0, 100, 9_000] {
            let mut seen = SeenLease::default();
            seen.notice(held(lease("other", of_another)), begin);
            assert_eq!(due(&seen, 100, 0), 15);
            assert_eq!(due(&seen, 114, 14), 1);
            assert_eq!(due(&seen, 115, 15), 0);
        }
    }

    #[test]
    fn what_is_written_replaces_the_very_lease_that_was_seen() {
        let mut before = lease("other", 100);
        before.metadata.resource_version = Some("7".to_owned());
        before.spec.as_mut().unwrap().lease_transitions = Some(3);
        let taken = held(before.clone()).replaced_by("l", held(before).taken("me", at(200)));
        assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"));
        let spec = taken.spec.clone().unwrap();
        assert_eq!(spec.lease_transitions, Some(4));
        assert_eq!(spec.acquire_time, Some(MicroTime(at(200))));
        assert!(held(taken.clone()).leads_for("me", at(208)).is_some());
        let renewed = held(taken).taken("me", at(205));
        assert_eq!(renewed.lease_transitions, Some(4));
        assert_eq!(renewed.acquire_time, Some(MicroTime(at(200))));
        assert_eq!(renewed.renew_time, Some(MicroTime(at(205))));
    }
}
