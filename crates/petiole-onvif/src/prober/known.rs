//! A device that has answered, and what it has answered from each of its addresses. Pure.
use crate::message::{ADDRESSES_MAX, Endpoint, Sequence, Spelling};
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// The port of WS-Discovery.
pub(super) const PORT: u16 = 3702;
/// The most addresses from which one device answers. Beyond it: answers from further ones are ignored.
const SOURCES_MAX: usize = 4;

/// A device that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its endpoint reference, such as `urn:uuid:…`.
    pub endpoint: String,
    /// Its scopes.
    pub scopes: Vec<String>,
    /// The addresses of its service, as it says them.
    pub xaddrs: Vec<String>,
    /// The addresses from which it has answered, with the port of WS-Discovery.
    pub sources: Vec<SocketAddr>,
    /// Another number means that it is to be asked again: it was restarted, or has changed.
    pub generation: u64,
}

impl Device {
    /// Returns the UUID of its endpoint reference, or the whole reference if it has another form.
    pub fn uuid(&self) -> &str {
        let uuid = self.endpoint.strip_prefix("urn:uuid:");
        uuid.or_else(|| self.endpoint.strip_prefix("uuid:"))
            .unwrap_or(&self.endpoint)
    }
}

#[derive(Debug, Clone)]
struct Heard {
    at: Duration,
    xaddrs: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) device: Arc<Device>,
    heard: BTreeMap<SocketAddr, Heard>,
    pub(super) heard_at: Duration,
    /// The rounds since its last answer.
    pub(super) unanswered: u32,
    pub(super) sequence: Option<Sequence>,
    /// The spelling that it answered last.
    spelling: Option<Spelling>,
    metadata_version: Option<u64>,
}

/// A description that came from an address.
pub(super) struct Answer {
    pub(super) source: SocketAddr,
    pub(super) endpoint: Endpoint,
    pub(super) sequence: Option<Sequence>,
    pub(super) spelling: Option<Spelling>,
    /// True if the device says that it has begun anew.
    pub(super) is_restart: bool,
}

impl Known {
    pub(super) fn new(answer: Answer, now: Duration) -> Self {
        let mut known = Self {
            device: Arc::new(Device {
                endpoint: answer.endpoint.address.clone(),
                scopes: vec![],
                xaddrs: vec![],
                sources: vec![],
                generation: 0,
            }),
            heard: BTreeMap::new(),
            heard_at: now,
            unanswered: 0,
            sequence: None,
            spelling: None,
            metadata_version: answer.endpoint.metadata_version,
        };
        known.hear(answer, now);
        known
    }

    /// Takes an answer. Returns whether the device is another one than before.
    pub(super) fn hear(&mut self, answer: Answer, now: Duration) -> bool {
        let Answer {
            source,
            endpoint,
            sequence,
            spelling,
            is_restart,
        } = answer;
        self.sequence = sequence.or(self.sequence);
        self.spelling = spelling.or(self.spelling);
        let is_free = self.heard.len() < SOURCES_MAX || self.heard.contains_key(&source);
        if !is_free {
            return false;
        }
        self.heard_at = now;
        self.unanswered = 0;
        let heard = self.heard.entry(source).or_insert(Heard {
            at: now,
            xaddrs: vec![],
        });
        heard.at = now;
        if !endpoint.xaddrs.is_empty() {
            heard.xaddrs = endpoint.xaddrs;
        }
        let version = endpoint.metadata_version.or(self.metadata_version);
        let is_new = is_restart || version != self.metadata_version;
        self.metadata_version = version;
        if endpoint.scopes.is_empty() {
            return self.describe(self.device.scopes.clone(), is_new);
        }
        self.describe(endpoint.scopes, is_new)
    }

    /// Returns the same device, which has answered. From an address that it had not it is another one, for which there is no room.
    pub(super) fn heard_again(mut self, source: SocketAddr, now: Duration) -> Self {
        if let Some(heard) = self.heard.get_mut(&source) {
            heard.at = now;
            (self.heard_at, self.unanswered) = (now, 0);
        }
        self
    }

    /// Returns how many bytes of texts, and of what holds them, it has.
    pub(super) fn bytes(&self) -> usize {
        const DEVICE: usize = 512;
        const FIELD: usize = 24;
        let texts = |all: &[String]| all.iter().map(|text| text.len() + FIELD).sum::<usize>();
        let heard = self
            .heard
            .values()
            .map(|heard| texts(&heard.xaddrs) + DEVICE / 4);
        let Device {
            endpoint,
            scopes,
            xaddrs,
            ..
        } = &*self.device;
        DEVICE + 2 * endpoint.len() + texts(scopes) + texts(xaddrs) + heard.sum::<usize>()
    }

    /// Forgets the addresses from which nothing has come since `since`, if it has others.
    pub(super) fn forget_sources(&mut self, since: Duration) -> bool {
        if self.heard_at < since {
            return false;
        }
        self.heard.retain(|_, heard| heard.at >= since);
        self.describe(self.device.scopes.clone(), false)
    }

    /// Takes over what is said. Devices do not always say it in the same order, which is no news.
    fn describe(&mut self, mut scopes: Vec<String>, is_new: bool) -> bool {
        scopes.sort();
        let mut xaddrs: Vec<String> = vec![];
        for address in self.heard.values().flat_map(|heard| &heard.xaddrs) {
            if xaddrs.len() < ADDRESSES_MAX && !xaddrs.contains(address) {
                xaddrs.push(address.clone());
            }
        }
        xaddrs.sort();
        let mut now = Device {
            endpoint: self.device.endpoint.clone(),
            scopes,
            xaddrs,
            sources: self.heard.keys().copied().collect(),
            generation: self.device.generation,
        };
        if !is_new && now == *self.device {
            return false;
        }
        now.generation += 1;
        self.device = Arc::new(now);
        true
    }

    /// Returns the spelling in which it is asked at its own address.
    pub(super) fn next_spelling(&self) -> Spelling {
        let other = Spelling::ALL.iter().cycle().nth(self.unanswered as usize);
        self.spelling.or(other.copied()).unwrap_or(Spelling::Any)
    }

    /// Returns whether messages from this address may be its own.
    pub(super) fn is_at(&self, ip: IpAddr) -> bool {
        let is_said = |address: &String| {
            crate::url::Url::parse(address).is_some_and(|url| url.ip() == Some(ip))
        };
        self.heard.keys().any(|source| source.ip() == ip) || self.device.xaddrs.iter().any(is_said)
    }
}

/// Returns the address to which a probe for the sender goes.
pub(super) fn probed(mut source: SocketAddr) -> SocketAddr {
    source.set_port(PORT);
    if let SocketAddr::V6(v6) = &mut source {
        v6.set_flowinfo(0);
    }
    source
}
