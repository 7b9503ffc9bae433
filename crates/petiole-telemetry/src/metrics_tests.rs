use super::{super::cluster::Census, *};
use std::collections::BTreeSet;

fn census() -> Census {
    let of = |value: &str| ("default".to_owned(), "cam".to_owned(), value.to_owned());
    Census {
        conditions: [(of("Ready"), (false, "ResourceTaken".to_owned()))].into(),
        problems: [(of("ResourceTaken"), 2)].into(),
        instances: [(of("available"), 3)].into(),
        troubles: [(of("Flapping"), 0)].into(),
        brokers: [(of("Running"), 1)].into(),
    }
}

/// Returns metrics in which every event has happened once.
fn touched() -> Metrics {
    let metrics = Metrics::new();
    let cam = || "cam".to_owned();
    metrics.set_instances(&[(("cam".into(), true), 2)].into());
    metrics.set_broker_pods(&[((cam(), "node-a".to_owned()), 3)].into());
    let slots = SlotCounts {
        used: 1,
        free: 2,
        unhealthy: 0,
        offered: 0,
    };
    metrics.set_slots(&[("cam".into(), slots)].into());
    metrics.set_slots_held_twice(1);
    metrics.set_checkpoint_unreadable(false);
    metrics.set_plugins(3);
    metrics.set_plugins_registered(2);
    metrics.count_first_answer("zeroconf");
    metrics.observe_discovery("cam", Duration::from_millis(300));
    metrics.registrations(Registration::Registered).inc();
    metrics.claims(None).inc();
    metrics.claims(Some("full")).inc();
    drop(metrics.time_allocate());
    metrics.capacity_patches(CapacityPatch::Applied).inc();
    metrics.count_api_write(ApiWrite {
        kind: "instances",
        verb: "patch",
        code: "2xx",
    });
    metrics.events(EventOutcome::Dropped).inc();
    metrics.mdns.count_packets([("sent", 2), ("received", 0)]);
    metrics.mdns.count_records(1, 3);
    metrics.begin_agent(["zeroconf"]);
    metrics.cluster.set(true, &census());
    metrics
}

fn assert_has(metrics: &Metrics, line: &str) {
    let text = metrics.text().unwrap();
    assert!(text.lines().any(|l| l == line), "no line {line} in\n{text}");
}

#[test]
fn akris_metrics_have_the_names_and_labels_that_akri_documents() {
    let metrics = touched();
    for line in [
        "# TYPE akri_instance_count gauge",
        r#"akri_instance_count{configuration="cam",is_shared="true"} 2"#,
        // As a counter it would be written as akri_discovery_response_result_total.
        "# TYPE akri_discovery_response_result unknown",
        r#"akri_discovery_response_result{discovery_handler_name="zeroconf",result="Success"} 1"#,
        "# TYPE akri_discovery_response_time histogram",
        r#"akri_discovery_response_time_bucket{le="0.25",configuration="cam"} 0"#,
        r#"akri_discovery_response_time_bucket{le="0.5",configuration="cam"} 1"#,
        r#"akri_discovery_response_time_bucket{le="60.0",configuration="cam"} 1"#,
        "# TYPE akri_broker_pod_count gauge",
        r#"akri_broker_pod_count{configuration="cam",node="node-a"} 3"#,
    ] {
        assert_has(&metrics, line);
    }
}

#[test]
fn a_gauge_is_set_as_a_whole_and_what_is_gone_is_not_shown() {
    let metrics = touched();
    metrics.set_instances(&[(("usb".into(), false), 1)].into());
    let text = metrics.text().unwrap();
    let shown: Vec<_> = text
        .lines()
        .filter(|l| l.starts_with("akri_instance_count{"))
        .collect();
    assert_eq!(
        shown,
        [r#"akri_instance_count{configuration="usb",is_shared="false"} 1"#]
    );
}

#[test]
fn a_configuration_that_is_gone_is_forgotten() {
    let metrics = touched();
    metrics.forget_discovery("cam");
    assert!(
        !metrics
            .text()
            .unwrap()
            .contains("akri_discovery_response_time")
    );
}

#[test]
fn a_claim_has_its_reason_where_it_is_refused() {
    let metrics = touched();
    assert_has(
        &metrics,
        r#"petiole_claims_total{result="granted",reason=""} 1"#,
    );
    assert_has(
        &metrics,
        r#"petiole_claims_total{result="refused",reason="full"} 1"#,
    );
}

/// A metric as it is documented and as it is written: its name, type and labels.
type Row = (String, String, BTreeSet<String>);

/// Returns the metrics of an exposition by the names that a query uses.
fn written(text: &str) -> BTreeSet<Row> {
    let mut rows = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (family, kind) = line.split_once(' ').unwrap();
        let name = match kind {
            "counter" => format!("{family}_total"),
            "info" => format!("{family}_info"),
            _ => family.to_owned(),
        };
        let samples = text.lines().filter(|line| {
            let rest = line.strip_prefix(family).unwrap_or("#");
            rest.starts_with(['{', ' '])
                || rest.starts_with("_total")
                || rest.starts_with("_info")
                || rest.starts_with("_bucket")
        });
        let labels = samples
            .flat_map(label_names)
            .filter(|name| name != "le")
            .collect();
        rows.insert((name, kind.to_owned(), labels));
    }
    rows
}

