//! Formats values as a table with the exponents of growth, and as a page.
use crate::api_server::Counters;
use std::{fmt::Write as _, fs, process::Command};

/// The ends of the rows that are printed, and are not on the page.
const DETAILS: &[&str] = &[
    "of these of NodeDevices",
    "of these refused",
    "sent by watches",
    "CPU of the API server",
    "CPU of all agents",
];

/// A row of the table.
struct Row {
    what: String,
    unit: &'static str,
    budget: Option<f64>,
    /// The value for each number of agents.
    values: Vec<f64>,
}

pub(super) struct Report {
    agents: Vec<usize>,
    rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(agents: Vec<usize>) -> Self {
        Self {
            agents,
            rows: vec![],
        }
    }

    /// Adds the value of one run. The first run creates the row.
    pub(super) fn add(&mut self, what: &str, unit: &'static str, value: f64) {
        println!("{what}: {value:.2} {unit}");
        match self.rows.iter_mut().find(|row| row.what == what) {
            Some(row) => row.values.push(value),
            None => self.rows.push(Row {
                what: what.to_owned(),
                unit,
                budget: None,
                values: vec![value],
            }),
        }
    }

    /// Sets the largest allowed value with the largest number of agents.
    pub(super) fn budget(&mut self, what: &str, budget: f64) {
        let row = self.rows.iter_mut().find(|row| row.what == what).unwrap();
        row.budget = Some(budget);
    }

    /// Adds the work of the API server in that time.
    pub(super) fn add_counters(&mut self, what: &str, spent: Counters) {
        self.add(&format!("{what}: writes"), "requests", spent.writes);
        self.add(
            &format!("{what}: of these of NodeDevices"),
            "requests",
            spent.reports,
        );
        self.add(
            &format!("{what}: of these refused"),
            "requests",
            spent.conflicts,
        );
        self.add(
            &format!("{what}: sent by watches"),
            "MB",
            spent.watch_megabytes,
        );
        self.add(
            &format!("{what}: CPU of the API server"),
            "s",
            spent.cpu_seconds,
        );
        self.add(
            &format!("{what}: CPU of all agents"),
            "s",
            spent.agents_cpu_seconds,
        );
    }

    pub(super) fn over_budget(&self) -> Vec<String> {
        let over = self.rows.iter().filter_map(|row| {
            let value = *row.values.last()?;
            let budget = row.budget.filter(|budget| value > *budget)?;
            Some(format!(
                "{}: {value:.2} {} (budget {budget})",
                row.what, row.unit
            ))
        });
        over.collect()
    }

    pub(super) fn table(&self) -> String {
        let mut table = "| what | budget |".to_owned();
        for agents in &self.agents {
            write!(table, " {agents} agents |").unwrap();
        }
        table.push_str(" grows as n^ |\n|---|---|");
        table.push_str(&"---|".repeat(self.agents.len() + 1));
        table.push('\n');
        let is_detail = |row: &Row| DETAILS.iter().any(|detail| row.what.ends_with(detail));
        let is_shown = |row: &&Row| row.budget.is_some() || !is_detail(row);
        for row in self.rows.iter().filter(is_shown) {
            let budget = row
                .budget
                .map_or_else(String::new, |b| format!("{b} {}", row.unit));
            write!(table, "| {} | {budget} |", row.what).unwrap();
            for value in &row.values {
                let is_over = row.budget.is_some_and(|budget| *value > budget);
                let over = if is_over { " **over**" } else { "" };
                match row.unit {
                    "requests" => {
                        let count = format!("{value:.1}");
                        write!(table, " {}{over} |", count.trim_end_matches(".0")).unwrap();
                    }
                    unit => write!(table, " {value:.2} {unit}{over} |").unwrap(),
                }
            }
            writeln!(table, " {} |", self.exponent(&row.values)).unwrap();
        }
        table
    }

    #[expect(clippy::cast_precision_loss, reason = "some hundred agents")]
    fn exponent(&self, values: &[f64]) -> String {
        let ([first, .., last], [few, .., many]) = (values, self.agents.as_slice()) else {
            return String::new();
        };
        // The growth of a very small value is noise.
        if *first < 0.01 || *last < 0.1 {
            return String::new();
        }
        let exponent = (last / first).ln() / (*many as f64 / *few as f64).ln();
        format!("{exponent:.1}")
    }

    pub(super) fn page(&self) -> String {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu.lines().find_map(|l| l.strip_prefix("model name"));
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        format!(
            include_str!("page.md"),
            commit = output(
                "git",
                &[
                    "-C",
                    env!("CARGO_MANIFEST_DIR"),
                    "rev-parse",
                    "--short=12",
                    "HEAD"
                ]
            ),
            date = jiff::Timestamp::now().strftime("%Y-%m-%d"),
            model = model.map_or("unknown", |model| model
                .trim_start_matches([' ', '\t', ':'])),
            cores = cores,
            load = load.split(' ').next().unwrap_or_default(),
            table = self.table().trim_end(),
        )
    }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |e| format!("{program}: {e}"),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
