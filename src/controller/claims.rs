//! Offers the devices of Configurations with `allocation: DRA` to the scheduler: ResourceSlices with the devices, and a DeviceClass
//! for each Configuration. Only the holder of the Lease writes them.
//!
//! The loop of the controller says what is to be there, after each change; the two tasks here make it so.
mod classes;
mod recall;

use super::{outcome::Problems, shared::Shared};
use crate::{
    api::{configuration::Problem, reason::Reason},
    model::{dra, typed_names::ConfigurationKey},
    publish,
};
use classes::Refused;
use petiole_base::collect::CollectMap as _;
use petiole_dra::slices::{PoolState, Publisher, Scope};
use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// The time for which a problem lasts before it is said: what another replica has just written, or an API server that begins, refuses once.
const LASTS: Duration = Duration::from_secs(5);

/// Keeps the objects as the loop wants them, until `shutdown`.
pub(super) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (mut offered, mut is_leader) = (shared.offered.subscribe(), shared.is_leader.clone());
    let keep = async {
        loop {
            // That of a reign that ended before its first plan is old by the next one.
            shared.recalled.send_replace(None);
            is_leader.wait_for(|leads| *leads).await?;
            let recalled = recall::recall(&shared.client).await;
            shared.recalled.send_replace(Some(Arc::new(recalled)));
            let first = tokio::select! {
                biased; // what is simulated has one order
                first = offered.wait_for(Option::is_some) => first?.clone(),
                lost = is_leader.wait_for(|leads| !*leads) => lost.map(|_| None)?,
            };
            let Some(first) = first else {
                continue;
            };
            info!("devices are offered to the scheduler");
            let (pools, published) = watch::channel(first.pools.clone());
            let (client, driver) = (shared.client.clone(), dra::DRIVER.to_owned());
            let publisher = Publisher::new(client.clone(), driver, Scope::Shared, published);
            let states = publisher.states();
            let (refuse, refused) = watch::channel(Refused::new());
            let follow = async {
                loop {
                    offered.changed().await?;
                    let Some(now) = offered.borrow_and_update().clone() else {
                        return anyhow::Ok(());
                    };
                    publish::if_changed(&pools, now.pools.clone());
                }
            };
            tokio::select! {
                biased; // what is simulated has one order
                followed = follow => followed?,
                () = publisher.run() => {}
                () = classes::keep(client, shared.offered.subscribe(), &refuse) => {}
                () = report(states, refused, &shared.not_offered) => {}
            }
        }
    };
    shutdown
        .run_until_cancelled(Box::pin(keep))
        .await
        .unwrap_or(Ok(()))
}

/// Says what is amiss with pools and classes, for the conditions of their Configurations.
async fn report(
    mut states: watch::Receiver<BTreeMap<String, PoolState>>,
    mut refused: watch::Receiver<Refused>,
    to: &watch::Sender<Problems>,
) {
    loop {
        let now = problems(&states.borrow_and_update(), &refused.borrow_and_update());
        let mut changed = pin!(async {
            tokio::select! {
                biased; // what is simulated has one order
                changed = states.changed() => changed,
                changed = refused.changed() => changed,
            }
        });
        let soon = if now.is_empty() {
            None
        } else {
            timeout(LASTS, changed.as_mut()).await.ok()
        };
        let changed = match soon {
            Some(changed) => changed,
            None => {
                publish::if_changed(to, now);
                changed.await
            }
        };
        if changed.is_err() {
            return;
        }
    }
}

fn problems(states: &BTreeMap<String, PoolState>, refused: &Refused) -> Problems {
    let problem = |(pool, state): (&String, &PoolState)| {
        let problem = match state {
            PoolState::Published => return None,
            PoolState::Trimmed(device) => Problem::new(
                Reason::SlotsNotShared,
                format!(
                    "the API server keeps no capacity of device {device}, so the scheduler gives all its slots to one claim: let the cluster have Kubernetes 1.36 with the feature gate DRAConsumableCapacity, or set spec.capacity to 1"
                ),
            ),
            PoolState::Failed(error) => Problem::new(
                Reason::SlicesRefused,
                format!("the devices are not offered to the scheduler, it is tried again: {error}"),
            ),
        };
        Some((dra::configuration_of(pool)?, problem))
    };
    let of_class = |(of, why): (&ConfigurationKey, &String)| {
        let message = format!("Pods get the devices by no claim, it is tried again: {why}");
        (of.clone(), Problem::new(Reason::SlicesRefused, message))
    };
    let of_pools = states.iter().filter_map(problem);
    refused.iter().map(of_class).chain(of_pools).collect_map()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::fixtures::Fake;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn what_was_read_for_a_reign_without_a_plan_is_not_there_for_the_next_one() {
        let mut fake = Fake::new(|_| (200, serde_json::json!({"metadata": {}, "items": []})));
        let (lead, is_leader) = watch::channel(true);
        fake.shared.is_leader = is_leader;
        let shared = Arc::new(fake.shared);
        let mut recalled = shared.recalled.subscribe();
        let reigns = async {
            for leads in [false, true] {
                recalled
                    .wait_for(|its| its.is_some() != leads)
                    .await
                    .unwrap();
                lead.send_replace(leads);
            }
            recalled.wait_for(Option::is_some).await.unwrap();
        };
        tokio::select! {
            ended = run(shared.clone(), CancellationToken::new()) => panic!("{ended:?}"),
            in_time = timeout(LASTS, reigns) => in_time.unwrap(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_problem_is_said_when_it_has_lasted_and_its_end_at_once() {
        let pools = |state| BTreeMap::from([("lab/cam".to_owned(), state)]);
        let failed = || pools(PoolState::Failed("conflict".to_owned()));
        let (states, seen) = watch::channel(failed());
        let (refuse, refused) = watch::channel(Refused::new());
        let to = watch::Sender::new(Problems::new());
        let mut said = to.subscribe();
        let sequence = async {
            sleep(LASTS / 2).await;
            states.send_replace(pools(PoolState::Published));
            sleep(LASTS * 2).await;
            assert!(!said.has_changed().unwrap(), "it has passed");
            let begun = Instant::now();
            states.send_replace(failed());
            said.changed().await.unwrap();
            assert_eq!(begun.elapsed(), LASTS);
            states.send_replace(pools(PoolState::Published));
            said.changed().await.unwrap();
            assert!(said.borrow_and_update().is_empty() && begun.elapsed() == LASTS);
            let of = ConfigurationKey::new("lab", "cam");
            refuse.send_replace(Refused::from([(of, "it exists".to_owned())]));
            said.changed().await.unwrap();
            assert_eq!(begun.elapsed(), LASTS * 2);
        };
        tokio::select! {
            () = report(seen, refused, &to) => panic!("it goes on"),
            () = sequence => {}
        }
    }

    #[test]
    fn a_pool_that_the_server_does_not_take_as_it_is_is_a_problem_of_its_configuration() {
        let state = |pool: &str, state| (format!("lab/{pool}"), state);
        let problems = problems(
            &BTreeMap::from([
                state("a", PoolState::Published),
                state("b", PoolState::Trimmed("b-1".to_owned())),
                state("c", PoolState::Failed("no rights".to_owned())),
            ]),
            &Refused::new(),
        );
        let said = problems
            .iter()
            .map(|(key, problem)| (key.to_string(), problem.reason.as_str()));
        let expected = [("lab/b", "SlotsNotShared"), ("lab/c", "SlicesRefused")];
        assert!(
            said.eq(expected.map(|(key, reason)| (key.to_owned(), reason))),
            "{problems:?}"
        );
    }
}
