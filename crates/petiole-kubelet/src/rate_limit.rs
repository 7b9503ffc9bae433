//! Limits the rate of calls with a token bucket. Pure: the time comes in as the caller's uptime.
use std::time::Duration;

#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    at: Duration,
}

impl Bucket {
    pub(crate) fn new(per_second: f64, burst: f64) -> Self {
        Self {
            per_second,
            burst,
            tokens: burst,
            at: Duration::ZERO,
        }
    }

    /// Returns whether one more call is within the rate, and takes its token.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
        self.at = now;
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut bucket = Bucket::new(100.0, 10.0);
        let now = Duration::from_secs(5);
        let passed = (0..20).filter(|_| bucket.take(now)).count();
        assert_eq!(passed, 10);
        assert!(!bucket.take(now + Duration::from_millis(9)));
        assert!(bucket.take(now + Duration::from_millis(11)));
    }
}
