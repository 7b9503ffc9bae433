//! Services that are left out because of where they say they are. Pure.
use std::{collections::BTreeSet, time::Duration};

/// The services that are remembered by name.
const NAMES_MAX: usize = 1024;
/// How long after a change it is published.
const SETTLE: Duration = Duration::from_secs(1);

/// The services that a Configuration would take if their addresses were in a network of the interface they were heard
/// on.
#[derive(Default)]
pub(super) struct Elsewhere {
    names: BTreeSet<String>,
    /// When to publish, if what is published says otherwise.
    due: Option<Duration>,
}

impl Elsewhere {
    pub(super) fn note(&mut self, fullname: &str, is_elsewhere: bool) {
        if !is_elsewhere {
            self.names.remove(fullname);
        } else if self.names.len() < NAMES_MAX {
            self.names.insert(fullname.to_owned());
        }
    }

    /// Whether it is time to publish the problem, where `published` is published.
    pub(super) fn is_due(&mut self, published: &[String], now: Duration) -> bool {
        let problem = self.problem();
        let is_news = match &problem {
            Some(problem) => !published.contains(problem),
            None => published.iter().any(|p| p.ends_with(ADVICE)),
        };
        self.due = is_news.then(|| self.due.unwrap_or(now + SETTLE));
        self.due.is_some_and(|due| due <= now)
    }

    pub(super) fn due_at(&self) -> Option<Duration> {
        self.due
    }

    pub(super) fn problem(&self) -> Option<String> {
        let first = self.names.first()?;
        Some(format!(
            "{} services are left out, such as {first:?}: {ADVICE}",
            self.names.len()
        ))
    }
}

const ADVICE: &str = "none of their addresses is in a network of the interface they were heard on; name their networks \
                      in `addresses`, or allow all of them with `addresses: any`";
