//! One record: since when it is known, and until when. Pure.
use std::{net::IpAddr, time::Duration};

/// How long a pointer that was not confirmed is remembered, so that its service can be looked for.
const DISPUTED_FOR: Duration = Duration::from_secs(900);
/// RFC 6762 5.2: the parts of its lifetime at which a record is asked for again, in percent.
const REFRESH_PERCENT: [u32; 4] = [80, 85, 90, 95];
/// Records that live for less than this are not asked for again; their publisher repeats them or not.
const REFRESHED_TTL: Duration = Duration::from_secs(2);

/// Who sent a record, and when.
#[derive(Debug, Clone, Copy)]
pub struct Heard {
    pub source: IpAddr,
    pub now: Duration,
    /// In percent of its lifetime, so that not all who know a record ask for it at once: 0 to 2.
    pub jitter: f64,
    /// It is of a service that has an Instance.
    pub is_preferred: bool,
}

/// What is known of a record beside its data.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Since when it has been known without a break.
    pub since: Duration,
    pub heard: Duration,
    pub ttl: Duration,
    pub expires: Duration,
    /// It was not confirmed when it should have been. It is not believed, and not offered as a known answer.
    pub is_disputed: bool,
    /// How often it was asked for again.
    pub refreshes: u8,
    pub(super) refresh_at: Option<Duration>,
    pub(super) jitter: f64,
    pub(super) source: IpAddr,
}

impl Entry {
    pub(super) fn new(ttl: Duration, heard: &Heard) -> Self {
        let mut entry = Self {
            since: heard.now,
            heard: heard.now,
            ttl,
            expires: heard.now + ttl,
            is_disputed: false,
            refreshes: 0,
            refresh_at: None,
            jitter: heard.jitter,
            source: heard.source,
        };
        entry.plan_refresh();
        entry
    }

    pub(super) fn plan_refresh(&mut self) {
        let percent = REFRESH_PERCENT.get(usize::from(self.refreshes));
        let percent = percent.filter(|_| self.ttl >= REFRESHED_TTL);
        self.refresh_at = percent.map(|percent| {
            let part = (f64::from(*percent) + self.jitter) / 100.0;
            self.heard + self.ttl.mul_f64(part)
        });
    }

    /// It was not confirmed.
    pub(super) fn is_doubted(&mut self, now: Duration) {
        self.is_disputed = true;
        self.refresh_at = None;
        self.expires = now + DISPUTED_FOR;
    }

    /// When something is to be done about it.
    pub(super) fn due(&self) -> Duration {
        self.refresh_at
            .map_or(self.expires, |at| at.min(self.expires))
    }

    /// Whether it was asked for again, and not answered, as often as RFC 6762 10.4 wants before it is flushed.
    pub fn is_unanswered(&self) -> bool {
        self.refreshes >= 2
    }
}
