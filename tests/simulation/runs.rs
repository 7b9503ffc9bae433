//! Selects the seeds: a few in every test run, and many on request.
use super::{Run, run};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// The number of seeds for which a test run has time.
const FEW: u64 = 48;

/// Runs seeds on all processors. Returns the broken promises by seed. Without `goes_on` no seed is started after the
/// first failure.
fn run_all(first: u64, count: u64, goes_on: bool) -> BTreeMap<u64, String> {
    let next = AtomicU64::new(first);
    let failed: Mutex<BTreeMap<u64, String>> = Mutex::default();
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let is_over = !goes_on && !failed.lock().unwrap().is_empty();
            if seed >= first + count || is_over {
                return;
            }
            let run = std::panic::catch_unwind(|| run(seed, false).broken);
            let broken = run.unwrap_or_else(|_| Some("a panic".to_owned()));
            if let Some(broken) = broken {
                failed.lock().unwrap().insert(seed, broken);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    failed.into_inner().unwrap()
}

/// Runs a failed seed again, with its history.
fn fails(seed: u64) {
    let Run { broken, history } = run(seed, true);
    let Some(broken) = broken else {
        panic!("seed {seed} failed once and not twice: a seed must give the same history");
    };
    panic!(
        "seed {seed}: {broken}\n\n{history}\n\nseed {seed}: {broken}\nalone: just simulate --first {seed} --seeds 1"
    );
}

/// Prints each kind of broken promise without names: how often it was broken, and by which seed first.
fn print_kinds(failed: &BTreeMap<u64, String>) {
    let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (seed, broken) in failed {
        let is_name =
            |word: &&str| word.contains(['-', '"', '{', '[', '(']) || word.parse::<u64>().is_ok();
        let words = broken
            .split(' ')
            .map(|word| if is_name(&word) { "…" } else { word });
        let kind = words.collect::<Vec<_>>().join(" ");
        kinds.entry(kind).or_insert((0, *seed)).0 += 1;
    }
    for (kind, (count, seed)) in kinds {
        println!("{count:>6} times, first by seed {seed}: {kind}");
    }
}

#[test]
fn no_promise_is_broken_in_a_few_dozen_histories() {
    let failed = run_all(0, FEW, false);
    failed.keys().next().copied().into_iter().for_each(fails);
}

#[test]
fn a_seed_gives_the_same_history_again() {
    for seed in 0..2 {
        let [first, again] = [run(seed, true), run(seed, true)].map(|run| run.history);
        let lines = first.lines().zip(again.lines());
        if let Some((first, again)) = { lines }.find(|(first, again)| first != again) {
            panic!("seed {seed}: once {first}\n and then {again}");
        }
        assert_eq!(first.len(), again.len(), "seed {seed}");
    }
}

#[test]
#[ignore = "takes minutes: just simulate"]
#[expect(clippy::disallowed_methods, reason = "a test has no flags")]
fn no_promise_is_broken_in_any_history() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (first, count) = (
        number("SIMULATION_FIRST", 0),
        number("SIMULATION_SEEDS", 1_000),
    );
    let goes_on = number("SIMULATION_GOES_ON", 0) == 1;
    let begun = tokio::time::Instant::now();
    let failed = run_all(first, count, goes_on);
    print_kinds(&failed);
    failed.keys().next().copied().into_iter().for_each(fails);
    let seconds = begun.elapsed().as_secs();
    println!("{count} histories from seed {first} on, in {seconds} s: every promise held");
}
