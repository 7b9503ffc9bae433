//! Takes in the answers to requests, and goes on with the turns that wait for them.
use super::Turns;
use crate::controller::{
    brokers::{self, Performed, memory::Outcome, plan::Action as BrokerAction},
    nodes::{self, absent_node::Now},
    outcome::{Tried, Written},
    parts::News,
    status,
    turn::{Answer, Request},
};

impl Turns {
    /// Takes in the answer to a request.
    pub(crate) fn answered(&mut self, part: String, request: &Request, answer: Answer, now: Now) {
        let is_failed = self.settle(&part, request, answer, now);
        self.throttle.answered(request, is_failed, now.instant);
        let Some(mut turn) = self.open.remove(&part) else {
            return;
        };
        turn.open -= 1;
        if turn.is_outdated(is_failed) {
            turn.give_up();
            self.queue.touch(&part);
        }
        if turn.open > 0 || !turn.queue.is_empty() {
            self.open.insert(part, turn);
        } else if turn.is_valid {
            self.go_on(part, turn, now);
        } else {
            self.queue.touch(&part);
        }
    }

    /// Takes in what an answer says. Returns whether its request has failed.
    fn settle(&mut self, part: &str, request: &Request, answer: Answer, now: Now) -> bool {
        match (request, answer) {
            (Request::Look(node), Answer::Pods(pods)) => {
                if self.devices.looked(node, pods, now) {
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
            }
            Request::Service(action) => {
                (self.services).settle(part, action, written.problem.clone());
            }
            Request::Status(action) if written.tried == Tried::Done => {
                self.notes.extend(status::notes(world, action));
            }
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
