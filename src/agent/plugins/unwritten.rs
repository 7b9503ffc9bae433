//! Counts the lists that the kubelet has received and not yet written to its checkpoint. A container waits until they all are: its
//! `Allocate` ends with a write, too, and the kubelet writes one after the other (devicemanager/manager.go: `writeCheckpoint`).
use petiole_base::inotify::{Inotify, WatchFlags};
use petiole_kubelet_api::checkpoint::FILE;
use std::{future::pending, path::PathBuf, time::Duration};
use tokio::time::Instant;

/// The lists that may wait for their writes: as many as are written within [`WAIT`], which a container that comes then waits, too, but
/// within these bounds.
pub(super) const AT_ONCE: usize = 4;
const AT_ONCE_MAX: usize = 32;
const WAIT: Duration = Duration::from_secs(1);
/// The time without a write after which one list is believed to be lost: the kubelet ended, or its disk was full. It is twice that of
/// the slowest write of late, within these bounds.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
const LONGEST_PATIENCE: Duration = Duration::from_secs(20);

/// The lists without a write.
#[derive(Debug)]
pub(super) struct Unwritten {
    count: usize,
    /// The time of the last list or write.
    last: Instant,
    /// The time of the last write, or of the first list since all were written.
    since: Instant,
    /// How long the slowest write of late took, once there was one.
    slowest: Option<Duration>,
}

impl Unwritten {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            count: 0,
            last: now,
            since: now,
            slowest: None,
        }
    }

    /// Records that a list is sent.
    pub(super) fn sent(&mut self, now: Instant) {
        let idle = now.saturating_duration_since(self.last);
        let lost = idle.as_secs() / self.patience().as_secs();
        let lost = usize::try_from(lost).unwrap_or(usize::MAX);
        self.count = self.count.saturating_sub(lost);
        if self.count == 0 || idle >= LONGEST_PATIENCE {
            self.since = now;
        }
        (self.count, self.last) = (self.count + 1, now);
    }

    /// Records so many writes. Those of `Allocate` count as of lists.
    pub(super) fn written(&mut self, writes: usize, now: Instant) {
        if writes == 0 {
            return;
        }
        if self.count > 0 {
            let took = now.saturating_duration_since(self.since);
            self.slowest = Some(took.max(self.slowest.unwrap_or_default() / 2));
        }
        self.count = self.count.saturating_sub(writes);
        (self.last, self.since) = (now, now);
    }

    /// Returns the time before which no list may be sent, unless there is another write; `None` if one may be sent now.
    pub(super) fn not_before(&self) -> Option<Instant> {
        (self.count >= self.most()).then(|| self.last + self.patience())
    }

    fn most(&self) -> usize {
        let Some(slowest) = self.slowest else {
            return AT_ONCE;
        };
        let most = WAIT.as_micros() / slowest.as_micros().max(1);
        let most = usize::try_from(most).unwrap_or(AT_ONCE_MAX);
        most.clamp(AT_ONCE, AT_ONCE_MAX)
    }

    fn patience(&self) -> Duration {
        (2 * self.slowest.unwrap_or_default()).clamp(PATIENCE, LONGEST_PATIENCE)
    }
}

/// The watch of the kubelet's checkpoint, which is written to another file and renamed (util/store/filestore.go).
pub(super) struct Writes {
    folder: PathBuf,
    /// `None` while the machine has no more of them: nothing is counted then.
    inotify: Option<Inotify>,
}

