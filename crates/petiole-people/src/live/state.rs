//! Keeps what is shown, and decides what has changed since the last look. Pure.
use super::filter::{self, By, Filter};
use crate::{
    inspect::{
        devices::{Device, devices},
        node_only,
        slots::UsedSlot,
        snapshot::Snapshot,
        words::plural,
    },
    screen::Key,
};
use k8s_openapi::jiff::Timestamp;
use petiole_model::api::condition::ConditionType;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::Duration,
};

/// The number of changes that are kept.
const CHANGES_MAX: usize = 200;

/// A change, with the time at which it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    pub at: Timestamp,
    pub text: String,
}

/// The namespace and the name of an Instance.
type InstanceName<'a> = (&'a str, &'a str);

/// The state as a browser gets it.
#[derive(Debug, Serialize)]
pub(super) struct Shown<'a> {
    place: &'a str,
    hint: &'a str,
    summary: String,
    /// True once there was a look that succeeded.
    known: bool,
    /// True if the last look failed. An error without it says what could not be read.
    stale: bool,
    problems: usize,
    error: Option<&'a str>,
    /// Those with a problem first.
    devices: &'a [Device],
    /// The Configurations that are not ready.
    configurations: &'a [NotReady],
    /// The sentences about devices that have no Instances.
    notes: &'a [String],
    /// The newest first.
    changes: Vec<&'a Change>,
}

/// A Configuration that is not ready, in the words of its condition.
#[derive(Debug, Serialize)]
struct NotReady {
    namespace: String,
    configuration: String,
    reason: String,
    message: String,
}

/// The state that the terminal and the browser show.
#[derive(Debug)]
pub struct State {
    pub(super) place: String,
    /// The command to run next if there are no devices.
    pub(super) hint: String,
    /// The time from which the times of changes count. Without it they are times of the day.
    pub(super) started: Option<Timestamp>,
    pub(super) now: Timestamp,
    /// The devices of the last look that succeeded, those with a problem first.
    devices: Option<Vec<Device>>,
    /// The time of that look.
    looked_at: Timestamp,
    configurations: Vec<NotReady>,
    pub(super) notes: Vec<String>,
    /// The error of the last look; the devices are those of the look before.
    pub(super) error: Option<String>,
    is_stale: bool,
    pub(super) changes: Vec<Change>,
    pub(super) filter: Filter,
    /// True while the user types the words of a search.
    pub is_typing: bool,
    /// The namespace and the name of the selected Instance.
    selected: Option<(String, String)>,
}

impl State {
    pub(super) fn new(place: String, hint: String) -> Self {
        Self {
            place,
            hint,
            started: None,
            now: Timestamp::UNIX_EPOCH,
            devices: None,
            looked_at: Timestamp::UNIX_EPOCH,
            configurations: vec![],
            notes: vec![],
            error: None,
            is_stale: false,
            changes: vec![],
            filter: Filter::default(),
            is_typing: false,
            selected: None,
        }
    }

    /// Returns the state of a place that starts now, without devices: each device that is found is a change.
    pub fn starting(place: String, hint: String, now: Timestamp) -> Self {
        Self {
            devices: Some(vec![]),
            started: Some(now),
            ..Self::new(place, hint)
        }
    }

    /// Takes in the result of a look.
    pub fn take(&mut self, look: Result<&Snapshot, &anyhow::Error>, now: Timestamp) {
        self.now = now;
        self.is_stale = look.is_err();
        match look {
            Err(e) => {
                let at = self.looked_at.strftime("%H:%M:%S");
                self.error = Some(if self.has_looked() {
                    format!("{e:#}. The devices are those of {at} UTC.")
                } else {
                    format!("{e:#}")
                });
            }
            Ok(snapshot) => {
                self.error = snapshot.unread.first().cloned();
                let mut after = devices(snapshot, now);
                filter::sort(&mut after);
                let before = self.devices.as_ref();
                let texts = before.map(|before| changes(before, &after));
                self.record(texts.unwrap_or_default(), now);
                self.configurations = not_ready(snapshot);
                self.notes = node_only::sentences(snapshot);
                self.devices = Some(after);
                self.looked_at = now;
            }
        }
    }

