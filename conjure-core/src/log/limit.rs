//! Limits of a turn, a thread and a session, in the words and units in which they are set.

/// A limit that was reached, such as `` `budget.usd` = 0.05 ``, as a session file has it. The log
/// counts whole numbers: money in millionths of a dollar.
#[must_use]
pub fn describe_limit(limit: &str, value: u64) -> String {
    let (of, rest) = ["thread_", "session_", "turn_"]
        .into_iter()
        .find_map(|of| Some((of, limit.strip_prefix(of)?)))
        .unwrap_or(("", limit));
    let group = match of {
        "thread_" => "budget.thread",
        "session_" => "budget.session",
        _ => "budget",
    };
    match rest {
        "microdollars" => format!("`{group}.usd` = {}", dollars(value)),
        "wall_time_ms" => format!("`{group}.wall_ms` = {value}"),
        "tokens" | "calls" => format!("`{group}.{rest}` = {value}"),
        _ => format!("`{limit}` = {value}"),
    }
}

/// Millionths of a dollar as dollars, without noughts at the end.
fn dollars(millionths: u64) -> String {
    let (whole, part) = (millionths / 1_000_000, millionths % 1_000_000);
    let text = format!("{whole}.{part:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_said_as_it_is_set() {
        for (limit, value, said) in [
            ("turn_microdollars", 50_000, "`budget.usd` = 0.05"),
            ("thread_microdollars", 2_000_000, "`budget.thread.usd` = 2"),
            ("session_wall_time_ms", 5, "`budget.session.wall_ms` = 5"),
            ("wall_time_ms", 5, "`budget.wall_ms` = 5"),
            ("thread_tokens", 9, "`budget.thread.tokens` = 9"),
            ("tokens", 9, "`budget.tokens` = 9"),
            ("max_iterations", 25, "`max_iterations` = 25"),
        ] {
            assert_eq!(describe_limit(limit, value), said);
        }
    }
}
