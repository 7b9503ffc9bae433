//! Simulates many queriers on one LAN, which hear each other's questions.
use super::{
    super::super::message::Message,
    responder::{Responder, USUAL},
    *,
};

struct Herd {
    queriers: Vec<Querier>,
    /// The times of the next turns.
    wakes: Vec<Duration>,
    camera: Responder,
    now: Duration,
    /// The packets under way, with their sources.
    under_way: BTreeMap<(Duration, usize), (SocketAddr, Vec<u8>)>,
    /// The number of questions so far.
    sent: usize,
    /// How often a querier lost the camera.
    losses: usize,
}

impl Herd {
    fn new(count: u8) -> Self {
        let queriers = (0..count).map(|n| {
            let mut querier = Querier::new(u64::from(n));
            let address = format!("10.0.0.{}/24", 100 + n);
            querier.set_links(vec![link(ETH, "eth0", &[&address])], &[], ms(0));
            querier.subscribe(1, wanted(TYPE), ms(0));
            querier
        });
        Self {
            queriers: queriers.collect(),
            // They start one after the other.
            wakes: (0..u64::from(count)).map(|n| ms(n * 137)).collect(),
            camera: Responder::new(USUAL, 7, &["cam"]),
            now: ms(0),
            under_way: BTreeMap::new(),
            sent: 0,
            losses: 0,
        }
    }

    fn run(&mut self, until: Duration) {
        loop {
            let packet = self.under_way.keys().next().map(|(at, _)| *at);
            let next = self.wakes.iter().copied().chain(packet).min().unwrap();
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            match self.under_way.first_entry() {
                Some(entry) if entry.key().0 <= self.now => {
                    let (source, bytes) = entry.remove();
                    self.deliver(source, &bytes);
                }
                _ => {
                    for n in 0..self.queriers.len() {
                        if self.wakes[n] <= self.now {
                            self.turn(n);
                        }
                    }
                }
            }
        }
    }

    fn deliver(&mut self, source: SocketAddr, bytes: &[u8]) {
        let packet = Packet {
            link: ETH,
            family: Family::V4,
            source,
            is_multicast: true,
            hop_limit: 255,
            bytes,
        };
        for n in 0..self.queriers.len() {
            self.queriers[n].receive(&packet, self.now);
            self.turn(n);
        }
        let query = Message::decode(bytes, &mut 0).unwrap();
        if self.camera.is_alive && !query.is_response {
            let questions: Vec<_> = query.questions.iter().collect();
            for answer in self.camera.answer(&questions, &query, self.now) {
                self.send(([10, 0, 0, 7], 5353).into(), answer, 20);
            }
        }
    }

    fn turn(&mut self, n: usize) {
        let turn = self.queriers[n].turn(self.now);
        self.wakes[n] = turn.wake.unwrap_or(Duration::MAX);
        self.sent += turn.send.len();
        let is_loss = |change: &&Change| change.service.is_none();
        self.losses += turn.changes.iter().filter(is_loss).count();
        for packet in turn.send {
            let last = 100 + u8::try_from(n).unwrap();
            self.send(([10, 0, 0, last], 5353).into(), packet.bytes, 1);
        }
    }

    fn send(&mut self, source: SocketAddr, bytes: Vec<u8>, delay: u64) {
        let key = (
            self.now + ms(delay),
            self.under_way.len() + self.sent * 1000,
        );
        self.under_way.insert(key, (source, bytes));
    }
}

#[test]
fn forty_queriers_keep_a_camera_that_is_silent_for_five_seconds() {
    let mut herd = Herd::new(40);
    for outage in 0..8_u64 {
        herd.run(ms(30_000 + outage * 20_000 + outage * 737));
        herd.camera.is_alive = false;
        herd.run(herd.now + ms(5000));
        herd.camera.is_alive = true;
    }
    assert_eq!(herd.losses, 0);
}

#[test]
fn forty_queriers_notice_a_dead_camera_and_share_some_of_their_questions() {
    let mut herd = Herd::new(40);
    herd.run(ms(60_000));
    let before = herd.sent;
    herd.run(ms(120_000));
    assert!(
        herd.sent - before <= 60,
        "{} in a minute",
        herd.sent - before
    );
    herd.camera.is_alive = false;
    let before = herd.sent;
    herd.run(ms(140_000));
    assert_eq!(herd.losses, 40);
    // Of the seven questions of each querier at least three are its own, and later it searches.
    let sent = herd.sent - before;
    assert!(sent <= 40 * 12, "{sent}");
}
