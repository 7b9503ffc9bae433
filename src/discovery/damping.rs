//! Delays the publication of devices that disappear and return, or move, repeatedly. Pure.
//!
//! The figures of merit are those of route flap damping (RFC 2439): each loss and each move adds 1, and a figure is
//! halved in each [`HALF_LIFE`]. Whole sets go in and whole sets come out; the time comes in as `now`.
//!
//! | report of a handler | time of publication |
//! |---|---|
//! | a device is gone | always at once |
//! | it is back, after few losses | at once |
//! | it is back, after a third loss within a minute and a half | when it has stayed for 2 s, then 4 s, 8 s, … up to 5 min; with a new connection at least the settle time of a move |
//! | it has a new connection (it has moved) | when that has lasted for 3 s; after more moves for 6 s, and 8 s at most |
//! | anything else of it has changed | at once |
//!
//! Only the loss of a published device adds to the figure of losses; changes of a device that is held back do not. So
//! a switch that was loose for some seconds delays its devices by seconds, and a device that fails each time after its
//! publication is held back for minutes. A figure decays only while its device is published, or is gone.
use crate::model::device::{Device, DeviceId, DeviceSet};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

const HALF_LIFE: Duration = Duration::from_secs(60);
/// A device with more losses than this flaps. Two losses in a row are normal when a camera starts.
const LOSSES_TOLERATED: f64 = 2.0;
/// The hold time after the third loss in a row. Each further loss doubles it.
const FIRST_HOLD: Duration = Duration::from_secs(2);
const LONGEST_HOLD: Duration = Duration::from_secs(300);
/// The upper limit of the figure of losses. It gives the longest hold, which is 9 s again after a minute without
/// losses.
const LOSSES_MAX: f64 = 10.25;
/// The time for which a new connection must last before it is published, because its brokers are then replaced. A host
/// with several interfaces announces on each interface the address of that interface, and such an announcement flushes
/// the other addresses for a second or two (RFC 6762 10.2).
pub const FIRST_MOVE: Duration = Duration::from_secs(3);
/// The longest settle time of a move: the newest connection is published within 10 s, however often the device has
/// moved.
const LONGEST_MOVE: Duration = Duration::from_secs(8);
/// The upper limit of the figure of moves. The longest settle time applies for a minute after the last of many moves.
const MOVES_MAX: f64 = 3.0;
/// A figure below this value counts as 0.
const NEGLIGIBLE: f64 = 0.1;
/// The most devices whose history is kept. Devices that are held back are not counted.
const REMEMBERED_MAX: usize = 4096;
/// A margin that ensures that a figure is below its level when it is checked again.
const A_LITTLE_LATER: Duration = Duration::from_millis(1);

/// The devices of one Configuration as they are published.
#[derive(Debug, Default)]
pub struct Damper {
    believed: Arc<DeviceSet>,
    /// The history of devices that were lost or moved recently.
    records: BTreeMap<DeviceId, Record>,
}

/// The result of a turn: the devices to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Belief {
    pub set: Arc<DeviceSet>,
    /// The devices that flap, whether or not they are in the set.
    pub flapping: BTreeMap<DeviceId, Flapping>,
    /// The time of the next turn, if the handler reports nothing before.
    pub wake: Option<Duration>,
}

/// The state of a device that flaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flapping {
    /// The device is present and counts as gone.
    pub is_held_back: bool,
    losses: u32,
    hold: Duration,
}

impl fmt::Display for Flapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the device went away {} times within minutes; until it is steady, each return counts only after {} s \
             without a break; check its power, its network, and whether another device has its name",
            self.losses,
            self.hold.as_secs().max(1)
        )
    }
}

#[derive(Debug)]
struct Record {
    losses: Figure,
    /// The number of losses, without decay.
    counted: u32,
    moves: Figure,
    /// The connection of the device as it was published last.
    connection: String,
    stage: Stage,
}

#[derive(Debug, Clone, PartialEq)]
enum Stage {
    /// The device is published as it was reported.
    Settled,
    Gone,
    /// The device is back, and is not published until it has stayed for the hold time.
    HeldBack {
        connection: String,
        until: Duration,
        losses: f64,
    },
    /// The device has a new connection, which is not published until it has lasted for the settle time.
    Moving {
        connection: String,
        until: Duration,
    },
}

/// A figure of merit.
#[derive(Debug, Clone, Copy, Default)]
struct Figure {
    value: f64,
    since: Duration,
}

impl Figure {
    fn at(self, now: Duration) -> f64 {
        let age = now.saturating_sub(self.since).div_duration_f64(HALF_LIFE);
        self.value * (-age).exp2()
    }

