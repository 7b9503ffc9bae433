//! Converts between dates of the calendar and seconds since 1970, for the clocks of devices. Pure.

/// A date and a time of day in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DateTime {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
}

impl DateTime {
    /// Returns the seconds since 1970, unless it is no time of the years 1970 to 9999.
    pub(crate) fn to_seconds(self) -> Option<i64> {
        let is_in = [
            (1970..=9999).contains(&self.year),
            (1..=12).contains(&self.month),
            (1..=31).contains(&self.day),
            (0..24).contains(&self.hour),
            (0..60).contains(&self.minute),
            // A leap second.
            (0..=60).contains(&self.second),
        ];
        if is_in.contains(&false) {
            return None;
        }
        // The year begins in March here, so that a leap day is its last one.
        let year = if self.month <= 2 {
            self.year - 1
        } else {
            self.year
        };
        let month = (self.month + 9) % 12;
        let day_of_year = (153 * month + 2) / 5 + self.day - 1;
        let days = 365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
        Some(days * 86_400 + self.hour * 3600 + self.minute * 60 + self.second)
    }

    pub(crate) fn from_seconds(seconds: i64) -> Self {
        let (days, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let days = days + 719_468;
        let era = days.div_euclid(146_097);
        let of_era = days.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let year = year_of_era + era * 400;
        Self {
            year: if month >= 10 { year + 1 } else { year },
            month: if month >= 10 { month - 9 } else { month + 3 },
            day: day_of_year - (153 * month + 2) / 5 + 1,
            hour: time / 3600,
            minute: time / 60 % 60,
            second: time % 60,
        }
    }

    /// Writes it as XML Schema's `dateTime` does.
    pub(crate) fn to_text(self) -> String {
        let Self {
            year,
            month,
            day,
            hour,
            minute,
            second,
        } = self;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let time = DateTime::from_seconds(seconds);
            assert_eq!(time.to_text(), text);
            assert_eq!(time.to_seconds(), Some(seconds));
        }
    }

    proptest! {
        #[test]
        fn every_second_comes_back(seconds in 0i64..253_402_300_800) {
            prop_assert_eq!(DateTime::from_seconds(seconds).to_seconds(), Some(seconds));
        }
    }
}
