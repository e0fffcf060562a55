//! Times as people read them: in UTC, which is said, so that they mean the same on every machine.

use maud::{Markup, html};

/// A moment, in milliseconds since 1970.
pub(crate) fn time(at_ms: i64) -> Markup {
    let (day, clock) = (day(at_ms), clock(at_ms));
    html! { time datetime=(format!("{day}T{clock}Z")) { (day) " " (clock) " UTC" } }
}

/// A moment as text, for a title.
pub(crate) fn timestamp_text(at_ms: i64) -> String {
    format!("{} {} UTC", day(at_ms), clock(at_ms))
}

/// The day of a moment, as `2026-11-26`.
pub(crate) fn day(at_ms: i64) -> String {
    let (year, month, day) = date(at_ms.div_euclid(86_400_000));
    format!("{year:04}-{month:02}-{day:02}")
}

fn clock(at_ms: i64) -> String {
    let minutes = at_ms.rem_euclid(86_400_000) / 60_000;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

/// Year, month and day of a count of days since 1970, in the calendar that is used.
fn date(days: i64) -> (i64, i64, i64) {
    // Years begin in March here, so that the odd day is a year's last. 719,468 days lie between the
    // 1st of March of the year 0 and 1970.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(
            time(0).into_string(),
            "<time datetime=\"1970-01-01T00:00Z\">1970-01-01 00:00 UTC</time>"
        );
        assert_eq!(timestamp_text(1_709_208_000_000), "2024-02-29 12:00 UTC");
        assert_eq!(timestamp_text(1_798_317_987_505), "2026-12-26 20:46 UTC");
        assert_eq!(day(951_782_400_000), "2000-02-29");
        assert_eq!(day(1_709_251_199_000), "2024-02-29");
        assert_eq!(day(1_795_712_460_000), "2026-11-26");
        assert_eq!(day(-1), "1969-12-31");
    }
}
