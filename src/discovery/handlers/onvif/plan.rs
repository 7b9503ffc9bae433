//! Which cameras to ask and when, and what is offered of what they say. Pure.
use super::{
    super::problems::{problem, such_as},
    details::{Details, Identity},
    said::Said,
};
use crate::{
    backoff,
    model::device::{Device, DeviceSet},
};
use ipnet::IpNet;
use petiole_onvif::{Device as Found, Facts, Failure, Url, candidates, scope_values};
use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

/// The most cameras that are asked at the same time. Beyond it: further ones wait.
const ASKED_AT_ONCE_MAX: usize = 32;
/// The most cameras among these that have not answered before, so that slow ones hold up nobody. Beyond it: further ones wait.
const SLOW_AT_ONCE_MAX: usize = 8;
/// The time after which a camera is asked again.
const REFRESH: Duration = Duration::from_mins(10);
/// The shortest time between two conversations with cameras of which nothing new is known: each sends some 20 packets, and a node sends
/// 2 in a second at most.
const BETWEEN_REFRESHES: Duration = Duration::from_secs(30);
/// The shortest time between two conversations with a camera.
const BETWEEN: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// The failures in a row after which what a camera has said before is not believed any more.
const FAILURES: u32 = 3;

/// A conversation to begin.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) camera: Arc<Found>,
    pub(super) urls: Vec<Url>,
}

/// The result of a conversation.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) result: Result<Facts, Failure>,
    /// The MAC address, if it is known.
    pub(super) mac: Option<String>,
}

#[derive(Debug)]
struct Tracked {
    camera: Arc<Found>,
    /// When to ask it next; `None` while it is asked.
    due: Option<Duration>,
    asked_at: Option<Duration>,
    /// The generation of the camera that was asked last.
    asked: Option<u64>,
    failures: u32,
    failure: Option<Failure>,
    said: Option<Said>,
}

impl Tracked {
    /// Counts a failure, and asks again after a while.
    fn fail(&mut self, now: Duration) {
        self.due = Some(now + backoff::after(self.failures, FIRST_RETRY, LAST_RETRY));
        self.failures += 1;
    }
}

/// The cameras of a discovery.
pub(super) struct Catalog {
    details: Arc<Details>,
    /// The networks of this machine, and those that are probed.
    near: Vec<IpNet>,
    /// When the next camera is asked of which nothing new is known.
    next_refresh: Duration,
    cameras: BTreeMap<String, Tracked>,
    has_changed: bool,
}

/// Returns whether the filters select a camera. One whose MAC address is not known is not selected by a filter of these,
/// whatever it says: only its credentials might tell it, and they are for selected cameras.
pub(super) fn takes(details: &Details, camera: &Found, url: &Url, mac: Option<&str>) -> bool {
    let takes_mac = match mac {
        Some(mac) => details.mac_addresses.takes([mac]),
        None => details.mac_addresses.is_empty(),
    };
    // Some identities are told to users only.
    let id = id(details.identity, camera, url, mac);
    let takes_id = id.is_none_or(|id| details.only.takes(&id));
    is_wanted(details, camera) && takes_url(details, url) && takes_mac && takes_id
}

/// Returns the identity of a camera, unless it is the serial number.
fn id(identity: Identity, camera: &Found, url: &Url, mac: Option<&str>) -> Option<String> {
    match identity {
        Identity::Url => Some(format!("{url}-{}", camera.uuid())),
        Identity::Endpoint => Some(camera.uuid().to_owned()),
        Identity::Mac => mac.map(str::to_owned),
        Identity::Serial => None,
    }
}

/// Returns whether the filters that need no conversation select a camera.
fn is_wanted(details: &Details, camera: &Found) -> bool {
    let scopes = camera.scopes.iter().map(String::as_str);
    details.uuids.takes([camera.uuid()]) && details.scopes.takes(scopes)
}

fn takes_url(details: &Details, url: &Url) -> bool {
    url.ip()
        .is_some_and(|ip| details.ip_addresses.takes_address(ip))
}

impl Catalog {
    pub(super) fn new(details: Arc<Details>) -> Self {
        Self {
            details,
            near: vec![],
            next_refresh: Duration::ZERO,
            cameras: BTreeMap::new(),
            has_changed: true,
        }
    }

    /// Sets the networks of this machine's interfaces.
    pub(super) fn set_near(&mut self, links: Vec<IpNet>) {
        let subnets = self.details.probing.subnets.iter().copied();
        self.near = links.into_iter().chain(subnets.map(IpNet::V4)).collect();
    }