impl Writes {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            inotify: None,
        }
    }

    /// Watches the folder that is at the path now. Returns whether writes are counted.
    pub(super) fn attach(&mut self) -> bool {
        if self.inotify.is_none() {
            self.inotify = Inotify::open().ok();
        }
        let inotify = self.inotify.as_ref();
        inotify.is_some_and(|inotify| inotify.watch(&self.folder, WatchFlags::MOVED_TO).is_ok())
    }

    /// Waits for writes, and returns how many there were. The call is cancel safe.
    pub(super) async fn next(&self) -> usize {
        let Some(inotify) = &self.inotify else {
            return pending().await;
        };
        match inotify.named(FILE, Duration::ZERO).await {
            Ok(count) => count,
            Err(_) => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_write_makes_room_for_a_list_and_a_kubelet_that_writes_nothing_is_not_waited_for() {
        let began = Instant::now();
        let mut unwritten = Unwritten::new(began);
        for _ in 0..AT_ONCE {
            assert_eq!(unwritten.not_before(), None);
            unwritten.sent(began);
        }
        assert_eq!(unwritten.not_before(), Some(began + PATIENCE));
        unwritten.written(0, began + PATIENCE / 2);
        assert_eq!(unwritten.not_before(), Some(began + PATIENCE));
        unwritten.sent(began);
        let later = began + PATIENCE / 4;
        unwritten.written(1, later);
        assert_eq!(unwritten.not_before(), Some(later + PATIENCE));
        unwritten.written(1, later);
        assert_eq!(unwritten.not_before(), None);
        unwritten.written(AT_ONCE * 2, later);
        unwritten.sent(later);
        assert_eq!(unwritten.count, 1, "writes of Allocate are no credit");
    }

    #[test]
    fn lists_that_are_lost_slow_down_none_of_those_that_follow() {
        let mut now = Instant::now();
        let mut unwritten = Unwritten::new(now);
        (0..AT_ONCE).for_each(|_| unwritten.sent(now));
        now = unwritten.not_before().unwrap();
        for _ in 0..3 {
            unwritten.sent(now);
            unwritten.written(1, now);
            assert_eq!(unwritten.not_before(), None);
        }
        unwritten.sent(now + 10 * LONGEST_PATIENCE);
        assert_eq!(unwritten.count, 1, "after a rest none is waited for");
    }

    /// Sends 300 lists, as soon as it may, to a kubelet whose every write takes so long. Returns the most that waited for their writes.
    fn most_waiting(write: Duration) -> usize {
        let mut now = Instant::now();
        let mut unwritten = Unwritten::new(now);
        let (mut sent, mut written, mut most) = (0_usize, 0_usize, 0);
        let mut ends: Option<Instant> = None;
        while sent < 300 {
            let next = unwritten.not_before().unwrap_or(now);
            match ends.filter(|ends| *ends <= next) {
                Some(end) => {
                    now = end;
                    written += 1;
                    unwritten.written(1, now);
                }
                None => {
                    now = next;
                    sent += 1;
                    unwritten.sent(now);
                }
            }
            most = most.max(sent - written);
            let starts = ends
                .filter(|ends| *ends > now)
                .map_or(now, |ends| ends - write);
            ends = (sent > written).then_some(starts + write);
        }
        most
    }

    #[test]
    fn few_lists_wait_however_slow_the_kubelet_writes() {
        for millis in [10, 500, 1_900, 2_100, 2_600, 5_000, 9_000] {
            let most = most_waiting(Duration::from_millis(millis));
            let in_time = usize::try_from(1_000 / millis).unwrap();
            let bound = in_time.clamp(2 * AT_ONCE, AT_ONCE_MAX);
            assert!(most <= bound, "{most} at {millis} ms");
        }
    }

    #[tokio::test]
    async fn the_writes_of_the_checkpoint_are_counted_and_those_of_other_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut writes = Writes::new(folder.path().join("kubelet"));
        assert!(!writes.attach(), "there is no folder yet");
        fs::create_dir(&writes.folder).unwrap();
        assert!(writes.attach());
        for name in [FILE, "camera.sock", FILE, "camera-2.sock"] {
            let new = writes.folder.join("new");
            fs::write(&new, "").unwrap();
            fs::rename(new, writes.folder.join(name)).unwrap();
        }
        assert_eq!(writes.next().await, 2);
    }
}
