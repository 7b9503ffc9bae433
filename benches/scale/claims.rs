//! Claims and releases slots of shared devices at a steady rate, each by the agent of another node.
use crate::{fleet::Agent, watched::Watched};
use petiole::{
    model::{
        instance_name::InstanceKey,
        slot::{SlotId, SlotOwner},
        slot_table::SlotChange,
    },
    store::Store as _,
};
use std::time::Duration;
use tokio::{
    task::JoinSet,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;

const RATE: u32 = 50;
const SECONDS: u32 = 10;
pub(super) const CLAIMS: u32 = RATE * SECONDS;

/// Claims this many slots per second for some seconds, and releases all of them afterwards. Returns the duration of
/// each claim that was not refused.
pub(super) async fn measure(
    agents: &[Agent],
    watched: &Watched,
    configuration: &str,
) -> Vec<Duration> {
    let instances = watched.of(configuration);
    let mut ticks = time::interval(Duration::from_secs(1) / RATE);
    let mut claims = JoinSet::new();
    let is_over = CancellationToken::new();
    for number in 0..CLAIMS {
        ticks.tick().await;
        let n = usize::try_from(number).unwrap();
        let (instance, agent) = (&instances[n % instances.len()], &agents[n % agents.len()]);
        let name = instance.metadata.name.clone().unwrap();
        let index = u32::try_from(n / instances.len()).unwrap();
        let claim = SlotChange {
            slot: SlotId::new(name.as_str(), index),
            key: InstanceKey::new("default", name.as_str()),
            from: None,
            to: Some(SlotOwner::Node(agent.name.as_str().into())),
            connection_digest: None,
        };
        let (store, is_over) = (agent.store.clone(), is_over.clone());
        claims.spawn(async move {
            let began = Instant::now();
            let release = SlotChange {
                from: claim.to.clone(),
                to: None,
                ..claim.clone()
            };
            let claimed = store.exchange(vec![claim]).await;
            let took = began.elapsed();
            is_over.cancelled().await;
            store.exchange(vec![release]).await.ok();
            claimed.map(|()| took)
        });
    }
    is_over.cancel();
    let outcomes = claims.join_all().await;
    outcomes.into_iter().filter_map(Result::ok).collect()
}

/// Returns the value that the given part (0 to 1) of all values does not exceed.
pub(super) fn quantile(times: &[Duration], part: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index between 0 and some hundred"
    )]
    let index = ((sorted.len() - 1) as f64 * part).round() as usize;
    sorted[index]
}
