//! Measures what the controller plans for one changed Instance: in the parts of the world that the change touches, and in
//! the whole world, as after a change of a Node.
#![allow(
    clippy::print_stdout,
    reason = "a benchmark prints what it has measured"
)]
use petiole::controller::measured::Measured;
use std::{hint::black_box, time::Duration};
use tokio::time::Instant;

/// A plan of a large world takes seconds.
const WHOLE_ROUNDS: usize = 3;
const PART_ROUNDS: usize = 15;

fn median(rounds: usize, mut round: impl FnMut() -> Duration) -> f64 {
    let mut times: Vec<Duration> = (0..rounds).map(|_| round()).collect();
    times.sort();
    times[rounds / 2].as_secs_f64() * 1000.0
}

fn timed(run: impl FnOnce() -> usize) -> Duration {
    let began = Instant::now();
    black_box(run());
    began.elapsed()
}

fn main() -> anyhow::Result<()> {
    println!("| Instances | the whole world | the touched parts |");
    println!("|---|---|---|");
    for instances in [1_000, 10_000, 50_000] {
        let mut controller = Measured::new(instances)?;
        let whole = median(WHOLE_ROUNDS, || {
            controller.change();
            timed(|| controller.plan_whole())
        });
        let touched = median(PART_ROUNDS, || {
            controller.change();
            timed(|| controller.plan_touched())
        });
        println!("| {instances} | {whole:.1} ms | {touched:.2} ms |");
    }
    Ok(())
}
