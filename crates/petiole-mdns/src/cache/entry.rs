//! The lifetime of one record. Pure.
use super::super::{pace::HELD_FOR, schedule::REPEATED_AFTER};
use std::{net::IpAddr, time::Duration};

/// The time for which a withdrawn or replaced record stays (RFC 6762 10.1 and 10.2), and a record without a pointer.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// A disputed pointer is kept for this time, so that its service can be searched for.
const DISPUTED_FOR: Duration = Duration::from_secs(900);
/// The percentages of its lifetime at which a record is asked for again (RFC 6762 5.2).
const REFRESH_PERCENT: [u32; 4] = [80, 85, 90, 95];
/// The percentage of the lifetime within which a first refresh question joins another one. It must also be due within
/// `ALONG_MAX`. The records of many hosts are then asked for by few packets.
const ALONG_PERCENT: u32 = 10;
const ALONG_MAX: Duration = Duration::from_secs(10);
/// The number of further questions for a record in use that had no answer by the end of its lifetime. It is kept
/// meanwhile, because four lost questions are likely where packets are lost, or when a machine stood still.
const ASKED_OVERDUE: u8 = 5;
/// The shortest lifetime of a record that is asked for again. Records with shorter lifetimes depend on their publisher.
const REFRESHED_TTL: Duration = Duration::from_secs(2);

/// The time that an answer has at least, from the time at which a question was sent that had been held back.
const ANSWER_WAIT: Duration = Duration::from_millis(500);

/// The source and the time of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    pub source: IpAddr,
    /// The record is of a service to which no pointer leads yet. It is kept for a moment, because the pointer may be in
    /// the next packet.
    pub is_orphan: bool,
    pub now: Duration,
    /// The jitter of the refresh questions, 0 to 2 % of the lifetime, so that hosts do not ask at the same time.
    pub jitter: f64,
    /// The record belongs to a preferred service.
    pub is_preferred: bool,
}

/// The state of a record.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The time of the first announcement since which it has been known without a break.
    pub since: Duration,
    pub received_at: Duration,
    pub ttl: Duration,
    pub expires: Duration,
    /// No answer confirmed the record in time. A disputed record counts as absent, and is not sent as a known answer.
    pub is_disputed: bool,
    /// The record was withdrawn or replaced, and is not refreshed.
    pub is_ended: bool,
    /// The number of refresh questions.
    pub refreshes: u8,
    pub(super) refresh_at: Option<Duration>,
    pub(super) jitter: f64,
    /// It is counted in the part of the cache that is reserved for preferred services.
    pub(super) is_kept: bool,
    /// Its place in the order in which records were received.
    pub(super) order: u64,
    /// The host that announced it first.
    pub source: IpAddr,
}

impl Entry {
    pub(super) fn new(ttl: Duration, origin: &Origin) -> Self {
        let mut entry = Self {
            since: origin.now,
            received_at: origin.now,
            ttl,
            expires: origin.now + ttl,
            is_disputed: false,
            is_ended: false,
            refreshes: 0,
            refresh_at: None,
            jitter: origin.jitter,
            is_kept: false,
            order: 0,
            source: origin.source,
        };
        entry.plan_refresh();
        if origin.is_orphan {
            entry.expires = entry.expires.min(origin.now + LINGER);
            entry.refresh_at = None;
        }
        entry
    }

    /// Gives a record that had no pointer its whole lifetime.
    pub(super) fn adopt(&mut self) {
        if !self.is_ended {
            self.expires = self.received_at + self.ttl;
            self.plan_refresh();
        }
    }

    pub(super) fn plan_refresh(&mut self) {
        let percent = REFRESH_PERCENT.get(usize::from(self.refreshes));
        let percent = percent.filter(|_| self.ttl >= REFRESHED_TTL);
        self.refresh_at = percent.map(|percent| {
            let part = (f64::from(*percent) + self.jitter) / 100.0;
            self.received_at + self.ttl.mul_f64(part)
        });
    }

    /// Records that it is asked for. Questions that were due while they could not be sent are not sent all at once.
    pub(super) fn refreshed(&mut self, now: Duration) {
        self.refreshes += 1;
        self.plan_refresh();
        self.refresh_at = self.refresh_at.map(|at| at.max(now + HELD_FOR));
    }

    /// Ends the lifetime of a record that was withdrawn or replaced.
    pub(super) fn end(&mut self, at: Duration) {
        self.expires = self.expires.min(at);
        (self.refresh_at, self.is_ended) = (None, true);
    }

    /// Returns whether the record is asked for once more at the end of its lifetime, and extends it.
    pub(super) fn ask_overdue(&mut self, now: Duration) -> bool {
        let in_time = u8::try_from(REFRESH_PERCENT.len()).unwrap_or(u8::MAX);
        let asked = self.refreshes.max(in_time);
        let is_over = asked >= in_time + ASKED_OVERDUE || self.ttl < REFRESHED_TTL;
        if is_over || self.is_ended || self.is_disputed {
            return false;
        }
        (self.refreshes, self.refresh_at) = (asked + 1, None);
        self.expires = now + REPEATED_AFTER;
        true
    }

    /// Keeps the record, because a question for it is waiting to be sent.
    pub(super) fn wait(&mut self, now: Duration) {
        self.expires = self.expires.max(now + HELD_FOR);
        self.refresh_at = self.refresh_at.map(|at| at.max(now + HELD_FOR));
    }

    /// Records that a question for it was sent.
    pub(super) fn asked(&mut self, now: Duration) {
        self.expires = self.expires.max(now + ANSWER_WAIT);
    }

    /// Returns whether the record is to be asked for.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.refresh_at.is_some_and(|at| at <= now)
    }

    /// Returns whether the record is to be asked for, if another record is asked for now.
    pub(super) fn is_due_along(&self, now: Duration) -> bool {
        let earlier = match self.refreshes {
            0 => (self.ttl * ALONG_PERCENT / 100).min(ALONG_MAX),
            _ => Duration::ZERO,
        };
        self.is_due(now + earlier)
    }

    /// Restarts the record's lifetime, because its service has answered.
    pub(super) fn renew(&mut self, now: Duration) {
        (self.is_disputed, self.is_ended, self.refreshes) = (false, false, 0);
        (self.received_at, self.expires) = (now, now + self.ttl);
        self.plan_refresh();
    }

    /// Marks the record as disputed: no answer confirmed it.
    pub(super) fn mark_disputed(&mut self, now: Duration) {
        self.is_disputed = true;
        self.refresh_at = None;
        self.expires = now + DISPUTED_FOR;
    }

    /// Returns the time of the next refresh question or of the expiry.
    pub(super) fn due(&self) -> Duration {
        self.refresh_at
            .map_or(self.expires, |at| at.min(self.expires))
    }

    /// Returns whether it was withdrawn before `now`.
    pub(super) fn was_withdrawn(&self, now: Duration) -> bool {
        self.is_ended && self.expires < now + LINGER
    }

    /// Returns whether as many refresh questions had no answer as RFC 6762 10.4 requires before a flush.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.refreshes >= 2
    }
}
