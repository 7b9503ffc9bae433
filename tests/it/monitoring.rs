//! The alerts and the dashboard of the chart ask for series that exist, alerts lead to a section of `docs/alerts.md`, and
//! Prometheus itself reads the queries and fires the alerts (`promtool`, of Debian's package `prometheus`).
use crate::{
    chart_renders::{helm, render},
    pages::page::{Page, read, root},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

/// Labels that the scrape adds, and that of a histogram's bucket.
const LABELS_OF_A_SCRAPE: [&str; 4] = ["instance", "job", "le", "pod"];

fn rules() -> Option<Value> {
    let output = render(&helm()?, &["monitor.rules.enabled=true"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = serde_saphyr::from_multiple::<Value>(&text).unwrap();
    let is_rule = |document: &&Value| document["kind"] == "PrometheusRule";
    documents.iter().find(is_rule).cloned()
}

fn alerts(rules: &Value) -> Vec<&Value> {
    let rules = rules["spec"]["groups"][0]["rules"].as_array();
    rules.unwrap().iter().collect()
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    let found = value.pointer(path).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("no text {path} in {value}"))
}

/// Returns the queries of the dashboard.
fn dashboard_queries() -> Vec<String> {
    let path = root().join("charts/petiole/dashboards/petiole.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut queries: Vec<String> = targets
        .map(|target| text(target, "/expr").to_owned())
        .collect();
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if variable["type"] == "query" {
            let query = text(variable, "/query/query");
            let series = query.strip_prefix("label_values(").unwrap();
            queries.push(series.rsplit_once(", ").unwrap().0.to_owned());
        }
    }
    queries
}

fn page_queries(page: &Page) -> Vec<String> {
    let blocks = page
        .blocks()
        .into_iter()
        .filter(|block| block.language == "promql");
    blocks.map(|block| block.lines.join("\n")).collect()
}

fn queries() -> Vec<String> {
    let mut queries = dashboard_queries();
    queries.extend(page_queries(&read("docs/metrics.md")));
    if let Some(rules) = rules() {
        queries.extend(
            alerts(&rules)
                .iter()
                .map(|alert| text(alert, "/expr").to_owned()),
        );
    }
    queries
}

/// Returns the names of series that can be asked for, with their labels. A unit test compares the page with the program.
fn served() -> BTreeMap<String, BTreeSet<String>> {
    let page = read("docs/metrics.md");
    let rows = page.text.lines().filter(|line| line.starts_with("| `"));
    let mut served = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        let labels = cells[3].split('`').skip(1).step_by(2);
        let labels: BTreeSet<String> = labels
            .chain(LABELS_OF_A_SCRAPE)
            .map(str::to_owned)
            .collect();
        let suffixes: &[&str] = match cells[2] {
            "histogram" => &["_bucket", "_count", "_sum"],
            _ => &[""],
        };
        for suffix in suffixes {
            served.insert(format!("{name}{suffix}"), labels.clone());
        }
    }
    served
}

/// Returns the series of a query with the labels that it selects by.
fn series(query: &str) -> Vec<(String, Vec<String>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = vec![];
    let mut rest = query;
    while let Some(start) = rest.find(is_name) {
        let (name, after) = rest[start..].split_at(
            rest[start..]
                .find(|c| !is_name(c))
                .unwrap_or(rest.len() - start),
        );
        rest = after;
        if !["akri_", "petiole_", "process_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            continue;
        }
        let mut labels = vec![];
        if let Some((selectors, after)) = after
            .strip_prefix('{')
            .and_then(|after| after.split_once('}'))
        {
            let selectors = selectors
                .split('"')
                .step_by(2)
                .map(|part| part.trim_matches([',', ' ']));
            let selectors = selectors.map(|part| part.trim_end_matches(['=', '~', '!']));
            labels.extend(
                selectors
                    .filter(|label| !label.is_empty())
                    .map(str::to_owned),
            );
            rest = after;
        }
        found.push((name.to_owned(), labels));
    }
    found
}

#[test]
fn every_query_asks_for_series_and_labels_that_are_served() {
    let served = served();
    let mut unknown = vec![];
    for query in queries() {
        let series = series(&query);
        assert!(!series.is_empty(), "{query} asks for nothing of ours");
        for (name, labels) in series {
            match served.get(&name) {
                None => unknown.push(format!("{name}: {query}")),
                Some(known) => unknown.extend(
                    (labels.iter().filter(|label| !known.contains(*label)))
                        .map(|label| format!("{name}{{{label}}}: {query}")),
                ),
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn the_series_of_a_query_are_found() {
    let query =
        r#"rate(a_b[5m]) / petiole_x{a="1",b=~"c|d"} > akri_y and on (pod) petiole_z{c!=""}"#;
    let of = |name: &str, labels: &[&str]| {
        (
            name.to_owned(),
            labels.iter().map(|&l| l.to_owned()).collect(),
        )
    };
    let expected = [
        of("petiole_x", &["a", "b"]),
        of("akri_y", &[]),
        of("petiole_z", &["c"]),
    ];
    assert_eq!(series(query), expected);
}

#[test]
fn every_alert_leads_to_its_section_and_every_section_is_of_an_alert() {
    let Some(rules) = rules() else { return };
    let page = read("docs/alerts.md");
    let sections = page
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("## Petiole"));
    let sections: BTreeSet<String> = sections.map(|title| format!("Petiole{title}")).collect();
    let alerts = alerts(&rules);
    let names: BTreeSet<String> = alerts
        .iter()
        .map(|alert| text(alert, "/alert").to_owned())
        .collect();
    assert_eq!(names, sections);
    for alert in alerts {
        let anchor = text(alert, "/alert").to_lowercase();
        assert_eq!(
            text(alert, "/annotations/runbook_url"),
            format!("docs/alerts.md#{anchor}")
        );
    }
}

/// Runs `promtool` with `arguments` in `folder`; nothing where it is not installed.
fn promtool(folder: &Path, arguments: &[&str]) {
    match Command::new("promtool")
        .args(arguments)
        .current_dir(folder)
        .output()
    {
        Err(_) => eprintln!("SKIPPED: promtool is not installed (apt-get install prometheus)"),
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&said)
            );
        }
    }
}

#[test]
fn prometheus_parses_every_query() {
    let folder = tempfile::tempdir().unwrap();
    let values = [("$namespace", ".*"), ("$configuration", ".*")];
    let rules = queries().into_iter().enumerate().map(|(number, query)| {
        let query = values.iter().fold(query, |query, (variable, value)| {
            query.replace(variable, value)
        });
        serde_json::json!({ "record": format!("query:{number}"), "expr": query })
    });
    let rules = serde_json::json!({ "groups": [{ "name": "queries", "rules": rules.collect::<Vec<_>>() }] });
    fs::write(folder.path().join("rules.yaml"), rules.to_string()).unwrap();
    promtool(folder.path(), &["check", "rules", "rules.yaml"]);
}

#[test]
fn alerts_fire_when_they_should_and_not_before() {
    let Some(rules) = rules() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rules.yaml"), rules["spec"].to_string()).unwrap();
    let cases = root().join("tests/data/alerts.yaml");
    fs::copy(cases, folder.path().join("alerts.yaml")).unwrap();
    promtool(folder.path(), &["test", "rules", "alerts.yaml"]);
}
