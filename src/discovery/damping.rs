//! Damps devices that disappear and return, or change their connection, again and again: each time a change counts later.
//! Pure.
//!
//! The penalties are those of route flap damping (RFC 2439): each loss, and each change of the connection, adds 1, and a
//! penalty is halved in each [`HALF_LIFE`]. Whole sets go in and whole sets come out; the time comes in as `now`.
//!
//! | what a handler says | when it is believed |
//! |---|---|
//! | a device is gone | at once, always |
//! | it is back, after few losses | at once |
//! | it is back, after a third loss within about 80 s | when it has stayed for 2 s, then 4 s, 8 s, … up to 5 min; with another connection for as long as such a change must last, too |
//! | its connection (its address or port) has changed | when that has stayed for 3 s; after more changes for 6 s, and 8 s at most |
//! | anything else of it has changed | at once |
//!
//! A loss counts only if the device was believed: nobody sees what it does while it is held back. So a switch that was
//! loose for some seconds costs its devices seconds, and a device that is off again whenever it was believed is held back
//! for minutes. A penalty falls while its device is believed or away, and not while it is held back.
use crate::model::device::{Device, DeviceId, DeviceSet};
use petiole_base::collect::CollectMap as _;
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

const HALF_LIFE: Duration = Duration::from_secs(60);
/// A device with more losses than this flaps: a camera may start twice in a row.
const LOSSES_TOLERATED: f64 = 2.0;
/// The time for which a device is held back after its third loss in a row. Each further loss doubles it.
const FIRST_HOLD: Duration = Duration::from_secs(2);
const LONGEST_HOLD: Duration = Duration::from_secs(300);
/// The highest penalty of losses: it gives [`LONGEST_HOLD`], and 9 s after one [`HALF_LIFE`].
const LOSSES_MAX: f64 = 10.25;
/// The time for which a changed connection must stay before it is believed, because brokers are replaced for it. A host
/// with several interfaces announces on each what is reached there, and such an announcement flushes the addresses of
/// the others for a second or two (RFC 6762 10.2).
pub const FIRST_CONNECTION_HOLD: Duration = Duration::from_secs(3);
/// The last connection of a device is believed within 10 s, however often it has changed.
const LONGEST_CONNECTION_HOLD: Duration = Duration::from_secs(8);
/// The longest wait holds for a minute after the last of many changes.
const CONNECTION_CHANGES_MAX: f64 = 3.0;
/// A penalty this small counts as none.
const NEGLIGIBLE: f64 = 0.1;
/// The most devices of a Configuration whose past is remembered; those that are held back just now are not counted.
/// Beyond it: those that flapped least are forgotten.
const REMEMBERED_MAX: usize = 4096;
/// A time that makes sure that a penalty is below its level at the next look.
const A_LITTLE_LATER: Duration = Duration::from_millis(1);

/// The devices of one Configuration that are believed, and the history of those that disappeared or changed.
#[derive(Debug, Default)]
pub struct Damper {
    believed: Arc<DeviceSet>,
    /// The devices that disappeared, or whose connection changed, not long ago.
    records: BTreeMap<DeviceId, Record>,
}

/// The devices to be shown now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Belief {
    pub set: Arc<DeviceSet>,
    /// The devices that flap, whether or not they are in the set.
    pub flapping: BTreeMap<DeviceId, Flapping>,
    /// The time of the next turn, if the handler reports nothing before.
    pub wake: Option<Duration>,
}

/// A device that comes and goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flapping {
    /// The device is there and counts as gone.
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
    losses: Penalty,
    /// The number of all losses, without decay.
    loss_count: u32,
    connection_changes: Penalty,
    /// The connection of the device when it was believed last.
    connection: String,
    stage: Stage,
}

#[derive(Debug, Clone, PartialEq)]
enum Stage {
    /// The device is believed as it is.
    Settled,
    Gone,
    /// The device is back, and not believed until it has stayed.
    HeldBack {
        connection: String,
        until: Duration,
        penalty: f64,
    },
    /// The connection has changed, which is not believed until it has stayed.
    Changing {
        connection: String,
        until: Duration,
    },
}

/// A number that is halved in each [`HALF_LIFE`].
#[derive(Debug, Clone, Copy, Default)]
struct Penalty {
    value: f64,
    since: Duration,
}

impl Penalty {
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

    /// Returns the time at which it will have fallen to `level`.
    fn falls_to(self, level: f64) -> Duration {
        self.since + HALF_LIFE.mul_f64((self.value / level).log2().max(0.0)) + A_LITTLE_LATER
    }
}

fn hold(penalty: f64) -> Duration {
    if penalty <= LOSSES_TOLERATED {
        return Duration::ZERO;
    }
    let doublings = penalty - LOSSES_TOLERATED - 1.0;
    FIRST_HOLD.mul_f64(doublings.exp2()).min(LONGEST_HOLD)
}

fn connection_hold(penalty: f64) -> Duration {
    FIRST_CONNECTION_HOLD
        .mul_f64(penalty.exp2())
        .min(LONGEST_CONNECTION_HOLD)
}

