//! Formats the age of an object in a few characters. Pure.
use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// Formats ages as kubectl does: `119s`, `2m5s`, `12m`, `3h` (k8s.io/apimachinery, pkg/util/duration). The smaller unit
/// is dropped when it is insignificant.
pub fn short(age: Duration) -> String {
    let seconds = age.as_secs();
    let whole = |unit: u64, name: char| format!("{}{name}", seconds / unit);
    let with_rest =
        |unit: u64, name: char, smaller: u64, its_name: char| match seconds % unit / smaller {
            0 => whole(unit, name),
            rest => format!("{}{rest}{its_name}", whole(unit, name)),
        };
    match seconds {
        0..120 => whole(1, 's'),
        120..600 => with_rest(MINUTE, 'm', 1, 's'),
        600..10_800 => whole(MINUTE, 'm'),
        10_800..28_800 => with_rest(HOUR, 'h', MINUTE, 'm'),
        28_800..172_800 => whole(HOUR, 'h'),
        172_800..691_200 => with_rest(DAY, 'd', HOUR, 'h'),
        691_200..63_072_000 => whole(DAY, 'd'),
        63_072_000..252_288_000 => with_rest(YEAR, 'y', DAY, 'd'),
        _ => whole(YEAR, 'y'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_in_kubectl() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (7 * HOUR + 59, "7h"),
            (7 * HOUR + 61, "7h1m"),
            (8 * HOUR + 61, "8h"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY + HOUR, "8d"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR + DAY, "8y"),
        ] {
            assert_eq!(short(Duration::from_secs(seconds)), text);
        }
    }
}
