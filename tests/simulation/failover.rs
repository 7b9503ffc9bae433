//! Measures the time without a controller that acts, in a world without faults.
use super::{World, controller::Controller, network::Weather};
use tokio::task::coop::unconstrained;

/// Returns the number of writes of the Lease.
fn writes(world: &World) -> usize {
    world.server.borrow().leases.log.len()
}

/// Ends the controller that acts by `end`, at any time or just when it has written the Lease. Returns the milliseconds until another
/// one acts.
fn without_leader(seed: u64, at_a_write: bool, end: fn(&World, &Controller)) -> u64 {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(unconstrained(async {
        let world = World::new(seed, false);
        world.weather.set(Weather::default());
        let first = world.controllers.borrow()[0].clone();
        world.machine.run_for(20_000, || first.leads()).await;
        assert!(first.leads());
        let second = Controller::start(&world, "controller-1");
        world.controllers.borrow_mut().push(second.clone());
        let wait = world.machine.between(3_000, 30_000);
        world.machine.run_for(wait, || false).await;
        let before = writes(&world);
        let is_written = || !at_a_write || writes(&world) > before;
        world.machine.run_for(9_000, is_written).await;
        assert!(first.leads() && !second.leads());
        let ended = world.machine.now();
        end(&world, &first);
        world.machine.run_for(60_000, || second.leads()).await;
        assert!(second.leads() && !first.leads());
        let taken = world.machine.now() - ended;
        world.end();
        taken
    }))
}

#[test]
fn a_controller_that_ends_is_replaced_at_once_and_one_that_is_killed_within_ten_seconds() {
    let longest = |end: fn(&World, &Controller)| {
        let seeds = (0..12).flat_map(|seed| [(seed, false), (seed, true)]);
        let times = seeds.map(|(seed, at_a_write)| without_leader(seed, at_a_write, end));
        times.max()
    };
    let ends = |_: &World, controller: &Controller| controller.stop.cancel();
    let is_killed = |world: &World, controller: &Controller| world.machine.kill(controller.process);
    let (ended, killed) = (longest(ends).unwrap(), longest(is_killed).unwrap());
    assert!(ended <= 1_000, "{ended} ms after the end of one");
    assert!(
        (5_000..=10_000).contains(&killed),
        "{killed} ms after the death of one"
    );
}