    fn add_one(&mut self, now: Duration, max: f64) {
        *self = Self {
            value: (self.at(now) + 1.0).min(max),
            since: now,
        };
    }

    /// Returns the time at which the figure will have fallen to `level`.
    fn falls_to(self, level: f64) -> Duration {
        self.since + HALF_LIFE.mul_f64((self.value / level).log2().max(0.0)) + A_LITTLE_LATER
    }
}

fn hold(losses: f64) -> Duration {
    if losses <= LOSSES_TOLERATED {
        return Duration::ZERO;
    }
    let doublings = losses - LOSSES_TOLERATED - 1.0;
    FIRST_HOLD.mul_f64(doublings.exp2()).min(LONGEST_HOLD)
}

fn move_settle(moves: f64) -> Duration {
    FIRST_MOVE.mul_f64(moves.exp2()).min(LONGEST_MOVE)
}

impl Damper {
    /// Returns the devices to publish when a handler reports `said`. A device that `said` does not contain is gone if
    /// `is_missing` returns true for it; otherwise it may only be late.
    pub fn turn(
        &mut self,
        said: &Arc<DeviceSet>,
        is_missing: impl Fn(&DeviceId) -> bool,
        now: Duration,
    ) -> Belief {
        self.lose(said, is_missing, now);
        // Usually the whole set is published as it is, and nothing is copied.
        let mut instead: BTreeMap<&DeviceId, Option<Arc<Device>>> = BTreeMap::new();
        for (id, device) in &said.devices {
            let before = self.believed.devices.get(id);
            if before.is_none_or(|before| before != device)
                || self.records.get(id).is_some_and(|r| !r.is_settled())
            {
                let before = before.cloned();
                match self.look_at(device, before.as_deref(), now) {
                    Verdict::Believed => {}
                    Verdict::HeldBack => drop(instead.insert(id, None)),
                    Verdict::AsBefore => drop(instead.insert(id, before)),
                }
            }
        }
        self.believed = match instead.is_empty() {
            true => said.clone(),
            false => Arc::new(with(said, instead)),
        };
        self.forget(now);
        Belief {
            set: self.believed.clone(),
            flapping: self.flapping(now),
            wake: self.wake(now),
        }
    }

    /// Records the loss of each device that is no longer present.
    fn lose(&mut self, said: &DeviceSet, is_missing: impl Fn(&DeviceId) -> bool, now: Duration) {
        let is_lost = |id: &DeviceId| !said.devices.contains_key(id) && is_missing(id);
        for (id, record) in &mut self.records {
            let is_there = said.devices.contains_key(id);
            let was_believed = self.believed.devices.contains_key(id);
            let is_seen_to_go = was_believed && is_lost(id);
            if !is_there && !is_seen_to_go {
                record.goes_unseen(now);
            }
        }
        for (id, device) in &self.believed.devices {
            if is_lost(id) {
                let record = self.records.entry(id.clone());
                let record = record.or_insert_with(|| Record::of(device));
                record.losses.add_one(now, LOSSES_MAX);
                record.counted = record.counted.saturating_add(1);
                record.stage = Stage::Gone;
            }
        }
    }

    fn look_at(&mut self, device: &Device, before: Option<&Device>, now: Duration) -> Verdict {
        let connection = device.connection_digest();
        let Some(before) = before else {
            return match self.records.get_mut(&device.id) {
                // The device is new, or its history was dropped.
                None => Verdict::Believed,
                Some(record) => record.returns(connection, now),
            };
        };
        let stands = before.connection_digest();
        if stands == connection && !self.records.contains_key(&device.id) {
            return Verdict::Believed;
        }
        let record = self.records.entry(device.id.clone());
        let record = record.or_insert_with(|| Record::of(before));
        record.stands(connection, now)
    }