    /// Records changes that were seen at a time.
    pub fn record(&mut self, texts: Vec<String>, at: Timestamp) {
        let texts = texts.into_iter();
        self.changes.extend(texts.map(|text| Change { at, text }));
        let surplus = self.changes.len().saturating_sub(CHANGES_MAX);
        self.changes.drain(..surplus);
    }

    /// Returns the changes, and keeps none of them.
    pub fn take_changes(&mut self) -> Vec<Change> {
        mem::take(&mut self.changes)
    }

    /// Returns a time as it stands before a change.
    pub fn time(&self, at: Timestamp) -> String {
        match self.started {
            Some(started) => format!("{:>7.2} s  ", at.duration_since(started).as_secs_f64()),
            None => at.strftime("%H:%M:%S  ").to_string(),
        }
    }

    /// Carries out a command. Returns whether it ends the program.
    pub fn press(&mut self, key: Key) -> bool {
        match key {
            Key::Escape if self.is_typing || self.filter != Filter::default() => {
                (self.is_typing, self.filter) = (false, Filter::default());
            }
            Key::Escape | Key::Quit => return true,
            Key::Enter => self.is_typing = false,
            Key::Backspace => {
                self.filter.search.pop();
            }
            Key::Letter(letter) if self.is_typing => self.filter.search.push(letter),
            Key::Letter(letter) => return self.command(letter),
            Key::Up => self.select(|row, _| row.saturating_sub(1)),
            Key::Down => self.select(|row, last| (row + 1).min(last)),
            Key::First => self.select(|_, _| 0),
            Key::Last => self.select(|_, last| last),
        }
        false
    }

    /// Carries out the command of a letter. Returns whether it ends the program.
    fn command(&mut self, letter: char) -> bool {
        let devices = self.devices.as_deref().unwrap_or_default();
        match letter {
            'q' => return true,
            'k' => return self.press(Key::Up),
            'j' => return self.press(Key::Down),
            '/' => self.is_typing = true,
            'n' => self.filter.advance(By::Node, devices),
            'c' => self.filter.advance(By::Configuration, devices),
            's' => self.filter.advance(By::State, devices),
            'p' => {
                let problem = Some(filter::PROBLEM.to_owned());
                let is_chosen = self.filter.state == problem;
                self.filter.state = problem.filter(|_| !is_chosen);
            }
            _ => {}
        }
        false
    }

    /// Selects another row, by the present one and the last.
    fn select(&mut self, other: fn(usize, usize) -> usize) {
        let devices = self.devices();
        let last = devices.len().saturating_sub(1);
        let row = self.row(&devices).unwrap_or_default();
        let selected = devices.get(other(row, last));
        self.selected = selected.map(|d| (d.namespace.clone(), d.instance.clone()));
    }

    /// Returns whether there was a look that succeeded.
    pub(super) fn has_looked(&self) -> bool {
        self.devices.is_some()
    }

    /// Returns the devices that are listed, with their ages now.
    pub(super) fn devices(&self) -> Vec<Device> {
        let since = Duration::try_from(self.now.duration_since(self.looked_at));
        let since = since.unwrap_or_default();
        let listed = |device: &&Device| self.filter.allows(device);
        let listed = self.all().iter().filter(listed).cloned();
        let aged = listed.map(|device| Device {
            age: device.age.map(|age| age + since),
            ..device
        });
        aged.collect()
    }

    /// Returns the state as a browser gets it.
    pub(super) fn shown(&self) -> Shown<'_> {
        Shown {
            place: &self.place,
            hint: &self.hint,
            summary: self.summary(),
            known: self.has_looked(),
            stale: self.is_stale,
            problems: self.problems(),
            error: self.error.as_deref(),
            devices: self.all(),
            configurations: &self.configurations,
            notes: &self.notes,
            changes: self.changes.iter().rev().collect(),
        }
    }

    fn all(&self) -> &[Device] {
        self.devices.as_deref().unwrap_or_default()
    }

    fn problems(&self) -> usize {
        let devices = self.all().iter();
        devices.filter(|device| device.problem.is_some()).count()
    }

    /// Returns the row of the selected device: the first one, until another is selected.
    pub(super) fn row(&self, devices: &[Device]) -> Option<usize> {
        let selected = self.selected.as_ref();
        let is_it = |device: &Device| {
            selected.is_some_and(|(space, name)| key(device) == (space.as_str(), name.as_str()))
        };
        let row = devices.iter().position(is_it);
        row.or((!devices.is_empty()).then_some(0))
    }

    /// Returns the numbers of all devices, such as `12 devices, 1 with a problem, 7 of 20 slots in use`.
    pub(super) fn summary(&self) -> String {
        if !self.has_looked() {
            return "nothing was read yet".to_owned();
        }
        let devices = self.all();
        let problems = self.problems();
        let used: usize = devices.iter().map(|device| device.used.len()).sum();
        let slots: usize = devices
            .iter()
            .map(|d| usize::try_from(d.capacity).unwrap_or(0))
            .sum();
        let unready = match self.configurations.as_slice() {
            [] => String::new(),
            [first, ..] => format!(
                ", {} not ready ({}/{}: {})",
                plural(self.configurations.len(), "Configuration"),
                first.namespace,
                first.configuration,
                first.reason
            ),
        };
        format!(
            "{}, {problems} with a problem, {used} of {} in use{unready}",
            plural(devices.len(), "device"),
            plural(slots, "slot")
        )
    }
}

