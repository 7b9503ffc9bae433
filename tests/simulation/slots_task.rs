//! Runs the claims and releases of an agent: the loop of `agent::slots`, with its order, its tries and its timeouts.
//!
//! The real `SlotTable` and `agent::slots::plan` decide which slots answer a claim, which are released, and who their
//! owners are meanwhile.
use super::agent::Agent;
use crate::{
    agent::connections::given,
    agent::slots::plan::{remembered, still_free, still_unused, still_written},
    model::{
        instance_name::InstanceName,
        slot::SlotId,
        slot_table::{Claim, Resource, SlotChange},
    },
    store::{Exchange, StoreError},
};
use futures::{
    StreamExt as _,
    future::{LocalBoxFuture, join_all},
    stream::FuturesUnordered,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    rc::Rc,
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
const LATE_TIMEOUT: Duration = Duration::from_secs(30);
const TRIES: usize = 3;
const OBSERVED_WITHIN: Duration = Duration::from_millis(300);

pub(super) enum Request {
    Claim(ClaimRequest),
    Release {
        changes: Vec<SlotChange>,
        begun: Duration,
    },
    Adopt {
        changes: Vec<SlotChange>,
    },
}

pub(super) struct ClaimRequest {
    pub(super) resource: Resource,
    pub(super) containers: Vec<Vec<String>>,
    pub(super) gone: BTreeSet<SlotId>,
    pub(super) connection_digest: BTreeMap<InstanceName, String>,
    pub(super) reply: oneshot::Sender<Result<Claim, String>>,
}

type Beside = Pin<Box<dyn Future<Output = ()>>>;

pub(super) async fn run(agent: Rc<Agent>, mut requests: mpsc::UnboundedReceiver<Request>) {
    let mut beside: FuturesUnordered<Beside> = FuturesUnordered::new();
    let mut claiming: Option<LocalBoxFuture<'static, Option<Beside>>> = None;
    loop {
        if let Some(claim) = &mut claiming {
            tokio::select! {
                biased;
                late = claim => {
                    claiming = None;
                    beside.extend(late);
                }
                Some(()) = beside.next() => {}
            }
            continue;
        }
        tokio::select! {
            biased;
            Some(()) = beside.next() => {}
            request = requests.recv() => match request {
                None => return,
                Some(Request::Claim(request)) => {
                    claiming = Some(Box::pin(claim(agent.clone(), request)));
                }
                Some(Request::Release { changes, begun }) => {
                    beside.push(release(&agent, changes, begun));
                }
                Some(Request::Adopt { changes }) => beside.push(adopt(&agent, changes)),
            }
        }
    }
}

fn release(agent: &Rc<Agent>, changes: Vec<SlotChange>, begun: Duration) -> Beside {
    let changes = still_unused(changes, &agent.slots.borrow().held(), begun);
    write_back(agent, without_connections(changes))
}

fn adopt(agent: &Rc<Agent>, changes: Vec<SlotChange>) -> Beside {
    let changes = still_free(changes, &agent.slots.borrow());
    write_back(agent, without_connections(changes))
}

fn without_connections(changes: Vec<SlotChange>) -> Vec<Exchange> {
    let exchange = |change| Exchange {
        change,
        connection_digest: None,
    };
    changes.into_iter().map(exchange).collect()
}

async fn claim(agent: Rc<Agent>, request: ClaimRequest) -> Option<Beside> {
    if request.reply.is_closed() {
        return None;
    }
    let mut tries = 0;
    let (claim, undo) = loop {
        tries += 1;
        match prepared(&agent, &request) {
            Err(refusal) => {
                request.reply.send(Err(refusal)).ok();
                return None;
            }
            Ok((claim, exchanges, undo)) => match write(&agent, &claim, exchanges).await {
                Written::Done => break (claim, undo),
                Written::Refused(StoreError::SlotTaken { .. }) if tries < TRIES => {
                    write_back(&agent, undo).await;
                    observed(&agent, &request, &claim).await;
                }
                Written::Refused(error) => {
                    request.reply.send(Err(error.to_string())).ok();
                    return Some(write_back(&agent, undo));
                }
                Written::Late(rest) => {
                    request.reply.send(Err("too late".to_owned())).ok();
                    return Some(undo_late(agent, claim, rest, undo));
                }
            },
        }
    };
    let is_given_up = request.reply.send(Ok(claim)).is_err();
    (is_given_up && !undo.is_empty()).then(|| write_back(&agent, undo))
}

async fn observed(agent: &Agent, request: &ClaimRequest, failed: &Claim) {
    let mut slots = agent.slots.subscribe();
    let is_observed = slots.wait_for(|slots| {
        slots
            .plan_claim(&request.resource, &request.containers, &request.gone)
            .as_ref()
            != Ok(failed)
    });
    let machine = agent.machine();
    drop(
        machine
            .timeout(OBSERVED_WITHIN, Box::pin(is_observed))
            .await,
    );
}

fn undo_late(agent: Rc<Agent>, claim: Claim, rest: Write, undo: Vec<Exchange>) -> Beside {
    Box::pin(async move {
        agent.machine().timeout(LATE_TIMEOUT, rest).await;
        let changes: Vec<SlotChange> = claim.changes().cloned().collect();
        agent
            .slots
            .send_modify(|slots| slots.settle(&changes, None));
        write_back(&agent, undo).await;
    })
}

type Prepared = (Claim, Vec<Exchange>, Vec<Exchange>);

fn prepared(agent: &Agent, request: &ClaimRequest) -> Result<Prepared, String> {
    let planned =
        (agent.slots.borrow()).plan_claim(&request.resource, &request.containers, &request.gone);
    let claim = planned.map_err(|e| e.to_string())?;
    let instances = agent.store.instances.borrow().clone();
    let (mut exchanges, mut undo) = (vec![], vec![]);
    for change in claim.changes() {
        let connection_digest =
            (request.connection_digest.get(&change.slot.instance)).ok_or("the devices changed")?;
        exchanges.push(Exchange {
            change: change.clone(),
            connection_digest: Some(connection_digest.clone()),
        });
        if change.from != change.to {
            let back = SlotChange {
                from: change.to.clone(),
                to: change.from.clone(),
                ..change.clone()
            };
            let connection_digest =
                given(&agent.slots.borrow(), &instances, &change.key, &change.slot);
            undo.push(Exchange {
                change: back,
                connection_digest,
            });
        }
    }
    Ok((claim, exchanges, undo))
}

type Write = Pin<Box<dyn Future<Output = Result<(), StoreError>>>>;

enum Written {
    Done,
    Refused(StoreError),
    Late(Write),
}

async fn write(agent: &Rc<Agent>, claim: &Claim, exchanges: Vec<Exchange>) -> Written {
    let changes: Vec<SlotChange> = claim.changes().cloned().collect();
    agent.slots.send_modify(|slots| slots.begin(&changes));
    let store = agent.store.clone();
    let (_, others) = remembered(exchanges.clone(), &agent.slots.borrow());
    let mut exchange: Write = Box::pin(async move {
        match others.is_empty() {
            true => Ok(()),
            false => store.exchange(others).await,
        }
    });
    let written = agent.machine().timeout(WRITE_TIMEOUT, &mut exchange).await;
    let Some(written) = written else {
        return Written::Late(exchange);
    };
    let answered = written.is_ok().then(|| agent.uptime());
    settle(agent, &exchanges, answered);
    match written {
        Ok(()) => Written::Done,
        Err(error) => Written::Refused(error),
    }
}

fn write_back(agent: &Rc<Agent>, exchanges: Vec<Exchange>) -> Beside {
    let instances = agent.store.instances.borrow().clone();
    let (own, others) = remembered(exchanges, &agent.slots.borrow());
    settle(agent, &own, Some(agent.uptime()));
    let exchanges = still_written(others, &instances);
    let changes: Vec<_> = exchanges.iter().map(|e| e.change.clone()).collect();
    agent.slots.send_modify(|slots| slots.begin(&changes));
    let agent = agent.clone();
    Box::pin(async move {
        join_all(exchanges.into_iter().map(|e| give_back(&agent, e))).await;
    })
}

fn settle(agent: &Agent, exchanges: &[Exchange], written: Option<Duration>) {
    let changes: Vec<SlotChange> = exchanges.iter().map(|e| e.change.clone()).collect();
    agent.slots.send_modify(|slots| {
        slots.settle(&changes, written);
        for exchange in exchanges.iter().filter(|_| written.is_some()) {
            slots.tell(&exchange.change.slot, exchange.connection_digest.clone());
        }
    });
}

async fn give_back(agent: &Rc<Agent>, exchange: Exchange) {
    let change = exchange.change.clone();
    let write = Box::pin(agent.store.exchange(vec![exchange]));
    let written = agent.machine().timeout(WRITE_TIMEOUT, write).await;
    let done = matches!(written, Some(Ok(()))).then(|| agent.uptime());
    (agent.slots).send_modify(|slots| slots.settle(std::slice::from_ref(&change), done));
}
