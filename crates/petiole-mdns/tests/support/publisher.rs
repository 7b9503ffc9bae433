//! Publishes services on `lo` with an mDNS responder that shares no code with the browser under test: packets by
//! hickory-proto, a plain socket.
//!
//! It answers queries for its services, and behaves like real devices: goodbyes, silent deaths, changes, garbage.
use hickory_proto::{
    op::{Message, MessageType, OpCode},
    rr::{
        Name, RData, Record,
        rdata::{A, AAAA, PTR, SRV, TXT},
    },
};
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const PORT: u16 = 5353;
/// The most services of a packet, which keeps it below the size of an Ethernet frame, as responders do.
const SERVICES_A_PACKET: usize = 4;

/// A service and its records.
#[derive(Debug, Clone)]
pub struct Announced {
    pub name: String,
    pub service_type: String,
    pub subtype: Option<String>,
    pub host: String,
    pub port: u16,
    pub addresses: Vec<IpAddr>,
    pub txt: Vec<Vec<u8>>,
}

impl Announced {
    /// Creates a service of a host of its own at 127.0.0.1:8080.
    pub fn new(name: &str, service_type: &str) -> Self {
        let label = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        Self {
            name: name.into(),
            service_type: service_type.into(),
            subtype: None,
            host: format!("h-{}-{}", label(name), label(service_type)),
            port: 8080,
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            txt: vec![],
        }
    }

    pub fn fullname(&self) -> String {
        format!("{}.{}.local.", self.name, self.service_type)
    }

    pub fn at(mut self, addresses: &[&str]) -> Self {
        self.addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        self
    }

    pub fn txt(mut self, strings: &[&[u8]]) -> Self {
        self.txt = strings.iter().map(|s| s.to_vec()).collect();
        self
    }

    fn type_name(&self) -> Name {
        name(&format!("{}.local", self.service_type))
    }

    /// Returns the full name. The service's own name is one label, even if it contains dots.
    fn full_name(&self) -> Name {
        let own: &[u8] = self.name.as_bytes();
        Name::from_labels([own])
            .unwrap()
            .append_domain(&self.type_name())
            .unwrap()
    }

    fn pointers(&self, ttl: u32) -> Vec<Record> {
        let subtype = self.subtype.as_ref();
        let subtype = subtype.map(|s| name(&format!("{s}._sub.{}.local", self.service_type)));
        let pointer = |from| Record::from_rdata(from, ttl, RData::PTR(PTR(self.full_name())));
        [Some(self.type_name()), subtype]
            .into_iter()
            .flatten()
            .map(pointer)
            .collect()
    }

    fn details(&self, ttl: u32) -> Vec<Record> {
        let host = name(&format!("{}.local", self.host));
        let txt: Vec<&[u8]> = match self.txt.as_slice() {
            // An empty TXT record is one empty string (RFC 6763 6.1).
            [] => vec![b""],
            strings => strings.iter().map(Vec::as_slice).collect(),
        };
        let srv = RData::SRV(SRV::new(0, 0, self.port, host.clone()));
        let mut records = vec![
            Record::from_rdata(self.full_name(), ttl, srv),
            Record::from_rdata(self.full_name(), ttl, RData::TXT(TXT::from_bytes(txt))),
        ];
        records.extend(self.addresses.iter().map(|address| {
            let data = match address {
                IpAddr::V4(v4) => RData::A(A(*v4)),
                IpAddr::V6(v6) => RData::AAAA(AAAA(*v6)),
            };
            Record::from_rdata(host.clone(), ttl, data)
        }));
        for record in &mut records {
            record.mdns_cache_flush = true;
        }
        records
    }

    fn is_asked_for(&self, query: &Message) -> bool {
        // A record that the querier knows already is not sent again (RFC 6762 7.1).
        let known = |pointer: &Record| {
            query
                .answers
                .iter()
                .any(|a| a.name == pointer.name && a.data == pointer.data)
        };
        let mut pointers = self.pointers(0);
        pointers.retain(|pointer| !known(pointer));
        let details = self.details(0);
        let mut names = pointers.iter().chain(&details).map(|r| &r.name);
        names.any(|own| query.queries.iter().any(|q| q.name() == own))
    }
}

fn name(text: &str) -> Name {
    Name::from_utf8(format!("{text}.")).unwrap()
}

