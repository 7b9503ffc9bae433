//! Formats measured values as a table and a page.
use std::{fmt::Write as _, fs, process::Command, time::Duration};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
    Megabytes,
    Kilobytes,
}

/// A row of the table.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) unit: Unit,
    /// The budget; absent for values that are only shown.
    pub(super) budget: Option<f64>,
    /// The name of the measurement.
    pub(super) name: &'static str,
    pub(super) values: Vec<f64>,
}

impl Unit {
    pub(super) fn of(self, time: Duration) -> f64 {
        match self {
            Self::Milliseconds => time.as_secs_f64() * 1e3,
            Self::Seconds | Self::Megabytes | Self::Kilobytes => time.as_secs_f64(),
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Seconds => format!("{value:.2} s"),
            Self::Milliseconds => format!("{value:.2} ms"),
            Self::Megabytes => format!("{value:.1} MB"),
            Self::Kilobytes => format!("{value:.1} kB"),
        }
    }
}

impl Row {
    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        }
    }

    fn worst(&self) -> f64 {
        self.sorted()[self.values.len() - 1]
    }

    pub(super) fn is_over_budget(&self) -> bool {
        self.budget.is_some_and(|budget| self.median() > budget)
    }
}

pub(super) fn table(rows: &[Row]) -> String {
    let mut table =
        "| what | budget | measured: median (worst) | name |\n|---|---|---|---|\n".to_owned();
    for row in rows {
        let budget = row.budget.map_or_else(String::new, |b| match row.unit {
            Unit::Seconds => format!("{b} s"),
            Unit::Milliseconds => format!("{b} ms"),
            Unit::Megabytes => format!("{b} MB"),
            Unit::Kilobytes => format!("{b} kB"),
        });
        let (median, worst) = (row.unit.show(row.median()), row.unit.show(row.worst()));
        let verdict = if row.is_over_budget() {
            " **over**"
        } else {
            ""
        };
        writeln!(
            table,
            "| {} | {budget} | {median} ({worst}){verdict} | `{}` |",
            row.what, row.name
        )
        .unwrap();
    }
    table
}

/// Returns the text of `docs/performance.md`.
pub(super) fn page(table: &str, load_before: &str, runs: usize) -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find(|l| l.starts_with("model name"));
    let model = model
        .and_then(|l| l.split(": ").nth(1))
        .unwrap_or("unknown");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let total = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = total
        .lines()
        .next()
        .and_then(|l| l.split_whitespace().nth(1)?.parse::<f64>().ok());
    let dirty = if output(
        "git",
        &[
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            "crates",
            "src",
            "Cargo.toml",
            "Cargo.lock",
        ],
    )
    .is_empty()
    {
        ""
    } else {
        ", with changes"
    };
    format!(
        include_str!("page.md"),
        commit = output("git", &["rev-parse", "--short=12", "HEAD"]),
        dirty = dirty,
        date = jiff::Timestamp::now().strftime("%Y-%m-%d"),
        model = model,
        cores = cores,
        memory = total.unwrap_or_default() * 1024.0 / 1e9,
        kernel = kernel.trim(),
        rustc = output("rustc", &["--version"]),
        load_before = load_before,
        load_after = load(),
        runs = runs,
        table = table.trim_end(),
    )
}

/// Returns the load of the machine in the last minute.
pub(super) fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |e| format!("{program}: {e}"),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