    /// Sets the cameras that are there.
    pub(super) fn set_cameras<'a>(
        &mut self,
        cameras: impl Iterator<Item = &'a Arc<Found>>,
        now: Duration,
    ) {
        let mut before = std::mem::take(&mut self.cameras);
        for camera in cameras.filter(|camera| is_wanted(&self.details, camera)) {
            let tracked = match before.remove(&camera.endpoint) {
                Some(mut tracked) => {
                    if tracked.camera.generation != camera.generation {
                        let soon = tracked.asked_at.map_or(now, |at| now.max(at + BETWEEN));
                        tracked.due = tracked.due.map(|due| due.min(soon));
                    }
                    tracked.camera = camera.clone();
                    tracked
                }
                None => Tracked {
                    camera: camera.clone(),
                    due: Some(now),
                    asked_at: None,
                    asked: None,
                    failures: 0,
                    failure: None,
                    said: None,
                },
            };
            self.cameras.insert(camera.endpoint.clone(), tracked);
        }
        self.has_changed = true;
    }

    /// Returns the conversations to begin while `running` are going on.
    pub(super) fn start(&mut self, running: usize, now: Duration) -> Vec<Job> {
        let is_slow = |tracked: &Tracked| tracked.failures > 0;
        let asked = self.cameras.values().filter(|t| t.due.is_none());
        let mut slow = asked.filter(|tracked| is_slow(tracked)).count();
        let mut due: Vec<&mut Tracked> = self.cameras.values_mut().collect();
        due.retain(|tracked| tracked.due.is_some_and(|due| due <= now));
        due.sort_by_key(|tracked| tracked.due);
        let mut jobs = vec![];
        for tracked in due {
            if running + jobs.len() >= ASKED_AT_ONCE_MAX {
                break;
            }
            if is_slow(tracked) {
                slow += 1;
                if slow > SLOW_AT_ONCE_MAX {
                    continue;
                }
            }
            let has_news = tracked.failures > 0 || tracked.asked != Some(tracked.camera.generation);
            if !has_news && now < self.next_refresh {
                continue;
            }
            let is_near = |ip: IpAddr| {
                let mut networks = self.near.iter();
                networks.any(|net| net.contains(&ip) && net.addr() != ip)
            };
            let camera = tracked.camera.clone();
            let mut urls = candidates(&camera.xaddrs, &camera.sources, is_near);
            urls.retain(|url| takes_url(&self.details, url));
            if urls.is_empty() && !self.details.ip_addresses.is_empty() {
                // The filter leaves it out.
                tracked.due = Some(now + REFRESH);
                tracked.said = None;
                tracked.asked_at = Some(now);
                continue;
            }
            // An address that works stays the camera's own, also where it is slow once.
            if let Some(Said { facts, .. }) = &tracked.said {
                urls.sort_by_key(|url| *url != facts.url);
                if tracked.failures + 1 < FAILURES && urls.first() == Some(&facts.url) {
                    urls.truncate(1);
                }
            }
            if !has_news {
                self.next_refresh = now + BETWEEN_REFRESHES;
            }
            tracked.due = None;
            jobs.push(Job { camera, urls });
        }
        jobs
    }

    /// Takes the end of a conversation.
    pub(super) fn finished(&mut self, camera: &Found, outcome: Outcome, now: Duration) {
        let Some(tracked) = self.cameras.get_mut(&camera.endpoint) else {
            return;
        };
        self.has_changed = true;
        tracked.asked_at = Some(now);
        tracked.asked = Some(camera.generation);
        match outcome.result {
            Ok(facts) => {
                let mut said = Said {
                    facts,
                    mac: outcome.mac,
                };
                // Credentials that it has refused are not sent again soon.
                let is_lacking = tracked.failures + 1 < FAILURES
                    && !said.facts.has_refused_credentials
                    && match &tracked.said {
                        Some(before) => said.complete(before),
                        None => !said.facts.failed.is_empty(),
                    };
                if is_lacking {
                    tracked.fail(now);
                } else {
                    tracked.failures = 0;
                    tracked.due = Some(now + REFRESH);
                }
                tracked.failure = None;
                tracked.said = Some(said);
            }
            Err(failure) => {
                tracked.fail(now);
                tracked.failure = Some(failure);
                if tracked.failures >= FAILURES {
                    tracked.said = None;
                }
            }
        }
        if tracked.camera.generation != camera.generation {
            tracked.due = tracked.due.map(|due| due.min(now + BETWEEN));
        }
    }

    /// Returns when a conversation is due.
    pub(super) fn wake(&self, now: Duration) -> Option<Duration> {
        let due = self.cameras.values().filter_map(|tracked| tracked.due);
        // What is late waits for the end of another conversation, or for its turn.
        let all = due.chain([self.next_refresh]);
        all.filter(|due| *due > now).min()
    }

    /// Returns whether devices or problems may be others than at the last call.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Returns whether every camera has answered, or failed as often as one that is known may.
    pub(super) fn is_settled(&self) -> bool {
        self.cameras
            .values()
            .all(|tracked| tracked.asked_at.is_some() && !(1..FAILURES).contains(&tracked.failures))
    }

    /// Returns the offered devices and the problems.
    pub(super) fn devices(&self) -> DeviceSet {
        let mut problems = vec![];
        let mut devices: BTreeMap<_, Arc<Device>> = BTreeMap::new();
        let (mut nameless, mut hidden) = (vec![], vec![]);
        for tracked in self.cameras.values() {
            let uuid = tracked.camera.uuid();
            if let Some(failure) = &tracked.failure {
                problems.push(problem(format!("camera {uuid}: {failure}: {UNREACHABLE}")));
            }
            let Some(Said { facts, mac }) = &tracked.said else {
                continue;
            };
            if facts.has_refused_credentials {
                let url = &facts.url;
                problems.push(format!(
                    "camera {uuid} at {url} refuses the credentials: {REFUSED}"
                ));
            }
            let mut failed = facts.failed.iter();
            if let Some(failure) = failed.find(|failure| STREAMS.contains(&failure.call)) {
                problems.push(problem(format!("camera {uuid}: {failure}: {NO_STREAMS}")));
            }
            if mac.is_none() && !self.details.mac_addresses.is_empty() {
                hidden.push(uuid);
                continue;
            }
            if !takes(&self.details, &tracked.camera, &facts.url, mac.as_deref()) {
                continue;
            }
            let Some(id) = self.id(&tracked.camera, facts, mac.as_deref()) else {
                nameless.push(uuid);
                continue;
            };
            let device = device(id, &tracked.camera, facts, mac.as_deref());
            if devices.contains_key(&device.id) {
                problems.push(format!(
                    "camera {uuid} is left out: another one has its identity {}: {TWINS}",
                    device.id
                ));
                continue;
            }
            devices.insert(device.id.clone(), Arc::new(device));
        }
        for (cameras, why) in [(hidden, NO_MAC), (nameless, NO_IDENTITY)] {
            let (count, first) = (cameras.len(), cameras.first());
            problems.extend(such_as(count, first, "cameras are left out", why));
        }
        self.details.only.of(DeviceSet {
            devices,
            problems,
            ..DeviceSet::default()
        })
    }

    fn id(&self, camera: &Found, facts: &Facts, mac: Option<&str>) -> Option<String> {
        let information = facts.information.as_ref();
        let serial = information.map(|i| i.serial.clone());
        let serial = serial.filter(|serial| !serial.is_empty());
        let told = id(self.details.identity, camera, &facts.url, mac);
        told.or(serial.filter(|_| self.details.identity == Identity::Serial))
    }
}