/// Returns a response with all records of the services.
pub fn packet<'a>(services: impl IntoIterator<Item = &'a Announced>, ttl: u32) -> Vec<u8> {
    let mut message = Message::new(0, MessageType::Response, OpCode::Query);
    message.metadata.authoritative = true;
    for service in services {
        message.answers.extend(service.pointers(ttl));
        // Records with a host name live 120 s (RFC 6762 10).
        message.answers.extend(service.details(ttl.min(120)));
    }
    message.to_vec().unwrap()
}

/// Answers until it is dropped.
pub struct Publisher {
    socket: UdpSocket,
    services: Arc<Mutex<Vec<Announced>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Answers for `services` without announcing them, as if they had been present for long.
    pub fn start(services: Vec<Announced>) -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST, services)
    }

    /// Does the same as another host, with an address of `lo`.
    pub fn start_at(host: Ipv4Addr, services: Vec<Announced>) -> Self {
        let socket = socket(host).expect("an mDNS socket on lo");
        let services = Arc::new(Mutex::new(services));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (socket, services, stop) =
                (socket.try_clone().unwrap(), services.clone(), stop.clone());
            move || answer(&socket, &services, &stop)
        });
        Self {
            socket,
            services,
            stop,
            thread: Some(thread),
        }
    }

    /// Announces a service. It replaces one of the same name.
    pub fn announce(&self, service: Announced) {
        self.announce_all(vec![service]);
    }

    pub fn announce_all(&self, new: Vec<Announced>) {
        let mut services = self.services.lock().unwrap();
        services.retain(|s| new.iter().all(|n| n.fullname() != s.fullname()));
        services.extend(new.clone());
        drop(services);
        send(&self.socket, &new);
    }

    /// Withdraws a service with a TTL of 0 (RFC 6762 10.1).
    pub fn goodbye(&self, fullname: &str) {
        let gone = self.take(fullname);
        self.send_raw(&packet(&gone, 0));
    }

    /// Withdraws a service without a goodbye, like a device that loses its power.
    pub fn die_silently(&self, fullname: &str) {
        self.take(fullname);
    }

    /// Answers again without an announcement, like a device after sleep.
    pub fn wake_up(&self, service: Announced) {
        self.services.lock().unwrap().push(service);
    }

    pub fn send_raw(&self, packet: &[u8]) {
        self.socket.send_to(packet, (GROUP, PORT)).unwrap();
    }

    fn take(&self, fullname: &str) -> Vec<Announced> {
        let mut services = self.services.lock().unwrap();
        let (gone, stay) = services.drain(..).partition(|s| s.fullname() == fullname);
        *services = stay;
        gone
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn socket(host: Ipv4Addr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    let any: SocketAddr = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT).into();
    socket.bind(&any.into())?;
    socket.join_multicast_v4(&GROUP, &Ipv4Addr::LOCALHOST)?;
    socket.set_multicast_if_v4(&host)?;
    socket.set_multicast_loop_v4(true)?;
    // The timeout bounds the time until a stop is noticed.
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    Ok(socket.into())
}

fn answer(socket: &UdpSocket, services: &Mutex<Vec<Announced>>, stop: &AtomicBool) {
    let mut buffer = [0; 9000];
    while !stop.load(Ordering::Relaxed) {
        let Ok(length) = socket.recv(&mut buffer) else {
            continue;
        };
        let Ok(message) = Message::from_vec(&buffer[..length]) else {
            continue;
        };
        if message.metadata.message_type != MessageType::Query {
            continue;
        }
        let services = services.lock().unwrap();
        let asked = services.iter().filter(|s| s.is_asked_for(&message));
        let asked: Vec<Announced> = asked.cloned().collect();
        drop(services);
        send(socket, &asked);
    }
}

fn send(socket: &UdpSocket, services: &[Announced]) {
    let is_large = |s: &Announced| s.txt.iter().map(Vec::len).sum::<usize>() > 1000;
    let together = if services.iter().any(is_large) {
        1
    } else {
        SERVICES_A_PACKET
    };
    for (n, some) in services.chunks(together).enumerate() {
        socket.send_to(&packet(some, 4500), (GROUP, PORT)).unwrap();
        // A receiver's buffer holds about a hundred packets, and a real LAN is slower.
        if n % 16 == 15 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
