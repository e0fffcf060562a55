//! Numbers, times and sizes, as a person reads them.

use conjure_core::chat::Usage;

/// A count, with a letter where it is large.
pub(crate) fn count(number: u64) -> String {
    match number {
        0..=9_999 => number.to_string(),
        10_000..=999_999 => format!("{}.{}k", number / 1000, number % 1000 / 100),
        _ => format!("{}.{}M", number / 1_000_000, number % 1_000_000 / 100_000),
    }
}

/// A time that something took.
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..=999 => format!("{ms} ms"),
        1_000..=59_999 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
    }
}

/// Bytes.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..=1023 => format!("{bytes} B"),
        1024..=1_048_575 => format!("{} KiB", bytes / 1024),
        _ => format!(
            "{}.{} MiB",
            bytes / 1_048_576,
            bytes % 1_048_576 * 10 / 1_048_576
        ),
    }
}

/// Tokens, in and out.
pub(crate) fn tokens(usage: &Usage) -> String {
    format!(
        "{} in, {} out",
        count(usage.prompt_tokens()),
        count(usage.output)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(count(9_999), "9999");
        assert_eq!(count(12_345), "12.3k");
        assert_eq!(count(3_210_000), "3.2M");
        assert_eq!(duration(40), "40 ms");
        assert_eq!(duration(1_250), "1.2 s");
        assert_eq!(duration(61_000), "1 min 1 s");
        assert_eq!(size(2_048), "2 KiB");
        assert_eq!(size(1_600_000), "1.5 MiB");
    }
}
