//! Bounds the work that received packets cause. Pure.
//!
//! Work is counted in steps of about 0.1 us, because packets differ in cost by a factor of a thousand. Each address family
//! of an interface has a purse of steps for each standing of a source, so that the packets of unknown hosts take nothing
//! from those that are known. The lower half of a purse is for sources that have caused little work in this second: a
//! busy host, or somebody in its name, does not hide the others.
use super::link::Family;
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher as _},
    net::IpAddr,
    time::Duration,
};

/// The steps that a purse gets in a second, a twentieth of a core. The packets for which it has none are ignored.
const STEPS_PER_SECOND: u32 = 500_000;
/// The most work that packets may cause at once, in steps of about 0.1 us, for each interface, address family and standing
/// of their sources. A quarter of it is added in each second. A responder for 2000 services causes 350,000 steps at once.
/// Beyond it: packets are ignored.
const PURSE_MAX: u32 = 4 * STEPS_PER_SECOND;
/// The part of a purse that is for sources with little work.
const RESERVED: u32 = PURSE_MAX / 2;
/// The steps in a second up to which a source counts as one with little work. A large packet counts before it is read, as a
/// step for so many bytes.
const LITTLE: usize = 100;
const BYTES_OF_STEP: usize = 8;
/// The steps of each source are counted, up to 255, in one column of each row, so that many sources need no more memory
/// than few. Beside 2048 busy sources, one in 400 has no column of its own.
const ROWS: usize = 4;
const COLUMNS: usize = 8192;

/// How far the source of a packet is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Standing {
    /// It answers for a preferred service.
    Preferred,
    /// Records of it are in the cache.
    Known,
    Unknown,
    /// The packet may have crossed a router, and its source may be false.
    Unproven,
}

/// The source of a packet, and the purse that pays for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Arrival {
    pub(super) link: u32,
    pub(super) family: Family,
    pub(super) standing: Standing,
    pub(super) source: IpAddr,
}

#[derive(Debug)]
pub(super) struct Traffic {
    /// Makes the columns of a source unpredictable.
    seed: u64,
    /// The begin of the second in which the work of sources is counted.
    since: Duration,
    work: Vec<u8>,
    purses: BTreeMap<(u32, Family, Standing), Purse>,
}

impl Traffic {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            since: Duration::ZERO,
            work: vec![0; ROWS * COLUMNS],
            purses: BTreeMap::new(),
        }
    }

    /// Returns whether a packet of this many bytes is read.
    pub(super) fn admits(&mut self, arrival: &Arrival, bytes: usize, now: Duration) -> bool {
        if self.since + Duration::from_secs(1) <= now {
            self.since = now;
            self.work.fill(0);
            // A full purse is as good as none.
            self.purses
                .retain(|_, purse| purse.steps_at(now) < PURSE_MAX);
        }
        let cells = self.cells(arrival);
        let before = cells.into_iter().map(|cell| self.work[cell]).min();
        let least = usize::from(before.unwrap_or_default()) + bytes / BYTES_OF_STEP;
        let kept = if least < LITTLE { 0 } else { RESERVED };
        let purse = self.purse(arrival, now);
        purse.steps = purse.steps_at(now);
        purse.since = now;
        purse.steps > kept
    }

    /// Records the work that a packet has caused.
    pub(super) fn charge(&mut self, arrival: &Arrival, steps: usize, now: Duration) {
        let work = u8::try_from(steps).unwrap_or(u8::MAX);
        for cell in self.cells(arrival) {
            self.work[cell] = self.work[cell].saturating_add(work);
        }
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        let purse = self.purse(arrival, now);
        purse.steps = purse.steps.saturating_sub(steps);
    }

    fn purse(&mut self, arrival: &Arrival, now: Duration) -> &mut Purse {
        let key = (arrival.link, arrival.family, arrival.standing);
        let full = Purse {
            steps: PURSE_MAX,
            since: now,
        };
        self.purses.entry(key).or_insert(full)
    }

    /// Returns the places where the work of a source is counted.
    fn cells(&self, arrival: &Arrival) -> [usize; ROWS] {
        let mut hasher = DefaultHasher::new();
        (self.seed, arrival).hash(&mut hasher);
        let hash = hasher.finish().to_le_bytes();
        std::array::from_fn(|row| {
            let column = u16::from_le_bytes([hash[2 * row], hash[2 * row + 1]]);
            row * COLUMNS + usize::from(column) % COLUMNS
        })
    }
}

/// The steps that are left for packets of one kind.
#[derive(Debug)]
struct Purse {
    steps: u32,
    since: Duration,
}

impl Purse {
    fn steps_at(&self, now: Duration) -> u32 {
        let more = now.saturating_sub(self.since).as_micros() * u128::from(STEPS_PER_SECOND);
        let more = u32::try_from(more / 1_000_000).unwrap_or(u32::MAX);
        self.steps.saturating_add(more).min(PURSE_MAX)
    }
}
