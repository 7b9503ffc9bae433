//! Takes in what the answers to requests say.
use super::{
    brokers,
    nodes::{self, absent_node::Now, plan::Action as DeviceAction},
    outcome::{Outcome, Written},
    parts::News,
    status,
    turn::{Answer, Request},
    turns::Turns,
};

impl Turns {
    /// Takes in what an answer says. Returns whether its request has failed.
    pub(super) fn settle(
        &mut self,
        part: &str,
        request: &Request,
        answer: Answer,
        now: Now,
    ) -> bool {
        match (request, answer) {
            (Request::Look(node), Answer::Pods(pods)) => {
                if self.devices.memory.looked(node, pods, now.instant) {
                    // The node may hold slots in every part.
                    self.touch_all();
                }
                false
            }
            (request, Answer::Written(written)) => {
                self.settle_write(part, request, &written, now);
                self.take_over(part, written.objects);
                // A broker that was not changed as planned waits, for whatever reason.
                let is_broker = matches!(request, Request::Broker(_));
                written.outcome.is_failed() || is_broker && written.outcome != Outcome::Done
            }
            (request, answer) => unreachable!("{answer:?} answers {request:?}"),
        }
    }

    fn settle_write(&mut self, part: &str, request: &Request, written: &Written, now: Now) {
        let world = self.cluster.whole();
        match request {
            Request::Device(action) => {
                self.devices.settle(action, written, now);
                if written.outcome == Outcome::Done {
                    self.notes.extend(nodes::note_of_deletion(world, action));
                }
                if let DeviceAction::Delete { key, uid, .. } = action
                    && matches!(written.outcome, Outcome::Done | Outcome::Gone)
                {
                    self.cluster.instance_deleted(key, uid);
                }
            }
            Request::Broker(action) => {
                let outcome = &written.outcome;
                let note = self.brokers.settle(world, action, outcome, now.instant);
                self.notes.extend(note);
                if let Some((key, uid)) = brokers::deleted(action, outcome) {
                    self.cluster.deleted(key, uid);
                }
            }
            Request::Service(action) => {
                (self.services).settle(part, action, written.problem.clone());
            }
            Request::List(action) => self.lists.settle(action, written, now.instant),
            Request::Status(action) if written.outcome == Outcome::Done => {
                self.notes.extend(status::notes(world, action));
            }
            Request::Eviction(action) => self.evictions.settle(action, written, now.instant),
            Request::Status(_) | Request::Look(_) => {}
        }
    }

    /// Takes over the objects of an answer. The part itself looks at them in its next stage.
    fn take_over(&mut self, part: &str, objects: impl IntoIterator<Item = News>) {
        for news in objects {
            let mut touched = self.cluster.answered(news);
            touched.parts.remove(part);
            self.touch(touched);
        }
    }
}
