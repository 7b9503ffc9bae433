//! Takes in what the answers to requests say.
use super::{
    brokers::{self, Performed, memory::Outcome, plan::Action as BrokerAction},
    nodes::{self, absent_node::Now, plan::Action as DeviceAction},
    outcome::{Tried, Written},
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
            (Request::Broker(action), Answer::Performed(performed)) => {
                self.settle_broker(part, action, performed, now)
            }
            (request, Answer::Written(written)) => {
                self.settle_write(part, request, &written, now);
                self.take_over(part, written.objects);
                written.tried == Tried::Failed
            }
            (request, answer) => unreachable!("{answer:?} answers {request:?}"),
        }
    }

    fn settle_write(&mut self, part: &str, request: &Request, written: &Written, now: Now) {
        let world = self.cluster.whole();
        match request {
            Request::Device(action) => {
                self.devices.settle(action, written, now);
                if written.tried == Tried::Done {
                    self.notes.extend(nodes::note_of_deletion(world, action));
                }
                if let DeviceAction::Delete { key, uid, .. } = action
                    && matches!(written.tried, Tried::Done | Tried::Gone)
                {
                    self.cluster.instance_deleted(key, uid);
                }
            }
            Request::Service(action) => {
                (self.services).settle(part, action, written.problem.clone());
            }
            Request::List(action) => {
                let steady = self.clock.at(now.instant);
                self.lists.settle(action, written, steady);
            }
            Request::Status(action) if written.tried == Tried::Done => {
                self.notes.extend(status::notes(world, action));
            }
            Request::Eviction(action) => self.evictions.settle(action, written, now.instant),
            Request::Status(_) | Request::Look(_) | Request::Broker(_) => {}
        }
    }

    /// Returns whether the broker was not changed as planned, for whatever reason.
    fn settle_broker(
        &mut self,
        part: &str,
        action: &BrokerAction,
        Performed { outcome, object }: Performed,
        now: Now,
    ) -> bool {
        let steady = self.clock.at(now.instant);
        let world = self.cluster.whole();
        let note = self.brokers.settle(world, action, &outcome, steady);
        self.notes.extend(note);
        if let Some((key, uid)) = brokers::deleted(action, &outcome) {
            self.cluster.deleted(key, uid);
        }
        self.take_over(part, object);
        outcome != Outcome::Done
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
