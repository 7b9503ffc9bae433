//! Selects the CSI version for a driver, by the kubelet's rules and with its error texts. Pure.
use std::fmt;

/// A CSI version as its numbers. A suffix such as `-rc1` is dropped, so it does not count in comparisons.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(Vec<u64>);

/// Returns the highest version that both sides support. `registered` is the version of a registered driver with the
/// same name.
pub(crate) fn version(
    driver: &str,
    offered: &[String],
    registered: Option<&Version>,
) -> Result<Version, String> {
    let failed = format!("kubernetes.io/csi: ValidatePlugin for CSI driver {driver:?} failed.");
    if offered.is_empty() {
        return Err(format!(
            "{failed} Plugin returned an empty list for supported versions"
        ));
    }
    let highest = highest(offered).map_err(|error| {
        format!("{failed} None of the versions specified {offered:?} are supported. err={error}")
    })?;
    match registered {
        Some(registered) if *registered >= highest => Err(format!(
            "{failed} Another driver with the same name is already registered with a higher supported version: \"{registered}\""
        )),
        Some(_) | None => Ok(highest),
    }
}

/// Returns the highest supported version. Versions from 2 on are ignored, and 0.x is an error.
fn highest(offered: &[String]) -> Result<Version, String> {
    let versions = offered.iter().filter_map(|version| parse(version));
    let highest = versions.filter(|version| version.0[0] <= 1).max();
    match highest {
        None => Err(format!(
            "could not find a highest supported version from versions ({}) reported",
            offered.join(" ")
        )),
        Some(highest) if highest.0[0] != 1 => Err(format!(
            "highest supported version reported is {highest}, must be v1.x"
        )),
        Some(highest) => Ok(highest),
    }
}

/// Parses two or more numbers with dots between them. A `v` may precede them, and any text may follow.
fn parse(text: &str) -> Option<Version> {
    let text = text.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(|c: char| c != '.' && !c.is_ascii_digit());
    let numbers = text[..end.unwrap_or(text.len())].trim_end_matches('.');
    let parts: Option<Vec<u64>> = numbers.split('.').map(|part| part.parse().ok()).collect();
    parts.filter(|parts| parts.len() > 1).map(Version)
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chosen(offered: &[&str], registered: Option<&str>) -> Result<String, String> {
        let offered: Vec<String> = offered.iter().map(|v| (*v).to_owned()).collect();
        let registered = registered.map(|v| parse(v).unwrap());
        version("d.example.com", &offered, registered.as_ref()).map(|v| v.to_string())
    }

    #[test]
    fn the_highest_of_version_one_is_taken() {
        for (offered, want) in [
            (&["1.0.0"][..], "1.0.0"),
            (&["v1.2.0", "1.10.0", "2.0.0"], "1.10.0"),
            (&["0.3.0", "1.0"], "1.0"),
            (&["garbage", " 1.4.0-rc1 "], "1.4.0"),
        ] {
            assert_eq!(chosen(offered, None).as_deref(), Ok(want), "{offered:?}");
        }
        assert_eq!(chosen(&["1.1.0"], Some("1.0.0")).as_deref(), Ok("1.1.0"));
    }

    #[test]
    fn refusals_have_the_kubelets_texts() {
        for (offered, registered, want) in [
            (
                &[][..],
                None,
                "Plugin returned an empty list for supported versions",
            ),
            (
                &["0.3.0"],
                None,
                r#"None of the versions specified ["0.3.0"] are supported. err=highest supported version reported is 0.3.0, must be v1.x"#,
            ),
            (
                &["2.0.0", "x"],
                None,
                "err=could not find a highest supported version from versions (2.0.0 x) reported",
            ),
            (&["1"], None, "could not find a highest supported version"),
            (
                &["1.0.0"],
                Some("1.0.0"),
                r#"Another driver with the same name is already registered with a higher supported version: "1.0.0""#,
            ),
        ] {
            let error = chosen(offered, registered).unwrap_err();
            assert!(
                error.starts_with(
                    r#"kubernetes.io/csi: ValidatePlugin for CSI driver "d.example.com" failed."#
                ),
                "{error}"
            );
            assert!(error.contains(want), "{error:?} has no {want:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_versions_never_panic(offered in prop::collection::vec("[v0-9.a ]{0,8}|\\PC{0,8}", 0..4)) {
            version("d", &offered, None).ok();
        }
    }
}