    /// Bounds the history: the records with the smallest figures are dropped first.
    fn forget(&mut self, now: Duration) {
        let weight = |record: &Record| record.losses.at(now).max(record.moves.at(now));
        (self.records).retain(|_, record| !record.is_at_rest() || weight(record) > NEGLIGIBLE);
        if self.records.len() <= REMEMBERED_MAX {
            return;
        }
        let at_rest = self.records.iter().filter(|(_, r)| r.is_at_rest());
        let mut at_rest: Vec<_> = at_rest.map(|(id, r)| (weight(r), id.clone())).collect();
        at_rest.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, id) in at_rest.into_iter().skip(REMEMBERED_MAX) {
            self.records.remove(&id);
        }
    }

    fn flapping(&self, now: Duration) -> BTreeMap<DeviceId, Flapping> {
        let flaps = self.records.iter().filter(|(_, record)| record.flaps(now));
        let flapping = |(id, record): (&DeviceId, &Record)| {
            let is_held_back = matches!(record.stage, Stage::HeldBack { .. });
            let flapping = Flapping {
                is_held_back,
                losses: record.counted,
                hold: hold(record.losses.value),
            };
            (id.clone(), flapping)
        };
        flaps.map(flapping).collect()
    }

    fn wake(&self, now: Duration) -> Option<Duration> {
        let wakes = self.records.values().flat_map(|record| {
            let until = match &record.stage {
                Stage::HeldBack { until, .. } => return [Some(*until), None],
                Stage::Moving { until, .. } => Some(*until),
                Stage::Settled | Stage::Gone => None,
            };
            let calm = (record.flaps(now)).then(|| record.losses.falls_to(LOSSES_TOLERATED));
            [until, calm]
        });
        wakes.flatten().min()
    }
}

enum Verdict {
    Believed,
    /// The device counts as gone.
    HeldBack,
    /// The device is published as before.
    AsBefore,
}

impl Record {
    fn of(device: &Device) -> Self {
        Self {
            losses: Figure::default(),
            counted: 0,
            moves: Figure::default(),
            connection: device.connection_digest(),
            stage: Stage::Settled,
        }
    }

    fn is_settled(&self) -> bool {
        self.stage == Stage::Settled
    }

    fn is_at_rest(&self) -> bool {
        matches!(self.stage, Stage::Settled | Stage::Gone)
    }

    fn flaps(&self, now: Duration) -> bool {
        matches!(self.stage, Stage::HeldBack { .. }) || self.losses.at(now) > LOSSES_TOLERATED
    }

    /// Records that the device is gone. If it was held back, its return was never published: its figure starts to decay
    /// now.
    fn goes_unseen(&mut self, now: Duration) {
        if let Stage::HeldBack { .. } = self.stage {
            self.losses.since = now;
        }
        self.stage = Stage::Gone;
    }

    /// Handles a device that is present and was published as gone.
    fn returns(&mut self, connection: String, now: Duration) -> Verdict {
        let losses = match &self.stage {
            Stage::HeldBack {
                connection: before,
                until,
                losses,
            } if *before == connection && *until <= now => {
                self.losses = Figure {
                    value: *losses,
                    since: now,
                };
                return self.is_believed(connection, now);
            }
            Stage::HeldBack {
                connection: before, ..
            } if *before == connection => return Verdict::HeldBack,
            Stage::HeldBack { losses, .. } => *losses,
            Stage::Gone => self.losses.at(now),
            // An earlier run of the handler saw the device; this run had not found it yet.
            Stage::Settled | Stage::Moving { .. } => return self.is_believed(connection, now),
        };
        let mut hold = hold(losses);
        if hold.is_zero() {
            return self.is_believed(connection, now);
        }
        if connection != self.connection {
            hold = hold.max(move_settle(self.moves.at(now)));
        }
        self.stage = Stage::HeldBack {
            connection,
            until: now + hold,
            losses,
        };
        Verdict::HeldBack
    }

    /// Handles a device that is present and was published as present.
    fn stands(&mut self, connection: String, now: Duration) -> Verdict {
        if self.connection == connection {
            self.stage = Stage::Settled;
            return Verdict::Believed;
        }
        match &self.stage {
            Stage::Moving {
                connection: before,
                until,
            } if *before == connection => {
                if *until <= now {
                    return self.is_believed(connection, now);
                }
                return Verdict::AsBefore;
            }
            // The device moves again before the last move has settled.
            Stage::Moving { .. } => self.moves.add_one(now, MOVES_MAX),
            Stage::Settled | Stage::Gone | Stage::HeldBack { .. } => {}
        }
        self.stage = Stage::Moving {
            connection,
            until: now + move_settle(self.moves.at(now)),
        };
        Verdict::AsBefore
    }

    fn is_believed(&mut self, connection: String, now: Duration) -> Verdict {
        if self.connection != connection {
            self.moves.add_one(now, MOVES_MAX);
        }
        self.connection = connection;
        self.stage = Stage::Settled;
        Verdict::Believed
    }
}

/// Returns `said` with the devices in `instead` replaced or removed.
fn with(said: &DeviceSet, instead: BTreeMap<&DeviceId, Option<Arc<Device>>>) -> DeviceSet {
    let mut set = said.clone();
    for (id, device) in instead {
        match device {
            Some(device) => drop(set.devices.insert(id.clone(), device)),
            None => drop(set.devices.remove(id)),
        }
    }
    set
}

#[cfg(test)]
mod tests;