fn label_names(sample: &str) -> Vec<String> {
    let labels = sample
        .split_once('{')
        .map_or("", |(_, rest)| rest.split_once('}').unwrap().0);
    let names = labels.split(',').filter_map(|label| label.split_once('='));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// Returns the rows of the table in `docs/metrics.md`: `name`, type, `labels`, …
fn documented() -> BTreeSet<Row> {
    let text = include_str!("../../../docs/metrics.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = cells[3]
            .split(',')
            .map(|label| label.trim().trim_matches('`'));
        let labels = labels
            .filter(|label| !label.is_empty())
            .map(str::to_owned)
            .collect();
        (
            cells[1].trim_matches('`').to_owned(),
            cells[2].to_owned(),
            labels,
        )
    })
    .collect()
}

#[test]
fn the_documentation_has_every_metric_and_no_other() {
    let (documented, written) = (documented(), written(&touched().text().unwrap()));
    let undocumented: Vec<_> = written.difference(&documented).collect();
    let untrue: Vec<_> = documented.difference(&written).collect();
    assert!(
        undocumented.is_empty() && untrue.is_empty(),
        "not in docs/metrics.md: {undocumented:#?}\nonly in docs/metrics.md: {untrue:#?}"
    );
}

#[test]
fn every_series_with_known_labels_begins_at_0() {
    let metrics = Metrics::new();
    metrics.begin_agent(["zeroconf"]);
    for line in [
        r#"petiole_claims_total{result="refused",reason="held_elsewhere"} 0"#,
        r#"petiole_claims_total{result="granted",reason=""} 0"#,
        r#"akri_discovery_response_result{discovery_handler_name="zeroconf",result="Fail"} 0"#,
        r#"petiole_plugin_registrations_total{result="no_stream"} 0"#,
        r#"petiole_capacity_patches_total{result="failed"} 0"#,
        r#"petiole_events_total{result="dropped"} 0"#,
        "petiole_allocate_duration_seconds_count 0",
    ] {
        assert_has(&metrics, line);
    }
}

#[test]
fn the_documentation_has_every_reason_of_a_refused_claim() {
    let text = include_str!("../../../docs/metrics.md");
    let row = text
        .lines()
        .find(|line| line.starts_with("| `petiole_claims_total`"));
    let (_, reasons) = row.unwrap().split_once("with one of ").unwrap();
    let reasons: Vec<&str> = reasons.split('`').skip(1).step_by(2).collect();
    assert_eq!(reasons, REFUSALS);
}

#[test]
fn a_controller_has_no_metrics_of_an_agent() {
    let metrics = Metrics::new();
    metrics.begin_controller();
    let text = metrics.text().unwrap();
    assert!(text.contains("petiole_leader 0\n"), "{text}");
    for name in ["allocate", "mdns", "plugins", "slots"] {
        assert!(!text.contains(name), "{name} in\n{text}");
    }
}

#[test]
fn the_cluster_is_counted_by_configuration() {
    for line in [
        "petiole_leader 1",
        r#"petiole_configuration_condition{namespace="default",configuration="cam",type="Ready",reason="ResourceTaken"} 0"#,
        r#"petiole_configuration_problems{namespace="default",configuration="cam",reason="ResourceTaken"} 2"#,
        r#"petiole_instances{namespace="default",configuration="cam",state="available"} 3"#,
        r#"petiole_brokers{namespace="default",configuration="cam",phase="Running"} 1"#,
    ] {
        assert_has(&touched(), line);
    }
}
