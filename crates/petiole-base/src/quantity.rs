//! Reads the whole numbers among the quantities of Kubernetes. Pure.

/// Parses a whole number in the form of Kubernetes: the API server converts 1000 to `1k`, and keeps `1Ki`.
pub fn count(quantity: &str) -> Option<u64> {
    const KILO: u64 = 1000;
    const KIBI: u64 = 1024;
    let digits = quantity.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &quantity[digits.len()..] {
        "" => 1,
        "k" => KILO,
        "M" => KILO.pow(2),
        "G" => KILO.pow(3),
        "Ki" => KIBI,
        "Mi" => KIBI.pow(2),
        "Gi" => KIBI.pow(3),
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_the_api_server_writes_them() {
        for (quantity, expected) in [
            ("0", Some(0)),
            ("12", Some(12)),
            ("1k", Some(1000)),
            ("3M", Some(3_000_000)),
            ("1500m", None),
            ("", None),
            ("-1", None),
            ("1Ki", Some(1024)),
            ("2Mi", Some(2_097_152)),
            ("1Qi", None),
        ] {
            assert_eq!(count(quantity), expected, "{quantity}");
        }
    }
}
