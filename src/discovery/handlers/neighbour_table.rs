//! Reads the node's table of neighbours, once for all who have asked since it was read last.
use super::neighbours;
use crate::files;
use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// The file of the kernel with the table.
const FILE: &str = "/proc/net/arp";
/// The most bytes of the table that are read. Beyond it: no MAC address is known from it.
const FILE_MAX: u64 = 1 << 20;
/// The shortest time between two reads.
const BETWEEN: Duration = Duration::from_millis(50);

/// The MAC addresses of the networks of this node.
#[derive(Debug)]
pub(super) struct NeighbourTable {
    file: PathBuf,
    read: Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    at: Option<Instant>,
    macs: BTreeMap<IpAddr, String>,
}

impl Default for NeighbourTable {
    fn default() -> Self {
        Self::new(Path::new(FILE))
    }
}

impl NeighbourTable {
    fn new(file: &Path) -> Self {
        let (file, read) = (file.to_owned(), Mutex::default());
        Self { file, read }
    }

    /// Returns the MAC address of a neighbour that has answered just now.
    pub(super) async fn mac(&self, address: IpAddr) -> Option<String> {
        let heard = Instant::now();
        loop {
            match self.mac_since(address, heard) {
                Ok(mac) => return mac,
                Err(next) => sleep_until(next).await,
            }
        }
    }

    /// Returns what a table says that was read after the kernel `heard` of the neighbour. The error is the time of the next read.
    fn mac_since(&self, address: IpAddr, heard: Instant) -> Result<Option<String>, Instant> {
        // A panic of another holder leaves a table that is read again.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.at.is_none_or(|at| at < heard) {
            let now = Instant::now();
            let next = read.at.map_or(now, |at| at + BETWEEN);
            if now < next {
                return Err(next);
            }
            let table = files::read_text(&self.file, FILE_MAX).unwrap_or_default();
            read.macs = neighbours::macs(&table);
            read.at = Some(now);
        }
        Ok(read.macs.get(&address).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test(start_paused = true)]
    async fn one_read_answers_all_who_waited_for_it_and_each_answer_is_newer_than_its_question() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("arp");
        let table = NeighbourTable::new(&file);
        let ip: IpAddr = [10, 0, 0, 7].into();
        let began = Instant::now();
        assert_eq!(table.mac(ip).await, None, "there is no table");
        fs::write(&file, "head\n10.0.0.7 0x1 0x2 00:11:22:aa:bb:cc * eth0\n").unwrap();
        tokio::time::advance(Duration::from_millis(1)).await;
        let all = futures::future::join_all((0..100).map(|_| table.mac(ip))).await;
        let mac = Some("00:11:22:aa:bb:cc".to_owned());
        assert!(all.iter().all(|found| *found == mac), "{all:?}");
        assert!(began.elapsed() < 2 * BETWEEN, "{:?}", began.elapsed());
    }
}
