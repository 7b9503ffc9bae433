//! Tests with several agents in one folder, as far as their place goes.
use super::*;
use std::{
    future::{pending, ready},
    path::Path,
};
use tempfile::TempDir;
use tokio::task::JoinSet;

/// A time that only ends a failing test.
const PATIENCE: Duration = Duration::from_secs(15);
/// A time in which nothing happens.
const QUIET: Duration = Duration::from_millis(300);

async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    let outcome = timeout(PATIENCE, event).await;
    outcome.unwrap_or_else(|_| panic!("never: {what}"))
}

async fn holder(folder: &Path) -> Place {
    let mut place = Place::of(folder.to_owned());
    soon("the place is free", place.take(pending())).await;
    assert!(place.state().is_held() && !place.has_predecessor());
    place
}

/// Agents that stand by. Each is returned when it has the place.
fn stand_by(all: &mut JoinSet<Place>, folder: &Path) {
    let mut place = Place::of(folder.to_owned());
    all.spawn(async move {
        place.take(ready(())).await;
        place
    });
}

async fn until_waited_for(place: &Place, count: usize) {
    let all_are_there = async {
        while place.state.stand_bys.count() != count {
            sleep(Duration::from_millis(5)).await;
        }
    };
    soon("they stand by", all_are_there).await;
}

async fn next(all: &mut JoinSet<Place>) -> Place {
    let place = soon("another one has the place", all.join_next()).await;
    place.expect("one stands by").unwrap()
}

#[tokio::test]
async fn an_agent_that_is_alone_has_its_place_and_nobody_waits() {
    let folder = TempDir::new().unwrap();
    let place = holder(folder.path()).await;
    assert!(!place.is_waited_for());
    drop(place);
    let left: Vec<_> = folder.path().read_dir().unwrap().collect();
    assert_eq!(left.len(), 1, "the lock alone is left: {left:?}");
    assert!(Place::alone().state().is_held());
}

#[tokio::test]
async fn the_holder_ends_when_the_other_one_has_registered() {
    let folder = TempDir::new().unwrap();
    let mut first = holder(folder.path()).await;
    let mut others = JoinSet::new();
    stand_by(&mut others, folder.path());
    until_waited_for(&first, 1).await;
    assert!(first.is_waited_for());
    let is_ready = async {
        while !first.state.stand_bys.is_one_ready() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    soon("the other one says that it is ready", is_ready).await;
    assert!(timeout(QUIET, others.join_next()).await.is_err());

    let mut handing_over = Box::pin(first.hand_over());
    let mut second = tokio::select! {
        () = &mut handing_over => panic!("nobody has taken over"),
        second = next(&mut others) => second,
    };
    assert!(second.has_predecessor() && second.state().is_held());
    assert!(timeout(QUIET, &mut handing_over).await.is_err());
    second.let_predecessor_end();
    soon("the first one ends", handing_over).await;
    drop(first);
    assert!(!second.is_waited_for());
    // The next update finds it.
    stand_by(&mut others, folder.path());
    until_waited_for(&second, 1).await;
}

#[tokio::test]
async fn a_holder_that_is_killed_leaves_its_place_at_once_and_one_that_stands_by_may_go() {
    let folder = TempDir::new().unwrap();
    let first = holder(folder.path()).await;
    let mut others = JoinSet::new();
    stand_by(&mut others, folder.path());
    until_waited_for(&first, 1).await;
    others.shutdown().await;
    until_waited_for(&first, 0).await;
    assert!(!first.is_waited_for());

    stand_by(&mut others, folder.path());
    until_waited_for(&first, 1).await;
    drop(first);
    assert!(!next(&mut others).await.has_predecessor());
}

#[tokio::test]
async fn a_holder_does_not_wait_for_an_agent_that_dies_while_it_takes_over() {
    let folder = TempDir::new().unwrap();
    let mut first = holder(folder.path()).await;
    let mut others = JoinSet::new();
    stand_by(&mut others, folder.path());
    until_waited_for(&first, 1).await;
    let began = tokio::time::Instant::now();
    let dies = async { drop(next(&mut others).await) };
    tokio::join!(first.hand_over(), dies);
    assert!(began.elapsed() < PATIENCE);
    holder(folder.path()).await;
}

#[tokio::test]
async fn of_two_that_stand_by_one_has_the_place_and_the_other_one_waits_for_it() {
    let folder = TempDir::new().unwrap();
    let mut first = holder(folder.path()).await;
    let mut others = JoinSet::new();
    stand_by(&mut others, folder.path());
    stand_by(&mut others, folder.path());
    until_waited_for(&first, 2).await;
    let handing_over = async {
        first.hand_over().await;
        drop(first);
    };
    let taken = async {
        let mut second = next(&mut others).await;
        assert!(second.has_predecessor());
        until_waited_for(&second, 1).await;
        second.let_predecessor_end();
        second
    };
    let ((), mut second) = soon("the place changes hands", async {
        tokio::join!(handing_over, taken)
    })
    .await;
    assert!(timeout(QUIET, others.join_next()).await.is_err());
    let taken = async {
        let mut third = next(&mut others).await;
        third.let_predecessor_end();
    };
    soon("and again", async {
        tokio::join!(second.hand_over(), taken)
    })
    .await;
}

#[tokio::test]
async fn an_agent_of_an_earlier_version_is_waited_for() {
    let folder = TempDir::new().unwrap();
    let lock = files::lock(folder.path()).unwrap();
    let mut others = JoinSet::new();
    stand_by(&mut others, folder.path());
    assert!(timeout(QUIET, others.join_next()).await.is_err());
    drop(lock);
    assert!(!next(&mut others).await.has_predecessor());
}
