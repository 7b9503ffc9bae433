//! The older text format of Prometheus (0.0.4), for those who do not ask for OpenMetrics: `curl`, and older scrapers.

/// The content type of [`plain`].
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns whether a client that sends this header `Accept` reads OpenMetrics.
pub(super) fn wants_open_metrics(accept: Option<&str>) -> bool {
    accept.is_some_and(|accept| accept.contains("application/openmetrics-text"))
}

/// Rewrites an exposition in the OpenMetrics format. The samples are the same; the older format calls a counter by the name
/// of its samples, has no types `info` and `unknown`, and no last line.
pub(super) fn plain(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    // HELP comes before TYPE, and needs the name that TYPE decides.
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) =
            (line.strip_prefix("# TYPE ")).and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                text.push_str(&format!("# HELP {name}{suffix} {help}\n"));
            }
            text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_has_the_same_samples_and_its_own_types() {
        let open = "# HELP a_claims Claims.\n# TYPE a_claims counter\na_claims_total{r=\"x\"} 1\n\
                    # HELP a_build It.\n# TYPE a_build info\na_build_info{v=\"1\"} 1\n\
                    # HELP a_r R.\n# TYPE a_r unknown\na_r 2\n# HELP a_s S.\n# TYPE a_s gauge\na_s 3\n# EOF\n";
        let older = "# HELP a_claims_total Claims.\n# TYPE a_claims_total counter\na_claims_total{r=\"x\"} 1\n\
                     # HELP a_build_info It.\n# TYPE a_build_info gauge\na_build_info{v=\"1\"} 1\n\
                     # HELP a_r R.\n# TYPE a_r untyped\na_r 2\n# HELP a_s S.\n# TYPE a_s gauge\na_s 3\n";
        assert_eq!(plain(open), older);
    }

    #[test]
    fn a_client_gets_open_metrics_if_it_reads_them() {
        assert!(wants_open_metrics(Some(
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
        )));
        assert!(!wants_open_metrics(Some("*/*")));
        assert!(!wants_open_metrics(None));
    }
}
