//! Converts the services of the querier, which come as whole maps, into single events for the tracker. Pure.
use super::{address::is_same, environment::Txt, plan::Event, service::Service};
use crate::model::networks::is_of_cloud;
use petiole_mdns::{Address, Found, LeftOut, Name};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The services that the tracker knows.
pub(super) struct KnownServices {
    /// The service that has each full name. Names whose labels have other borders may have the same text: the first one
    /// known is the device, and the others wait until it is gone.
    holders: BTreeMap<String, (Name, Arc<petiole_mdns::Service>)>,
    leaves_out: Option<LeftOut>,
    /// The most new and changed services that one call takes over.
    at_once: usize,
    /// The service that was taken over last, if others wait.
    last: Option<Name>,
    is_behind: bool,
}

impl KnownServices {
    pub(super) fn new(at_once: usize) -> Self {
        Self {
            holders: BTreeMap::new(),
            leaves_out: None,
            at_once,
            last: None,
            is_behind: false,
        }
    }

    /// Returns whether the last call left changes for the next one.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Lets these services count as changed, by their full names: the next calls return them again.
    pub(super) fn look_again(&mut self, is_wanted: impl Fn(&str) -> bool) {
        for (text, (_, service)) in &mut self.holders {
            if is_wanted(text) {
                *service = Arc::new(service.as_ref().clone());
            }
        }
    }

    /// Returns the changes in `found`. A service whose name is not text is ignored, because a device's id and its
    /// environment are text.
    pub(super) fn events(&mut self, found: &Found) -> Vec<Event> {
        let mut gone = BTreeSet::new();
        self.holders.retain(|text, (name, before)| {
            let now = found.services.get(name);
            // A service that is announced again in another case is another device.
            let stays = now.is_some_and(|now| {
                Arc::ptr_eq(now, before) || now.name.text().as_ref() == Some(text)
            });
            if !stays {
                gone.insert(text.clone());
            }
            stays
        });
        let mut resolved = vec![];
        for (name, service) in self.next(found) {
            let Some(text) = service.name.text() else {
                continue;
            };
            let new = || (name.clone(), service.clone());
            let (holder, held) = self.holders.entry(text.clone()).or_insert_with(new);
            if holder == name {
                *held = service.clone();
                resolved.extend(service_of(text, service));
            }
        }
        for service in &resolved {
            gone.remove(&service.fullname);
        }
        let mut events: Vec<Event> = gone.into_iter().map(Event::Removed).collect();
        events.extend(resolved.into_iter().map(Box::new).map(Event::Resolved));
        if std::mem::replace(&mut self.leaves_out, found.leaves_out) != found.leaves_out {
            events.push(Event::LeavesOut(found.leaves_out));
        }
        events
    }

    /// Returns the new and changed services whose turn it is: the first of those that come after the last one, so that
    /// services that change all the time keep no other waiting.
    fn next<'a>(&mut self, found: &'a Found) -> Vec<(&'a Name, &'a Arc<petiole_mdns::Service>)> {
        let is_changed = |(name, service): &(&Name, &Arc<petiole_mdns::Service>)| {
            let text = service.name.text();
            text.is_some_and(|text| match self.holders.get(&text) {
                Some((holder, before)) => holder == *name && !Arc::ptr_eq(before, service),
                None => true,
            })
        };
        let is_later = |(name, _): &(&Name, _)| self.last.as_ref().is_none_or(|last| *name > last);
        let changed = found.services.iter().filter(is_changed);
        let (mut next, earlier): (Vec<_>, Vec<_>) = changed.partition(is_later);
        next.extend(earlier);
        self.is_behind = next.len() > self.at_once;
        next.truncate(self.at_once);
        let last = next.last().filter(|_| self.is_behind);
        self.last = last.map(|(name, _)| (*name).clone());
        next
    }
}

