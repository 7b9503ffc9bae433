//! The metrics of the process itself, with the names that Prometheus' own libraries use. They are read from `/proc` at each
//! request; another system than Linux has none.
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use std::{fmt, fs};

/// The ticks of a second in `/proc`. The kernel shows 100 to programs on all architectures that are built.
const TICKS: f64 = 100.0;

/// The numbers of this process in `/proc`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Usage {
    cpu_seconds: f64,
    resident_bytes: f64,
    /// The start of the process, in seconds since 1970.
    started: f64,
}

#[derive(Debug)]
pub(super) struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(usage) = read() else { return Ok(()) };
        let cpu = encoder.encode_descriptor(
            "process_cpu_seconds",
            "Seconds of processor time that the process has used",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(usage.cpu_seconds).encode(cpu)?;
        let memory = encoder.encode_descriptor(
            "process_resident_memory_bytes",
            "Bytes of memory that the process occupies",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(usage.resident_bytes).encode(memory)?;
        let started = encoder.encode_descriptor(
            "process_start_time_seconds",
            "The time when the process was started, in seconds since 1970",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(usage.started).encode(started)
    }
}

fn read() -> Option<Usage> {
    let text = |path: &str| fs::read_to_string(path).ok();
    usage(
        &text("/proc/self/stat")?,
        &text("/proc/self/status")?,
        &text("/proc/stat")?,
    )
}

/// Returns what the three files of `/proc` say. `None` if one of them has another form.
fn usage(stat: &str, status: &str, system: &str) -> Option<Usage> {
    // The name of the program is in parentheses, and may have spaces and parentheses in it.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    let line = |text: &str, key: &str| -> Option<f64> {
        let value = text.lines().find_map(|line| line.strip_prefix(key))?;
        value.split_ascii_whitespace().next()?.parse().ok()
    };
    Some(Usage {
        cpu_seconds: (ticks(11)? + ticks(12)?) / TICKS,
        resident_bytes: line(status, "VmRSS:")? * 1024.0,
        started: line(system, "btime ")? + ticks(19)? / TICKS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read_whatever_the_program_is_called() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 1 0 1200 1 2 3";
        let status = "Name:\ta\nVmRSS:\t    2048 kB\n";
        let system = "cpu  1 2 3\nbtime 1700000000\n";
        let expected = Usage {
            cpu_seconds: 3.0,
            resident_bytes: 2_097_152.0,
            started: 1_700_000_012.0,
        };
        assert_eq!(usage(stat, status, system), Some(expected));
        assert_eq!(usage("7 a S 1", status, system), None);
        assert_eq!(usage(stat, "", system), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_and_a_beginning() {
        let usage = read().unwrap();
        assert!(usage.resident_bytes > 1e6, "{usage:?}");
        assert!(usage.started > 1.5e9, "{usage:?}");
    }
}
