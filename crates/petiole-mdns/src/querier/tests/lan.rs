//! Simulates a LAN: one querier, some responders, and packets that are delayed or lost.
use super::{
    super::super::message::{Message, Question},
    responder::{Habits, Responder},
    *,
};

pub(super) struct Lan {
    pub(super) querier: Querier,
    /// Other hosts of the LAN that ask, too, and the number of services that they have lost.
    pub(super) peers: Vec<Querier>,
    pub(super) peers_lost: usize,
    pub(super) responders: Vec<Responder>,
    pub(super) now: Duration,
    /// True if all packets are lost.
    pub(super) is_down: bool,
    /// The percentage of packets that are lost.
    pub(super) loss: u8,
    random: fastrand::Rng,
    /// The responders that may answer for each name, and the number of responders at that time.
    owners: (usize, BTreeMap<Name, Vec<usize>>),
    /// The packets on their way to the querier: the source, and whether they were sent to the group.
    under_way: BTreeMap<(Duration, u64), (SocketAddr, bool, Vec<u8>)>,
    count: u64,
    /// The queries, with the times at which they were sent.
    pub(super) sent: Vec<(Duration, Outgoing)>,
    pub(super) found: BTreeMap<Name, Arc<Service>>,
    /// The times at which a service appeared (true) or disappeared.
    pub(super) log: Vec<(Duration, String, bool)>,
}

impl Lan {
    pub(super) fn new(responders: Vec<Responder>) -> Self {
        Self::browsed(responders, wanted(TYPE))
    }

    pub(super) fn browsed(responders: Vec<Responder>, wanted: Wanted) -> Self {
        let mut querier = Querier::new(7);
        querier.set_links(vec![eth()], &[], ms(0));
        querier.subscribe(1, wanted, ms(0));
        Self {
            querier,
            peers: vec![],
            peers_lost: 0,
            responders,
            now: ms(0),
            is_down: false,
            loss: 0,
            random: fastrand::Rng::with_seed(7),
            owners: (0, BTreeMap::new()),
            under_way: BTreeMap::new(),
            count: 0,
            sent: vec![],
            found: BTreeMap::new(),
            log: vec![],
        }
    }

    /// Creates a LAN with one responder with these habits and one service.
    pub(super) fn with(habits: Habits, label: &str) -> Self {
        Self::new(vec![Responder::new(habits, 7, &[label])])
    }

    fn is_lost(&mut self) -> bool {
        self.is_down || self.random.u8(0..100) < self.loss
    }

    pub(super) fn send(
        &mut self,
        source: SocketAddr,
        is_multicast: bool,
        bytes: Vec<u8>,
        delay: u64,
    ) {
        if !self.is_lost() {
            self.count += 1;
            let key = (self.now + ms(delay), self.count);
            self.under_way.insert(key, (source, is_multicast, bytes));
        }
    }

    /// Makes a responder announce its services, or say goodbye.
    pub(super) fn announce(&mut self, n: usize, ttl: Option<u32>) {
        let source = SocketAddr::from((self.responders[n].address, 5353));
        for packet in self.responders[n].announcement(ttl) {
            self.send(source, true, packet, 1);
        }
    }

    /// Simulates the time up to `until`.
    pub(super) fn run(&mut self, until: Duration) {
        loop {
            let turn = self.querier.turn(self.now);
            for Change { name, service, .. } in turn.changes {
                let label = String::from_utf8_lossy(name.labels().next().unwrap()).into_owned();
                self.log.push((self.now, label, service.is_some()));
                match service {
                    Some(service) => self.found.insert(name, service),
                    None => self.found.remove(&name),
                };
            }
            for packet in turn.send {
                self.ask_all(&packet, 1);
            }
            let peers = self.turn_of_peers();
            let packet = self.under_way.keys().next().map(|(at, _)| *at);
            let next = [packet, turn.wake, peers].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else {
                self.now = until;
                return;
            };
            assert!(next >= self.now, "time goes back");
            self.now = next;
            while let Some(entry) = self.under_way.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let (source, is_multicast, bytes) = entry.remove();
                let packet = Packet {
                    link: ETH,
                    family: Family::V4,
                    source,
                    is_multicast,
                    hop_limit: 255,
                    bytes: &bytes,
                };
                self.querier.receive(&packet, self.now);
                for peer in self.peers.iter_mut().filter(|_| is_multicast) {
                    peer.receive(&packet, self.now);
                }
            }
        }
    }

    /// Adds other hosts that look for the same services.
    pub(super) fn join(&mut self, count: u8) {
        for n in 0..count {
            let mut peer = Querier::new(100 + u64::from(n));
            let address = format!("10.0.0.{}/24", 100 + n);
            peer.set_links(vec![link(ETH, "eth0", &[&address])], &[], self.now);
            peer.subscribe(1, wanted(TYPE), self.now);
            self.peers.push(peer);
        }
    }

    fn turn_of_peers(&mut self) -> Option<Duration> {
        let mut wake: Option<Duration> = None;
        for n in 0..self.peers.len() {
            let turn = self.peers[n].turn(self.now);
            let lost = turn
                .changes
                .iter()
                .filter(|change| change.service.is_none());
            self.peers_lost += lost.count();
            wake = wake.into_iter().chain(turn.wake).min();
            for packet in turn.send {
                self.ask_all(&packet, 100 + u8::try_from(n).unwrap());
            }
        }
        wake
    }

    /// Delivers a query of the host 10.0.0.`asker` to the responders, and to the other hosts that ask.
    fn ask_all(&mut self, packet: &Outgoing, asker: u8) {
        self.sent.push((self.now, packet.clone()));
        if !self.peers.is_empty() {
            let source = SocketAddr::from(([10, 0, 0, asker], 5353));
            self.send(source, true, packet.bytes.clone(), 1);
        }
        let query = Message::decode(&packet.bytes, &mut 0).unwrap();
        if self.owners.0 != self.responders.len() {
            self.owners = (self.responders.len(), BTreeMap::new());
            for (n, responder) in self.responders.iter().enumerate() {
                for name in responder.names() {
                    self.owners.1.entry(name).or_default().push(n);
                }
            }
        }
        let mut asked: BTreeMap<usize, Vec<&Question>> = BTreeMap::new();
        for question in &query.questions {
            for n in self.owners.1.get(&question.name).into_iter().flatten() {
                asked.entry(*n).or_default().push(question);
            }
        }
        for (n, questions) in asked {
            if self.is_lost() || !self.responders[n].is_alive {
                continue;
            }
            let responder = &mut self.responders[n];
            let answers = responder.answer(&questions, &query, self.now);
            let (habits, address) = (responder.habits, responder.address);
            for bytes in answers {
                let source = SocketAddr::from((address, 5353));
                self.send(source, !habits.unicast, bytes, habits.delay);
            }
        }
    }

    /// Returns the number of services that disappeared since `since`.
    pub(super) fn losses_since(&self, since: Duration) -> usize {
        let losses = self.log.iter();
        losses
            .filter(|(at, _, is_there)| *at >= since && !is_there)
            .count()
    }

    pub(super) fn packets_since(&self, since: Duration) -> usize {
        self.sent.iter().filter(|(at, _)| *at >= since).count()
    }

    /// Runs until a service is present or absent. Returns the time that this took.
    pub(super) fn until(&mut self, label: &str, is_there: bool) -> Duration {
        let (start, name) = (self.now, instance(label));
        while self.found.contains_key(&name) != is_there {
            assert!(
                self.now < start + ms(600_000),
                "{label} never: {:?}",
                self.log
            );
            self.run(self.now + ms(10));
        }
        self.now - start
    }
}