fn service_of(fullname: String, service: &petiole_mdns::Service) -> Option<Service> {
    let mut addresses: Vec<Address> = vec![];
    // Anyone on the LAN can announce an address, and a broker would send to a cloud's service what is for the device.
    for found in service.addresses.iter().filter(|a| !is_of_cloud(a.ip)) {
        // An address on several interfaces counts once. It is on the link if it is on the link of any of them.
        match addresses.iter_mut().find(|known| is_same(known, found)) {
            Some(same) => same.is_on_link |= found.is_on_link,
            None => addresses.push(found.clone()),
        }
    }
    let txt = service.txt_entries().into_iter().map(|(key, value)| Txt {
        key: key.to_owned(),
        value: value.map(<[u8]>::to_vec),
    });
    Some(Service {
        fullname,
        host: service.host.text()?,
        port: service.port,
        addresses,
        txt: txt.collect(),
        source: service.source,
        twin: service.twin.as_ref().and_then(Name::text),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::address::text, *};

    fn named(text: &str) -> Name {
        Name::from_dotted(text).unwrap()
    }

    fn service(name: &str, port: u16) -> (Name, Arc<petiole_mdns::Service>) {
        let name = Name::from_labels([name.as_bytes(), b"_t", b"_tcp", b"local"]).unwrap();
        let service = petiole_mdns::Service {
            name: name.clone(),
            host: named("h.local"),
            port,
            addresses: vec![],
            txt: Arc::from([]),
            source: [10, 0, 0, 1].into(),
            twin: None,
        };
        (name, Arc::new(service))
    }

    fn found(services: &[(Name, Arc<petiole_mdns::Service>)]) -> Found {
        Found {
            services: services.iter().cloned().collect(),
            ..Found::default()
        }
    }

    fn story(events: Vec<Event>) -> Vec<String> {
        let reported = |event| match event {
            Event::Resolved(service) => format!("{} at {}", service.fullname, service.port),
            Event::Removed(fullname) => format!("{fullname} gone"),
            Event::LeavesOut(leaves) => format!("leaves out: {leaves:?}"),
        };
        events.into_iter().map(reported).collect()
    }

    #[test]
    fn only_what_has_changed_is_reported() {
        let mut known = KnownServices::new(usize::MAX);
        let (a, b, moved) = (service("a", 1), service("b", 1), service("b", 2));
        let first = known.events(&found(&[a.clone(), b]));
        assert_eq!(
            story(first),
            ["a._t._tcp.local. at 1", "b._t._tcp.local. at 1"]
        );
        let second = known.events(&found(&[a.clone(), moved.clone()]));
        assert_eq!(story(second), ["b._t._tcp.local. at 2"]);
        let third = known.events(&Found {
            leaves_out: Some(LeftOut::Total),
            ..found(&[moved])
        });
        assert_eq!(
            story(third),
            ["a._t._tcp.local. gone", "leaves out: Some(Total)"]
        );
    }

    #[test]
    fn a_service_is_returned_again_if_that_is_wished() {
        let mut known = KnownServices::new(usize::MAX);
        let both = found(&[service("a", 1), service("b", 1)]);
        known.events(&both);
        known.look_again(|fullname| fullname.starts_with('b'));
        assert_eq!(story(known.events(&both)), ["b._t._tcp.local. at 1"]);
        assert_eq!(story(known.events(&both)), [""; 0]);
        known.look_again(|_| true);
        assert_eq!(
            story(known.events(&found(&[]))),
            ["a._t._tcp.local. gone", "b._t._tcp.local. gone"]
        );
    }

    #[test]
    fn changes_are_taken_over_in_portions_and_services_that_change_all_the_time_keep_none_waiting()
    {
        let mut known = KnownServices::new(2);
        let names = ["a", "b", "c", "d", "e"];
        let mut order = String::new();
        for turn in 1..=5 {
            // The first two change before every turn.
            let at = |name: &&str| service(name, if *name < "c" { turn } else { 1 });
            let found = found(&names.iter().map(at).collect::<Vec<_>>());
            let events = story(known.events(&found));
            assert!(known.is_behind(), "turn {turn}");
            order.extend(events.iter().map(|event| &event[..1]));
        }
        assert_eq!(order, "abcdeabcde");
        let events = known.events(&found(&[]));
        assert_eq!((events.len(), known.is_behind()), (5, false));
    }

    #[test]
    fn a_service_that_returns_in_another_case_is_another_device_and_the_first_goes() {
        let mut known = KnownServices::new(usize::MAX);
        known.events(&found(&[service("Porch", 1)]));
        let events = known.events(&found(&[service("porch", 1)]));
        assert_eq!(
            story(events),
            ["Porch._t._tcp.local. gone", "porch._t._tcp.local. at 1"]
        );
    }

    #[test]
    fn a_name_of_the_same_text_with_other_labels_changes_nothing_and_takes_over_when_the_first_is_gone()
     {
        let camera = service("cam v1.2", 554);
        let (_, mut forged) = service("x", 666);
        let labels = [&b"cam v1"[..], b"2", b"_t", b"_tcp", b"local"];
        let name = Name::from_labels(labels).unwrap();
        Arc::make_mut(&mut forged).name = name.clone();
        let forged = (name, forged);
        let text = "cam v1.2._t._tcp.local.";
        let mut known = KnownServices::new(usize::MAX);
        let mut told = |services: &[_]| story(known.events(&found(services)));
        assert_eq!(
            told(std::slice::from_ref(&camera)),
            [format!("{text} at 554")]
        );
        assert_eq!(told(&[camera.clone(), forged.clone()]), [""; 0]);
        assert_eq!(told(std::slice::from_ref(&camera)), [""; 0]);
        assert_eq!(told(&[camera.clone(), forged.clone()]), [""; 0]);
        assert_eq!(
            told(std::slice::from_ref(&forged)),
            [format!("{text} at 666")]
        );
        assert_eq!(told(&[camera, forged]), [""; 0]);
        assert_eq!(told(&[]), [format!("{text} gone")]);
    }

    #[test]
    fn no_address_of_a_cloud_is_ever_used() {
        for (ips, expected) in [
            (
                &["169.254.169.254", "fd00:c1::a9fe:a9fe", "fe80::a9fe:a9fe"][..],
                &[][..],
            ),
            (
                &["::ffff:169.254.169.254", "169.254.20.10", "192.0.0.192"],
                &[],
            ),
            (
                &["169.254.170.2", "10.0.0.7", "168.63.129.16"],
                &["10.0.0.7"],
            ),
        ] {
            let (name, mut service) = service("cam", 80);
            let address = |ip: &&str| Address {
                ip: ip.parse().unwrap(),
                interface: "eth0".into(),
                network: None,
                is_on_link: true,
            };
            Arc::make_mut(&mut service).addresses = ips.iter().map(address).collect();
            let events = KnownServices::new(usize::MAX).events(&found(&[(name, service)]));
            let [Event::Resolved(service)] = &events[..] else {
                panic!("{events:?}");
            };
            let used = service.addresses.iter().map(text);
            assert_eq!(used.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn a_name_that_is_no_text_is_no_device() {
        let name = Name::from_labels([&b"\xff"[..], b"_t", b"_tcp", b"local"]).unwrap();
        let (_, mut service) = service("x", 1);
        Arc::make_mut(&mut service).name = name.clone();
        assert_eq!(
            story(KnownServices::new(usize::MAX).events(&found(&[(name, service)]))),
            [""; 0]
        );
    }
}
