//! Bounds the questions that are sent, and shares them out. Pure.
use std::{collections::BTreeMap, net::IpAddr, time::Duration};

/// The most packets in a burst by one interface. The next constant is the rate per second in the long run.
const PACKETS_BURST: f64 = 100.0;
const PACKETS_PER_SECOND: f64 = 25.0;

/// The packets of a burst that are reserved for preferred services, and for browses.
const PACKETS_KEPT: f64 = 25.0;
/// The bytes of questions and known answers in a packet. Names are counted without compression, so they fit.
const PACKET_BYTES: usize = 1400;
/// The time after which a question that the pace held back is tried again.
pub(crate) const HELD_FOR: Duration = Duration::from_millis(200);

/// The part of the pace that a question uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purse {
    /// The whole pace, with the reserved part: a browse, or a preferred service.
    Whole,
    /// Half of what other sources leave of the open part.
    Of(IpAddr),
}

/// The bytes of questions that may be sent in one turn. A question that does not fit is not sent, and does not count as
/// asked.
#[derive(Debug)]
pub(crate) struct Space {
    left: usize,
    kept: usize,
    by_source: BTreeMap<IpAddr, usize>,
    /// A question did not fit.
    pub has_held: bool,
}

impl Space {
    pub(crate) fn take(&mut self, bytes: usize, purse: Purse) -> bool {
        let open = self.left.saturating_sub(self.kept);
        let fits = match purse {
            Purse::Whole => bytes <= self.left,
            Purse::Of(source) => {
                let mine = self.by_source.entry(source).or_default();
                let fits = bytes <= open && *mine + bytes <= (open + *mine).div_ceil(2);
                *mine += if fits { bytes } else { 0 };
                fits
            }
        };
        self.left -= if fits { bytes } else { 0 };
        self.has_held |= !fits;
        fits
    }
}

/// Bounds the packets that are sent.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    left: f64,
    since: Duration,
}

impl Pace {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            left: PACKETS_BURST,
            since: now,
        }
    }

    /// Returns the space for questions, each of which is sent by this number of families.
    pub(crate) fn space(&mut self, now: Duration, families: usize) -> Space {
        let passed = now.saturating_sub(self.since).as_secs_f64();
        self.left = (self.left + passed * PACKETS_PER_SECOND).min(PACKETS_BURST);
        self.since = now;
        let bytes = |packets: f64| {
            let each = u32::try_from(families.max(1)).map_or(f64::MAX, f64::from);
            let whole = (1_u16..).take_while(|n| f64::from(*n) * each <= packets);
            whole.count() * PACKET_BYTES
        };
        Space {
            left: bytes(self.left),
            kept: bytes(PACKETS_KEPT),
            by_source: BTreeMap::new(),
            has_held: false,
        }
    }

    pub(crate) fn sent(&mut self, packets: usize) {
        self.left -= u32::try_from(packets).map_or(f64::MAX, f64::from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn what_is_sent_in_a_second_is_bounded_and_a_part_is_reserved() {
        let other = |n: u8| Purse::Of([10, 0, 0, n].into());
        for (purses, expected) in [
            (vec![Purse::Whole], 340..=350),
            (vec![other(1)], 300..=325),
            ((1..=100).map(other).collect(), 315..=325),
        ] {
            let (mut pace, mut sent) = (Pace::new(ms(0)), 0);
            for millis in 0..10_000 {
                let mut space = pace.space(ms(millis), 1);
                let purse = purses[sent % purses.len()];
                if space.take(700, purse) {
                    pace.sent(1);
                    sent += 1;
                }
            }
            assert!(expected.contains(&sent), "{sent} {purses:?}");
        }
    }

    #[test]
    fn a_source_that_asks_for_much_leaves_half_of_each_turn_to_the_others() {
        let mut space = Pace::new(ms(0)).space(ms(0), 2);
        let [first, second] = [1, 2].map(|n| Purse::Of([10, 0, 0, n].into()));
        let mut taken = |purse| (0..10_000).filter(|_| space.take(14, purse)).count();
        // 37 of 50 packets are open in each family.
        let open = (50 - 12) * PACKET_BYTES / 14;
        assert_eq!(taken(first), open / 2);
        assert!(taken(second).abs_diff(open / 4) <= 1);
        assert!(taken(Purse::Whole) >= 12 * PACKET_BYTES / 14);
    }
}
