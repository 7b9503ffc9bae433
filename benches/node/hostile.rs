//! Measures how long the kubelet and a probe wait while tenants and the LAN make the agent work as much as they can: 100
//! Configurations with 32 filters each, whose regular expressions take nearly all steps that a Configuration may, and 4096
//! services that change all the time, with values of TXT records of 255 bytes.
use super::{
    mdns_publisher::{Announced, Publisher, packet},
    measurements::{claims, zeroconf},
    node::{CONFIGURATION, Node},
    report::Unit,
};
use petiole::discovery::{Properties, handlers::builtin};
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep},
};

/// The Configurations beside the one whose devices are allocated.
const CONFIGURATIONS: usize = 99;
const SERVICES: usize = 4096;
/// The filters of each Configuration, of which two have the expensive expression.
const FILTERS: usize = 32;
/// An expression of about 390 states that are all active at each byte, and that matches.
const EXPENSIVE: &str = "(?:.?){100}.*";
/// The bytes of an entry of a TXT record, with its key.
const ENTRY: usize = 255;
/// The pause after each 16 packets. How many of them are read is bounded by the work that they cause.
const PAUSE: Duration = Duration::from_millis(10);
/// The time in which the agent meets the Configurations before the calls are measured.
const BEGINS: Duration = Duration::from_secs(10);
/// The pause between two calls.
const BETWEEN_CALLS: Duration = Duration::from_millis(10);
const INSTANCES: usize = 100;
const CAPACITY: u32 = 20;

/// Announces all services again and again, each time with other TXT records.
struct Storm {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Storm {
    fn start(kind: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let publisher = Publisher::start(vec![]);
            for round in 0.. {
                for first in (0..SERVICES).step_by(64) {
                    if stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    let services: Vec<_> = (first..first + 64)
                        .map(|n| service(&kind, n, round))
                        .collect();
                    for some in services.chunks(4) {
                        publisher.send_raw(&packet(some, 4500));
                    }
                    thread::sleep(PAUSE);
                }
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn service(kind: &str, n: usize, round: usize) -> Announced {
    let entry = |key: &str| {
        let entry = format!("{key}={round:010}");
        format!("{entry}{}", "x".repeat(ENTRY - entry.len())).into_bytes()
    };
    let record = [entry("a"), entry("b")];
    let record: Vec<&[u8]> = record.iter().map(Vec::as_slice).collect();
    Announced::new(&format!("service {n}"), kind).txt(&record)
}

/// Returns details whose filters are applied to every service. The last key is in no service.
fn details(kind: &str) -> String {
    let expensive = ["a", "b"].map(|key| format!("  {key}: {{regex: '{EXPENSIVE}'}}\n"));
    let others = (2..FILTERS).map(|n| format!("  z{n}: [{n}]\n"));
    let details = format!(
        "{}verify: off\ntxt:\n{}{}",
        zeroconf(kind),
        expensive.concat(),
        others.collect::<String>()
    );
    let handler = builtin().into_iter().find(|h| h.name() == "zeroconf");
    // What is refused costs nothing.
    let prepared = handler.unwrap().prepare(&details, &Properties::new());
    prepared.map(drop).unwrap();
    details
}

async fn probe(address: SocketAddr) -> Duration {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET /healthz HTTP/1.0\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains(" 200 "), "{answer}");
    begun.elapsed()
}

fn percentiles(mut times: Vec<f64>) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    [at(50), at(99), at(100)]
}

/// Returns the percentiles of the calls and of the probes in ms, and the slots that were allocatable at the end.
pub(super) async fn run(binary: PathBuf) -> Vec<f64> {
    let kind = format!("_p{}storm._tcp", std::process::id());
    let mut node = Node::new(binary);
    let address = node.serve_http();
    node.start_kubelet().await;
    node.start_agent();
    node.configure_devices(INSTANCES, CAPACITY as usize);
    node.until_allocatable(INSTANCES).await;
    let mut plugins = claims(&node).await;
    let storm = Storm::start(kind.clone());
    for n in 0..CONFIGURATIONS {
        // All services are devices of the first one, as far as there is room for their Instances.
        let details = match n {
            0 => format!("{}verify: off\n", zeroconf(&kind)),
            _ => details(&kind),
        };
        node.configure_as(&format!("hostile-{n}"), "zeroconf", 1, &details);
    }
    sleep(BEGINS).await;
    let (mut calls, mut probes) = (vec![], vec![]);
    for index in 0..CAPACITY {
        for plugin in &mut plugins {
            calls.push(Unit::Milliseconds.of(plugin.claim(index).await));
            probes.push(Unit::Milliseconds.of(probe(address).await));
            sleep(BETWEEN_CALLS).await;
        }
    }
    let offers = node.offers().await;
    let honest = offers[CONFIGURATION].allocatable;
    assert_eq!(honest, offers[CONFIGURATION].capacity, "all are healthy");
    drop(storm);
    [percentiles(calls), percentiles(probes)].concat()
}
