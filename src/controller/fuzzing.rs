//! Makes the turns of the controller available to its benchmark.
use super::{
    news::answered,
    nodes::absent_node::{Now, Pods},
    outcome::{Outcome, Written},
    parts::News,
    turn::{Answer, Request},
    turns::Turns,
    world::{broker_pod, node_state},
};
use crate::{
    api::{configuration::Configuration, instance::Instance, names, node_devices::NodeDevices},
    cluster::{
        changes::Change,
        parts::{NodePart, PodPart},
    },
};
use json_patch::PatchOperation;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// A controller that leads, with an API server that carries out writes of statuses alone.
pub struct Controller {
    turns: Turns,
    instant: Instant,
    version: u64,
}

impl Controller {
    /// Returns a controller that knows of no object.
    pub fn new() -> anyhow::Result<Self> {
        let instant = Instant::now();
        let clock = Timestamp::now();
        let mut turns = Turns::new(names::GROUP.parse()?, Now { clock, instant });
        turns.see(News::Jobs(vec![]));
        turns.see(News::Services(vec![]));
        turns.see(News::Slices(vec![]));
        turns.lead(true, Now { clock, instant });
        Ok(Self {
            turns,
            instant,
            version: 0,
        })
    }

    /// Shows an object to the controller, as a watch would.
    pub fn show(&mut self, mut object: Value) -> anyhow::Result<()> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let news = match object["kind"].as_str().unwrap_or_default() {
            "Configuration" => news::<Configuration, _, _>(object, |c| c)?,
            "Instance" => news::<Instance, _, _>(object, |i| i)?,
            "NodeDevices" => news::<NodeDevices, _, String>(object, |n| n)?,
            "Node" => news::<NodePart, _, String>(object, node_state)?,
            "Pod" => news::<PodPart, _, String>(object, broker_pod)?,
            kind => anyhow::bail!("no watch shows a {kind}"),
        };
        self.turns.see(news);
        Ok(())
    }

    /// Runs the turns that are due now. Returns the number of requests that they send.
    pub fn run(&mut self) -> anyhow::Result<usize> {
        // Time for what has changed to be looked at again.
        self.instant += Duration::from_millis(20);
        let now = Now {
            clock: Timestamp::now(),
            instant: self.instant,
        };
        let mut sent = 0;
        loop {
            let requests = self.turns.step(now);
            let wakes_at = self.turns.wakes_at(now.instant);
            if requests.is_empty() && wakes_at.is_none_or(|at| at > now.instant) {
                return Ok(sent);
            }
            for (part, request) in requests {
                sent += 1;
                let answer = self.answer(&request)?;
                self.turns.answered(part, &request, answer, now);
            }
        }
    }

    fn answer(&mut self, request: &Request) -> anyhow::Result<Answer> {
        use super::status::plan::Object;
        Ok(match request {
            Request::Look(_) => Answer::Pods(Pods::Unknown),
            Request::Status(action) => {
                let Object::Configuration(key) = &action.object else {
                    return Ok(Answer::Written(Written::new(Outcome::Done)));
                };
                let mut patch = action.patch.clone();
                // A test for `null` holds of what is not there, and fails in this crate.
                (patch.0).retain(|o| !matches!(o, PatchOperation::Test(_)));
                let mut object = serde_json::to_value(&*self.turns.world().configurations[key])?;
                json_patch::patch(&mut object, &patch)?;
                self.version += 1;
                object["metadata"]["resourceVersion"] = self.version.to_string().into();
                let written: Configuration = serde_json::from_value(object)?;
                Answer::Written(Written::with(answered(written, |c| c)))
            }
            Request::Device(_) | Request::Service(_) | Request::List(_) | Request::Eviction(_) => {
                Answer::Written(Written::new(Outcome::Done))
            }
            Request::Broker(action) => anyhow::bail!("a broker is missing: {action:?}"),
        })
    }
}

fn news<K, T, Name>(object: Value, reduce: impl Fn(K) -> T) -> anyhow::Result<News>
where
    K: Resource + DeserializeOwned,
    Name: From<String>,
    News: From<Vec<Change<T, Name>>>,
{
    let object: K = serde_json::from_value(object)?;
    Ok(vec![answered(object, reduce)].into())
}
