//! Bounds the bytes that one task writes into an object that changes all the time: the API server keeps each version for minutes.
use petiole_base::token_bucket::TokenBucket;
use std::time::Duration;

/// The bytes that may be written at once, and the rate after that, per second.
const BURST: usize = 4 << 20;
const A_SECOND: u32 = 64 << 10;

/// The bytes that were written lately. Times are relative to any fixed start.
#[derive(Debug)]
pub struct WrittenBytes(TokenBucket);

impl Default for WrittenBytes {
    fn default() -> Self {
        Self(TokenBucket::new(BURST, A_SECOND, Duration::ZERO))
    }
}

impl WrittenBytes {
    /// Records a write, and returns the time until the next one, which has as many bytes.
    pub fn written(&mut self, bytes: usize, now: Duration) -> Duration {
        self.0.take(bytes, now);
        self.0.wait_for(bytes, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_object_that_changes_all_the_time_is_written_as_often_as_its_bytes_allow() {
        let (mut written, mut now, mut writes) = (WrittenBytes::default(), Duration::ZERO, 0);
        while now < Duration::from_secs(600) {
            now += written.written(1 << 20, now);
            writes += 1;
        }
        let bytes = BURST + 600 * A_SECOND as usize;
        assert!((writes << 20) <= bytes + (1 << 20), "{writes} writes");
        assert!((writes + 2) << 20 > bytes, "{writes} writes");
    }
}
