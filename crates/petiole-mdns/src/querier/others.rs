//! Processes the queries of other hosts. Pure.
use super::{
    super::{
        message::{Message, Question},
        name::Name,
        record::{Data, Kind},
        schedule::Confirm,
    },
    state::Querier,
};
use std::{collections::BTreeSet, time::Duration};

/// The number of unanswered questions of other hosts after which a service is confirmed (RFC 6762 10.5). The next
/// constant is the time that they must span.
const UNANSWERED: u32 = 2;
const UNANSWERED_FOR: Duration = Duration::from_secs(10);
/// The range of the time by which a question that another host has asked is repeated later, in milliseconds.
const JITTER: [u64; 2] = [0, 100];
/// The work, in steps of about 0.1 us, of a question, and of a known answer that is looked up.
const QUESTION_STEPS: usize = 5;
const KNOWN_STEPS: usize = 10;

impl Querier {
    /// Processes the questions of another host. A question may replace our own (RFC 6762 7.3), or show that a service
    /// does not answer (10.5). A name counts once in a packet.
    pub(super) fn take_query(&mut self, link: u32, message: &Message, now: Duration) {
        self.steps += QUESTION_STEPS * message.questions.len();
        // Other answers go to the other host alone.
        let questions = message.questions.iter().filter(|q| !q.wants_unicast);
        let is_browse = |q: &&Question| q.kind == Some(Kind::Ptr) && !message.is_truncated;
        let is_resolve = |q: &&Question| q.kind == Some(Kind::Srv) || q.is_any;
        let browsed: BTreeSet<&Name> = questions
            .clone()
            .filter(is_browse)
            .map(|q| &q.name)
            .collect();
        let resolved: BTreeSet<&Name> = questions.filter(is_resolve).map(|q| &q.name).collect();
        self.others_browse(link, browsed, message, now);
        for name in resolved {
            self.others_resolve(link, name, now);
        }
    }

    fn others_browse(
        &mut self,
        link: u32,
        mut browsed: BTreeSet<&Name>,
        message: &Message,
        now: Duration,
    ) {
        if let Some(state) = self.links.get(&link) {
            let is_due = |name: &Name| {
                state
                    .browses
                    .get(name)
                    .is_some_and(|b| b.series.is_due_soon(now))
            };
            browsed.retain(|name| is_due(name));
        }
        if browsed.is_empty() {
            return;
        }
        // A responder leaves out the known answers of that host, which may be missing here.
        for record in &message.records {
            if let Data::Ptr(target) = &record.data
                && browsed.contains(&record.name)
            {
                self.steps += KNOWN_STEPS;
                if !self.cache.points(link, &record.name, target) {
                    browsed.remove(&record.name);
                }
            }
        }
        for name in browsed {
            let jitter = self.between(JITTER);
            let state = self.links.get_mut(&link);
            if let Some(browse) = state.and_then(|state| state.browses.get_mut(name)) {
                browse.series.is_asked_by_other(now, jitter);
            }
        }
    }

    fn others_resolve(&mut self, link: u32, name: &Name, now: Duration) {
        let jitter = self.between(JITTER);
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let stretch = state.stretch;
        let Some(service) = state.services.get_mut(name) else {
            return;
        };
        let (since, count) = service.unanswered.unwrap_or((now, 0));
        service.unanswered = Some((since, count + 1));
        let is_unanswered = count + 1 >= UNANSWERED && since + UNANSWERED_FOR <= now;
        if service.may_confirm(stretch, now) {
            service.confirm = Some(Confirm::new(now));
        } else if service.confirm.is_none() && is_unanswered && !service.is_lost {
            service.confirm = Some(Confirm::new(now));
            return state.look_at(now);
        }
        let confirm = service.confirm.as_mut();
        if confirm.is_none_or(|confirm| !confirm.is_asked_by_other(now, jitter)) {
            return;
        }
        let due = service.due(stretch);
        due.into_iter().for_each(|at| state.look_at(at));
    }
}
