//! Parts of a file that a request asks for (RFC 9110, section 14).

use axum::http::{HeaderMap, header};

/// The bytes of a file that a request's `Range` header asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RangeRequest {
    /// All of it.
    All,
    /// A part that is there.
    Part {
        /// The first byte.
        from: u64,
        /// Bytes, at least one.
        length: u64,
    },
    /// A part that is not there.
    None,
}

/// What a request asks for of a file with this tag and size. Several ranges at once, and those of
/// other units, are answered with all of it, as is a range of another version.
pub(super) fn requested_range(headers: &HeaderMap, tag: &str, size: u64) -> RangeRequest {
    let mut ranges = headers.get_all(header::RANGE).iter();
    let (Some(range), None) = (ranges.next(), ranges.next()) else {
        return RangeRequest::All;
    };
    if headers
        .get(header::IF_RANGE)
        .is_some_and(|known| known != tag)
    {
        return RangeRequest::All;
    }
    let range = range.to_str().ok().and_then(|range| {
        let (unit, range) = range.split_once('=')?;
        let (from, to) = range.trim().split_once('-')?;
        (unit.trim().eq_ignore_ascii_case("bytes")).then_some((from.trim(), to.trim()))
    });
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // Numbers that are too large are behind the end of every file.
    let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
    match range {
        Some(("", last)) if digits(last) => {
            let length = number(last).min(size);
            if length == 0 {
                return RangeRequest::None;
            }
            RangeRequest::Part {
                from: size - length,
                length,
            }
        }
        Some((from, to)) if digits(from) && (to.is_empty() || digits(to)) => {
            let from = number(from);
            let to = if to.is_empty() { u64::MAX } else { number(to) };
            if to < from {
                return RangeRequest::All;
            }
            if from >= size {
                return RangeRequest::None;
            }
            let end = to.min(size - 1);
            RangeRequest::Part {
                from,
                length: end - from + 1,
            }
        }
        _ => RangeRequest::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_a_part_or_nothing_or_is_not_looked_at() {
        let part = |from, length| RangeRequest::Part { from, length };
        for (range, size, expected) in [
            ("bytes=0-3", 10, part(0, 4)),
            ("bytes=4-", 10, part(4, 6)),
            ("bytes=-3", 10, part(7, 3)),
            ("bytes=-99", 10, part(0, 10)),
            ("bytes=8-99999999999999999999999", 10, part(8, 2)),
            ("bytes=10-", 10, RangeRequest::None),
            ("bytes=99999999999999999999999-", 10, RangeRequest::None),
            ("bytes=-0", 10, RangeRequest::None),
            ("bytes=0-", 0, RangeRequest::None),
            ("bytes=-5", 0, RangeRequest::None),
            ("bytes=3-1", 10, RangeRequest::All),
            ("bytes=0-1,3-4", 10, RangeRequest::All),
            ("lines=0-1", 10, RangeRequest::All),
            ("bytes=-", 10, RangeRequest::All),
            ("bytes=+1-2", 10, RangeRequest::All),
            ("bytes", 10, RangeRequest::All),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, range.parse().unwrap());
            assert_eq!(
                requested_range(&headers, "\"a\"", size),
                expected,
                "{range} of {size}"
            );
            headers.insert(header::IF_RANGE, "\"b\"".parse().unwrap());
            assert_eq!(
                requested_range(&headers, "\"a\"", size),
                RangeRequest::All,
                "another version"
            );
        }
        assert_eq!(
            requested_range(&HeaderMap::new(), "\"a\"", 10),
            RangeRequest::All
        );
    }
}
