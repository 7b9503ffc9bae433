//! Holds the state that the views of the demo share: the services, what was seen last, and the live view.
use super::{home::Home, plan::changes, publisher::Publisher, seen::Seen};
use crate::model::printable::printable;
use jiff::Timestamp;
use petiole_people::live::State;
use tokio::sync::watch;

/// Prints a text; the error of one that nobody reads ends the demo.
pub(super) type Print = fn(&str) -> anyhow::Result<()>;

/// The state that the views share.
pub(super) struct Demo {
    print: Print,
    pub(super) publisher: Publisher,
    home: Home,
    /// Each change restarts the kubelet.
    restarts: watch::Sender<u64>,
    pub(super) seen: Seen,
    /// The devices and the changes, as `petiole top` shows them.
    pub(super) live: State,
}

impl Demo {
    pub(super) fn new(
        print: Print,
        publisher: Publisher,
        home: Home,
        restarts: watch::Sender<u64>,
    ) -> Self {
        let (place, hint) = ("this node".to_owned(), home.source().hint());
        Self {
            print,
            publisher,
            restarts,
            seen: Seen::default(),
            live: State::starting(place, hint, Timestamp::now()),
            home,
        }
    }

    pub(super) fn print(&self, text: &str) -> anyhow::Result<()> {
        (self.print)(text)
    }

    /// Looks at the demo, and records the changes since the last look.
    pub(super) async fn observe(&mut self) {
        let look = Seen::look(&self.home).await;
        let now = Timestamp::now();
        let objects = look.as_ref().map(|seen| &seen.objects);
        self.live.take(objects, now);
        if let Ok(seen) = look {
            self.live.record(changes(&self.seen, &seen), now);
            self.seen = seen;
        }
    }

    pub(super) fn restart_kubelet(&mut self) {
        self.record("you restarted the kubelet".to_owned());
        self.restarts.send_modify(|restarts| *restarts += 1);
    }

    /// Withdraws service `n`, or announces it again.
    pub(super) fn toggle(&mut self, n: usize) -> anyhow::Result<()> {
        self.publisher.toggle(n)?;
        if let Some(service) = self.publisher.services().get(n) {
            let what = if service.is_announced {
                "announced"
            } else {
                "withdrew"
            };
            let text = format!("you {what} {}", service.name);
            self.record(text);
        }
        Ok(())
    }

    /// Prints the changes since the last call, a line each.
    pub(super) fn print_changes(&mut self) -> anyhow::Result<()> {
        for change in self.live.take_changes() {
            self.print(&format!(
                "{}{}\n",
                self.live.time(change.at),
                printable(&change.text)
            ))?;
        }
        Ok(())
    }

    fn record(&mut self, text: String) {
        self.live.record(vec![text], Timestamp::now());
    }
}
