//! The only file that knows mdns-sd: its events become our own at once, its pitfalls end here.
//!
//! One daemon (a thread and two sockets) for each browse: a daemon keeps one listener a type, and what a new daemon
//! says comes from the network, not from a cache that nobody kept while the old browse was closed.
use super::{
    environment::Txt,
    interfaces::Interfaces,
    plan::Event,
    service::{Address, Service},
};
use crate::discovery::DiscoveryError;
use mdns_sd::{
    DaemonEvent, Error, IfKind, IfPredicate, Receiver, ResolvedService, ScopedIp, ServiceDaemon,
    ServiceEvent,
};
use std::time::Duration;

/// How often the daemon looks for interfaces that came or went.
const INTERFACE_CHECK_SECONDS: u32 = 2;
/// RFC 6762 10.4 suggests 10 s; with two questions a second apart, five leave room for a sleepy device and keep a
/// silent death within 30 s.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(5);

/// A browse that runs until dropped.
pub(super) struct Browser {
    daemon: ServiceDaemon,
    name: String,
    events: Receiver<ServiceEvent>,
    /// Takes the place of `events` when that has ended.
    next_events: Option<Receiver<ServiceEvent>>,
    monitor: Receiver<DaemonEvent>,
    /// Whether the daemon has said which interfaces it uses.
    started: bool,
}

impl Browser {
    /// Starts to browse for `name`, such as `_http._tcp.local.`
    pub(super) fn start(name: &str, interfaces: &Interfaces) -> Result<Self, DiscoveryError> {
        Self::try_start(name, interfaces).map_err(|e| {
            DiscoveryError(format!(
                "mDNS browse for {name} cannot start: {e}; are threads or file descriptors used up?"
            ))
        })
    }

    fn try_start(name: &str, interfaces: &Interfaces) -> Result<Self, Error> {
        let daemon = ServiceDaemon::new()?;
        let monitor = daemon.monitor()?;
        daemon.set_ip_check_interval(INTERFACE_CHECK_SECONDS)?;
        let interfaces = interfaces.clone();
        let unused = IfPredicate::new(move |interface| !interfaces.uses(&interface.name));
        // Before the browse, so that not one query leaves by an interface that was denied.
        daemon.disable_interface(IfKind::Predicate(unused))?;
        let events = daemon.browse(name)?;
        Ok(Self {
            daemon,
            name: name.to_owned(),
            events,
            next_events: None,
            monitor,
            started: false,
        })
    }

    /// The next event. After [`Event::Lapsed`] there is none. Safe to cancel.
    pub(super) async fn next(&mut self) -> Result<Event, DiscoveryError> {
        loop {
            let event = tokio::select! {
                event = self.events.recv_async() => event,
                Ok(event) = self.monitor.recv_async() => { log(&event); continue }
            };
            let Ok(event) = event else {
                match self.next_events.take() {
                    Some(events) => self.events = events,
                    None => return Ok(Event::Lapsed),
                }
                continue;
            };
            if let Some(event) = self.translate(event)? {
                return Ok(event);
            }
        }
    }

    /// An event that is there already. The daemon closes a subscription that is a thousand events behind, so they
    /// are taken before anything else is done.
    pub(super) fn next_ready(&mut self) -> Result<Option<Event>, DiscoveryError> {
        while let Ok(event) = self.events.try_recv() {
            if let Some(event) = self.translate(event)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Asks for the services that are known by name, but whose details did not come or were not confirmed. The daemon
    /// does so for none that it had resolved before, except in a new browse; what it knows, it repeats.
    pub(super) fn look_again(&mut self) {
        // The place is taken as long as nobody read the events of the look before; and a browse that has lapsed must
        // be seen as such, not be carried on.
        if self.next_events.is_some() || self.events.is_disconnected() {
            return;
        }
        match self.daemon.browse(&self.name) {
            Ok(events) => self.next_events = Some(events),
            Err(error) => tracing::debug!(%error, "not looked again, the next time comes"),
        }
    }

    /// Asks a service whether it is there; without an answer an [`Event::Removed`] follows.
    pub(super) fn verify(&self, fullname: String) {
        if let Err(error) = self.daemon.verify(fullname, VERIFY_TIMEOUT) {
            tracing::debug!(%error, "service not verified, its next turn comes");
        }
    }

    fn translate(&mut self, event: ServiceEvent) -> Result<Option<Event>, DiscoveryError> {
        Ok(match event {
            ServiceEvent::ServiceResolved(service) => {
                Some(Event::Resolved(Box::new(from_resolved(&service))))
            }
            ServiceEvent::ServiceRemoved(_, fullname) => Some(Event::Removed(fullname)),
            ServiceEvent::SearchStarted(text) => {
                // Said at every repetition of the query; an interface may well go away later and come back.
                if !std::mem::replace(&mut self.started, true) {
                    started(&text)?;
                }
                None
            }
            ServiceEvent::SearchStopped(_) => Some(Event::Lapsed),
            ServiceEvent::ServiceFound(..) | _ => None,
        })
    }
}

impl Drop for Browser {
    /// Dropping its handle does not end the daemon's thread.
    fn drop(&mut self) {
        for _ in 0..100 {
            match self.daemon.shutdown() {
                // The queue of commands is full for a moment.
                Err(Error::Again) => std::thread::yield_now(),
                Ok(_) | Err(_) => return,
            }
        }
        tracing::warn!("an mDNS daemon did not take its shutdown: its thread stays");
    }
}

/// A daemon that could not open its sockets says so nowhere else than here, by having no interface.
fn started(text: &str) -> Result<(), DiscoveryError> {
    tracing::debug!(browse = text, "mDNS browse started");
    if !text.contains(" on 0 interfaces ") {
        return Ok(());
    }
    Err(DiscoveryError(
        "no network interface to browse mDNS on: every interface is down or left out by `interfaces`, \
         or another program holds UDP port 5353 for itself"
            .into(),
    ))
}

fn log(event: &DaemonEvent) {
    match event {
        DaemonEvent::Error(error) => tracing::warn!(%error, "mDNS"),
        DaemonEvent::IpAdd(address) => tracing::info!(%address, "mDNS browses on a new address"),
        DaemonEvent::IpDel(address) => tracing::debug!(%address, "mDNS lost an address"),
        // These are about services that we would publish ourselves.
        DaemonEvent::Announce(..) | DaemonEvent::NameChange(_) | DaemonEvent::Respond(_) | _ => {}
    }
}

fn from_resolved(service: &ResolvedService) -> Service {
    let addresses = service.addresses.iter().filter_map(|scoped| {
        let interface = match scoped {
            ScopedIp::V6(v6) => v6.scope_id().name.as_str(),
            ScopedIp::V4(_) | _ => "",
        };
        Address::new(scoped.to_ip_addr(), interface)
    });
    let txt = service.txt_properties.iter().map(|property| Txt {
        key: property.key().to_owned(),
        value: property.val().map(<[u8]>::to_vec),
    });
    Service {
        fullname: service.fullname.clone(),
        host: service.host.clone(),
        port: service.port,
        addresses: addresses.collect(),
        txt: txt.collect(),
    }
}
