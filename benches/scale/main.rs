//! Measures how the cost of a cluster grows with its nodes: hundreds of agents in this process, each with the real
//! store, plans and client, against a real API server and a real controller. Their devices are simulated, and their
//! Nodes are objects without machines.
//!
//! `just scale` starts the cluster and runs this; see docs/scale.md.
#![allow(clippy::unwrap_used, reason = "a measurement that fails ends the run")]
#![allow(clippy::print_stdout, reason = "the table is what it is for")]
mod api_server;
mod claims;
mod fleet;
mod report;
mod scenarios;
mod watched;

use clap::Parser;
use report::Report;
use scenarios::World;
use std::{path::PathBuf, process::ExitCode};

/// Measures agents by the hundred against one API server.
#[derive(Debug, Parser)]
struct Flags {
    /// The numbers of agents, with one run for each
    #[arg(long, value_delimiter = ',', default_values_t = [50, 500])]
    agents: Vec<usize>,
    /// The number of devices that only one node sees, for each node
    #[arg(long, default_value_t = 10)]
    own_devices: usize,
    /// The account of the agents, as the chart names it
    #[arg(long, default_value = "system:serviceaccount:petiole:petiole-agent")]
    account: String,
    /// A shell command that ends the API server as a crash would and returns when it serves again
    #[arg(long, value_name = "COMMAND")]
    restart: Option<String>,
    /// Write the table to this file, with the machine it was made on
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Fail if a value exceeds its budget
    #[arg(long)]
    check: bool,
    /// Cargo sets this when it benchmarks, and not when it tests
    #[arg(long, hide = true)]
    bench: bool,
}

// On one thread, each claim would wait for the work of all agents, whatever the cores of the machine.
#[tokio::main]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    if !flags.bench {
        return ExitCode::SUCCESS; // `cargo test --all-targets`: that it builds is enough
    }
    let mut report = Report::new(flags.agents.clone());
    for (round, agents) in flags.agents.iter().enumerate() {
        let mut world = World::begin(&flags, *agents).await;
        world.measure_all(&mut report).await;
        if round + 1 < flags.agents.len() {
            world.end().await; // the cluster ends with the last
        }
    }
    println!("{}", report.table());
    if let Some(path) = &flags.report {
        std::fs::write(path, report.page()).unwrap();
    }
    let over = report.over_budget();
    for line in &over {
        println!("over budget: {line}");
    }
    if flags.check && !over.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
