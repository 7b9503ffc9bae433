//! Measures the speed and size of a node from outside: the real binary as `petiole kubelet` and `petiole agent`, its
//! sockets, its files, and its memory by the kernel.
//!
//! `cargo bench --bench node` prints a table; `-- --report docs/performance.md --check` writes it and fails if a budget
//! is exceeded.
#![allow(clippy::unwrap_used, reason = "a measurement that fails ends the run")]
#![allow(clippy::print_stdout, reason = "the table is what it is for")]
mod hostile;
mod limits;
#[path = "../../crates/petiole-mdns/tests/support/publisher.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests use the rest of it")]
mod mdns_publisher;
mod measurements;
mod node;
mod report;

use clap::Parser;
use report::Row;
use std::{path::PathBuf, process::ExitCode};

/// Measures a node of one kubelet and one agent.
#[derive(Debug, Parser)]
struct Flags {
    /// Write the table to this file, with the machine it was made on
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Fail if a median exceeds its budget
    #[arg(long)]
    check: bool,
    /// Run only the measurements whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Run each measurement this many times, on a new node each time
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: usize,
    /// Measure another build
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_petiole"))]
    binary: PathBuf,
    /// Run an agent in a cgroup with a limit of this many MiB and with everything at its limit instead; fail if it ends
    #[arg(long, value_name = "MIB")]
    memory_limit: Option<u64>,
    /// Cargo sets this when it benchmarks, and not when it tests
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    if !flags.bench {
        return ExitCode::SUCCESS; // `cargo test --all-targets`: that it builds is enough
    }
    if let Some(limit) = flags.memory_limit {
        return match limits::run(flags.binary, limit).await {
            Ok(text) => {
                println!("{text}");
                ExitCode::SUCCESS
            }
            Err(why) => {
                println!("FAILED: {why}");
                ExitCode::FAILURE
            }
        };
    }
    let load_before = report::load();
    let mut rows: Vec<Row> = vec![];
    for measurement in measurements::all() {
        if !measurement.name.contains(&flags.only) {
            continue;
        }
        let mut measured = measurement.rows();
        for run in 1..=flags.runs.max(1) {
            eprintln!("{}: {run} of {}", measurement.name, flags.runs);
            let values = (measurement.run)(flags.binary.clone()).await;
            assert_eq!(values.len(), measured.len(), "{}", measurement.name);
            for (row, value) in measured.iter_mut().zip(values) {
                row.values.push(value);
            }
        }
        rows.append(&mut measured);
    }
    let table = report::table(&rows);
    println!("{table}");
    if let Some(path) = &flags.report {
        std::fs::write(path, report::page(&table, &load_before, flags.runs)).unwrap();
    }
    let over: Vec<_> = rows.iter().filter(|row| row.is_over_budget()).collect();
    for row in &over {
        println!("over budget: {}", row.what);
    }
    if flags.check && !over.is_empty() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