const UNREACHABLE: &str = "it answers to probes and is asked again; look whether its ONVIF service is on and whether this node reaches it";
const REFUSED: &str = "correct username_<uuid> and password_<uuid>, or those of default, in discoveryProperties; it is asked again in 10 minutes or more";
/// The calls that are made for `streams` alone.
const STREAMS: [&str; 3] = ["GetCapabilities", "GetProfiles", "GetStreamUri"];
const NO_STREAMS: &str = "some of its streams are not known; let its user read media profiles, or leave out `streams`; it is asked again in 10 minutes or more";
const TWINS: &str = "set `identity` to another property";
const NO_MAC: &str = "their MAC addresses are not known, because they are in no network of this node, and `macAddresses` selects; select \
                      them by `ipAddresses` or `uuids`";
const NO_IDENTITY: &str =
    "what `identity` names is not known of them; give credentials, or set `identity` to endpoint";

fn device(id: String, camera: &Found, facts: &Facts, mac: Option<&str>) -> Device {
    let mut device = Device::new(id);
    let mut set = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            device
                .properties
                .insert(format!("ONVIF_DEVICE_{name}"), value);
        }
    };
    let scope = |kind| {
        let mut values = scope_values(&camera.scopes, kind);
        values.truncate(4);
        Some(values.join(", "))
    };
    set("SERVICE_URL", Some(facts.url.to_string()));
    set("UUID", Some(camera.uuid().to_owned()));
    set("IP_ADDRESS", facts.url.ip().map(|ip| ip.to_string()));
    set("MAC_ADDRESS", mac.map(str::to_owned));
    set("NAME", scope("name"));
    set("HARDWARE", scope("hardware"));
    set("LOCATION", scope("location"));
    set("PROFILES", scope("Profile"));
    if let Some(information) = &facts.information {
        set("MANUFACTURER", Some(information.manufacturer.clone()));
        set("MODEL", Some(information.model.clone()));
        set("SERIAL_NUMBER", Some(information.serial.clone()));
    }
    for (number, stream) in facts.streams.iter().enumerate() {
        set(&format!("STREAM_URI_{number}"), Some(stream.uri.clone()));
        let profile = Some(stream.profile.clone());
        set(&format!("STREAM_PROFILE_{number}"), profile);
    }
    device.connection = ["ONVIF_DEVICE_SERVICE_URL".to_owned()].into();
    device
}

#[cfg(test)]
mod tests;