impl Damper {
    /// Returns the devices to believe after a handler has reported `said`. A device that `said` leaves out is gone if
    /// `is_missing`; otherwise its answer may be late.
    pub fn turn(
        &mut self,
        said: &Arc<DeviceSet>,
        is_missing: impl Fn(&DeviceId) -> bool,
        now: Duration,
    ) -> Belief {
        self.lose(said, is_missing, now);
        // Most of the time all is believed, and nothing is copied.
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
        self.believed = if instead.is_empty() {
            said.clone()
        } else {
            Arc::new(with(said, instead))
        };
        self.forget(now);
        Belief {
            set: self.believed.clone(),
            flapping: self.flapping(now),
            wake: self.wake(now),
        }
    }

    /// Records the devices that are gone.
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
                record.loss_count = record.loss_count.saturating_add(1);
                record.stage = Stage::Gone;
            }
        }
    }

    fn look_at(&mut self, device: &Device, before: Option<&Device>, now: Duration) -> Verdict {
        let connection = device.connection_digest();
        let Some(before) = before else {
            return match self.records.get_mut(&device.id) {
                // The first time, or not for a long time.
                None => Verdict::Believed,
                Some(record) => record.on_return(connection, now),
            };
        };
        if before.connection_digest() == connection && !self.records.contains_key(&device.id) {
            return Verdict::Believed;
        }
        let record = self.records.entry(device.id.clone());
        let record = record.or_insert_with(|| Record::of(before));
        record.on_present(connection, now)
    }

    /// Bounds the records: those with the smallest penalties go first.
    fn forget(&mut self, now: Duration) {
        let weight = |record: &Record| record.losses.at(now).max(record.connection_changes.at(now));
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
                losses: record.loss_count,
                // The hold of the last loss, which does not shrink while a reader looks at it.
                hold: hold(record.losses.value),
            };
            (id.clone(), flapping)
        };
        flaps.map(flapping).collect_map()
    }

    fn wake(&self, now: Duration) -> Option<Duration> {
        let wakes = self.records.values().flat_map(|record| {
            let until = match &record.stage {
                Stage::HeldBack { until, .. } => return [Some(*until), None],
                Stage::Changing { until, .. } => Some(*until),
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
    /// The device counts as it was believed last.
    AsBefore,
}

impl Record {
    fn of(device: &Device) -> Self {
        Self {
            losses: Penalty::default(),
            loss_count: 0,
            connection_changes: Penalty::default(),
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

    /// Records the loss of a device that was not shown: its penalty begins to fall anew, from its present value.
    fn goes_unseen(&mut self, now: Duration) {
        if let Stage::HeldBack { .. } = self.stage {
            self.losses.since = now;
        }
        self.stage = Stage::Gone;
    }

    /// Decides about a device that is there, and was not believed to be.
    fn on_return(&mut self, connection: String, now: Duration) -> Verdict {
        let penalty = match &self.stage {
            Stage::HeldBack {
                connection: before,
                until,
                penalty,
            } if *before == connection && *until <= now => {
                self.losses = Penalty {
                    value: *penalty,
                    since: now,
                };
                return self.believe(connection, now);
            }
            Stage::HeldBack {
                connection: before, ..
            } if *before == connection => return Verdict::HeldBack,
            Stage::HeldBack { penalty, .. } => *penalty,
            Stage::Gone => self.losses.at(now),
            // Another run of its handler had not found it yet.
            Stage::Settled | Stage::Changing { .. } => return self.believe(connection, now),
        };
        let mut hold = hold(penalty);
        if hold.is_zero() {
            return self.believe(connection, now);
        }
        if connection != self.connection {
            hold = hold.max(connection_hold(self.connection_changes.at(now)));
        }
        self.stage = Stage::HeldBack {
            connection,
            until: now + hold,
            penalty,
        };
        Verdict::HeldBack
    }

    /// Decides about a device that is there, and was believed to be.
    fn on_present(&mut self, connection: String, now: Duration) -> Verdict {
        if self.connection == connection {
            self.stage = Stage::Settled;
            return Verdict::Believed;
        }
        match &self.stage {
            Stage::Changing {
                connection: before,
                until,
            } if *before == connection => {
                if *until <= now {
                    return self.believe(connection, now);
                }
                return Verdict::AsBefore;
            }
            // It changed to yet another one.
            Stage::Changing { .. } => self.connection_changes.add_one(now, CONNECTION_CHANGES_MAX),
            Stage::Settled | Stage::Gone | Stage::HeldBack { .. } => {}
        }
        self.stage = Stage::Changing {
            connection,
            until: now + connection_hold(self.connection_changes.at(now)),
        };
        Verdict::AsBefore
    }

    fn believe(&mut self, connection: String, now: Duration) -> Verdict {
        if self.connection != connection {
            self.connection_changes.add_one(now, CONNECTION_CHANGES_MAX);
        }
        self.connection = connection;
        self.stage = Stage::Settled;
        Verdict::Believed
    }
}

/// Returns `said` with some devices replaced or left out.
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
