//! Goes through the addresses of other networks, which no multicast reaches, at a bounded rate. Pure.
use crate::message::Spelling;
use ipnet::Ipv4Net;
use std::{net::Ipv4Addr, time::Duration};

/// The time between the end of a pass and the next one. Devices that are known are asked in every round.
const PAUSE: Duration = Duration::from_mins(5);
/// The probes that are sent late at once, after the caller was held up.
const LATE: u32 = 10;

/// One pass after another through all addresses. Each pass has another spelling; the first three follow at once.
#[derive(Debug)]
pub(super) struct Sweep {
    networks: Vec<Ipv4Net>,
    gap: Duration,
    /// The number of the next address in this pass.
    next: u64,
    pub(super) at: Duration,
    passes: usize,
    /// The end of the first pass.
    pub(super) first_end: Option<Duration>,
}

/// Returns the number of addresses of hosts.
pub(crate) fn addresses(network: &Ipv4Net) -> u64 {
    let all = 1_u64 << (32 - network.prefix_len());
    match network.prefix_len() {
        31 | 32 => all,
        _ => all - 2,
    }
}

impl Sweep {
    pub(super) fn new(networks: &[Ipv4Net], per_second: u32, now: Duration) -> Option<Self> {
        (!networks.is_empty()).then(|| Self {
            networks: networks.to_vec(),
            gap: Duration::from_secs(1) / per_second.max(1),
            next: 0,
            at: now,
            passes: 0,
            first_end: None,
        })
    }

    /// Returns the addresses to probe now.
    pub(super) fn due(&mut self, now: Duration) -> Vec<(Ipv4Addr, Spelling)> {
        let mut due = vec![];
        self.at = self.at.max(now.saturating_sub(self.gap * LATE));
        while self.at <= now {
            let spelling = Spelling::ALL[self.passes % Spelling::ALL.len()];
            match self.address(self.next) {
                Some(address) => {
                    due.push((address, spelling));
                    self.next += 1;
                    self.at += self.gap;
                }
                None => {
                    self.first_end.get_or_insert(now);
                    self.next = 0;
                    self.passes += 1;
                    let is_first = self.passes < Spelling::ALL.len();
                    self.at = now + if is_first { self.gap } else { PAUSE };
                }
            }
        }
        due
    }

    fn address(&self, mut index: u64) -> Option<Ipv4Addr> {
        for network in &self.networks {
            let count = addresses(network);
            if index < count {
                let first = u32::from(network.network()) + u32::from(network.prefix_len() < 31);
                return Some(Ipv4Addr::from(first + u32::try_from(index).ok()?));
            }
            index -= count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_is_probed_at_the_rate_and_in_three_spellings_before_the_pause() {
        let networks = ["10.1.0.0/29", "10.2.0.7/32"].map(|n| n.parse().unwrap());
        let mut sweep = Sweep::new(&networks, 10, Duration::ZERO).unwrap();
        let mut sent = vec![];
        let mut now = Duration::ZERO;
        while now < Duration::from_secs(60) {
            sent.extend(
                sweep
                    .due(now)
                    .into_iter()
                    .map(|(ip, spelling)| (now, ip, spelling)),
            );
            now = sweep.at;
        }
        let first: Vec<String> = sent[..7].iter().map(|(_, ip, _)| ip.to_string()).collect();
        assert_eq!(
            first.join(" "),
            "10.1.0.1 10.1.0.2 10.1.0.3 10.1.0.4 10.1.0.5 10.1.0.6 10.2.0.7"
        );
        assert_eq!(sent.len(), 3 * 7);
        assert_eq!(sent[7].2, Spelling::Device);
        let times: Vec<Duration> = sent.iter().map(|(at, ..)| *at).collect();
        assert!(
            times
                .windows(2)
                .all(|pair| pair[1] - pair[0] >= Duration::from_millis(100))
        );
        assert!(sweep.first_end.is_some());
        assert!(sweep.at > PAUSE);
    }

    #[test]
    fn a_caller_that_was_held_up_sends_no_flood() {
        let mut sweep = Sweep::new(&["10.1.0.0/20".parse().unwrap()], 50, Duration::ZERO).unwrap();
        sweep.due(Duration::ZERO);
        assert!(sweep.due(Duration::from_secs(30)).len() <= 11);
    }
}