fn key(device: &Device) -> InstanceName<'_> {
    (&device.namespace, &device.instance)
}

/// Returns the Configurations whose condition `Ready` is not true.
fn not_ready(snapshot: &Snapshot) -> Vec<NotReady> {
    let all = snapshot.configurations.iter();
    let found = all.filter_map(|(key, configuration)| {
        let ready = configuration.condition(ConditionType::Ready)?;
        (!ready.is_true()).then(|| NotReady {
            namespace: key.namespace.clone(),
            configuration: key.name.to_string(),
            reason: ready.reason.clone(),
            message: ready.message.clone(),
        })
    });
    found.collect()
}

/// Describes what has changed from one look to the next.
fn changes(before: &[Device], after: &[Device]) -> Vec<String> {
    let known: BTreeMap<InstanceName<'_>, &Device> = before.iter().map(|d| (key(d), d)).collect();
    let now: BTreeSet<InstanceName<'_>> = after.iter().map(key).collect();
    let mut texts = vec![];
    for device in after {
        match known.get(&key(device)) {
            None => {
                texts.push(format!("{} was found: {}", name(device), device.health));
                texts.extend(uses(None, device));
            }
            Some(was) => texts.extend(of_device(was, device)),
        }
    }
    let gone = before.iter().filter(|device| !now.contains(&key(device)));
    texts.extend(gone.map(|device| format!("{} is gone", name(device))));
    texts
}

fn of_device(was: &Device, is: &Device) -> Vec<String> {
    let mut texts = vec![];
    if was.health != is.health {
        texts.push(format!("{}: {} -> {}", name(is), was.health, is.health));
    } else if was.problem != is.problem {
        texts.push(match &is.problem {
            Some(reason) => format!("{}: its brokers: {reason}", name(is)),
            None => format!("{}: its brokers are well again", name(is)),
        });
    }
    texts.extend(uses(Some(was), is));
    texts
}

/// Describes which slots were released and given since the last look.
fn uses(was: Option<&Device>, is: &Device) -> Vec<String> {
    let (had, has) = (was.map_or(&[][..], |was| &was.used), &is.used);
    let is_in = |others: &[UsedSlot], slot: &UsedSlot| others.iter().any(|it| is_same(it, slot));
    let released = had.iter().filter(|slot| !is_in(has, slot));
    let released =
        released.map(|slot| format!("{} is not used by {} any more", name(is), slot.cell()));
    let given = has.iter().filter(|slot| !is_in(had, slot));
    let given = given.map(|slot| format!("{} is used by {}", name(is), slot.cell()));
    released.chain(given).collect()
}

/// Returns whether a slot has the same holder in two looks, as far as both know it: a kubelet that does not answer names no Pods.
fn is_same(one: &UsedSlot, other: &UsedSlot) -> bool {
    let is_known = one.has_known_pods && other.has_known_pods;
    let has_same_node = one.slot == other.slot && one.node == other.node;
    has_same_node && (!is_known || one.cell() == other.cell())
}

/// Returns the names of the device and of its Instance.
fn name(device: &Device) -> String {
    if device.device == device.instance {
        device.instance.clone()
    } else {
        format!("{} ({})", device.device, device.instance)
    }
}

#[cfg(test)]
pub(super) mod tests;
