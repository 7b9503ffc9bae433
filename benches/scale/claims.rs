//! Claims and releases of slots of shared devices at a steady rate, each by the agent of another node.
use crate::{fleet::Agent, watched::Watched};
use petiole::{
    model::{
        names::ObjectKey,
        slot::{SlotId, SlotOwner},
        slot_table::SlotChange,
    },
    store::{Exchange, Store as _},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{task::JoinSet, time};

const RATE: u32 = 50;
const SECONDS: u32 = 10;

/// Claims so many slots a second for some seconds and releases them again. Returns how long each claim took.
pub(super) async fn measure(
    agents: &[Agent],
    watched: &Watched,
    configuration: &str,
) -> Vec<Duration> {
    let instances = watched.of(configuration);
    let mut ticks = time::interval(Duration::from_secs(1) / RATE);
    let mut claims = JoinSet::new();
    for number in 0..RATE * SECONDS {
        ticks.tick().await;
        let n = usize::try_from(number).unwrap();
        let (instance, agent) = (&instances[n % instances.len()], &agents[n % agents.len()]);
        let name = instance.metadata.name.clone().unwrap();
        let index = u32::try_from(n / instances.len()).unwrap();
        let claim = SlotChange {
            slot: SlotId::new(&name, index),
            key: ObjectKey::new("default", &name),
            from: None,
            to: Some(SlotOwner::Node(agent.name.clone())),
        };
        let store = agent.store.clone();
        claims.spawn(async move {
            let began = Instant::now();
            let release = SlotChange {
                from: claim.to.clone(),
                to: None,
                ..claim.clone()
            };
            exchange(&store, claim).await;
            let took = began.elapsed();
            time::sleep(Duration::from_secs(1)).await;
            exchange(&store, release).await;
            took
        });
    }
    claims.join_all().await
}

async fn exchange(store: &Arc<petiole::store::kubernetes::KubernetesStore>, change: SlotChange) {
    let exchange = Exchange { change, told: None };
    store.exchange(vec![exchange]).await.unwrap();
}

/// Returns the value that a part of all (0 to 1) does not exceed.
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
