//! The calls of a step that are not over, in the lines that there are for them.
//!
//! What runs counts more than what waits: where not all calls fit, those that run stay with as much of
//! their output as there is room for, and the others are a number.

use crate::call::{AnnouncedCall, TAIL};
use crate::text::{Line, Style};

/// Renders calls in at most `most` lines. `mark` stands before those that run.
pub(crate) fn lines(calls: &[AnnouncedCall], mark: &str, columns: usize, most: usize) -> Vec<Line> {
    let live = |call: &AnnouncedCall| call.live(mark, columns, TAIL);
    let all: Vec<Line> = calls.iter().flat_map(live).collect();
    if all.len() <= most {
        return all;
    }
    let (running, waiting): (Vec<_>, Vec<_>) = calls.iter().partition(|call| call.is_running());
    // The last line says how many there are besides.
    let room = most.saturating_sub(1);
    let mut lines = fit_calls(&running, mark, columns, room);
    let hidden_running = running.len().saturating_sub(room);
    let shown_waiting = waiting.len().min(room.saturating_sub(lines.len()));
    for call in waiting.iter().take(shown_waiting) {
        lines.extend(call.live(mark, columns, 0));
    }
    let more = hidden_notice(hidden_running, waiting.len() - shown_waiting);
    lines.extend(more.map(|text| Line::of(text, Style::DIM).truncate(columns)));
    lines
}

/// Calls that run with as much of their output as fits, at least a line each as long as there is room.
fn fit_calls(running: &[&AnnouncedCall], mark: &str, columns: usize, room: usize) -> Vec<Line> {
    let with = |tail: usize| -> Vec<Line> {
        let live = running
            .iter()
            .flat_map(|call| call.live(mark, columns, tail));
        live.collect()
    };
    let mut lines = with(TAIL);
    for tail in (0..TAIL).rev() {
        if lines.len() <= room {
            break;
        }
        lines = with(tail);
    }
    lines.truncate(room);
    lines
}

/// How many calls are not shown; nothing where all are.
fn hidden_notice(running: usize, waiting: usize) -> Option<String> {
    match (running, waiting) {
        (0, 0) => None,
        (0, 1) => Some("… 1 more waits".to_owned()),
        (0, waiting) => Some(format!("… {waiting} more wait")),
        (1, 0) => Some("… 1 more runs".to_owned()),
        (running, 0) => Some(format!("… {running} more run")),
        (running, waiting) => Some(format!("… {running} more run, {waiting} wait")),
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::CallAnnounced;
    use serde_json::json;

    use super::*;

    fn calls(count: usize) -> Vec<AnnouncedCall> {
        let call = |n| {
            AnnouncedCall::new(&CallAnnounced {
                id: format!("c{n}"),
                name: "sh".to_owned(),
                arguments: json!({ "command": format!("make {n}") }),
            })
        };
        (1..=count).map(call).collect()
    }

    fn plain(calls: &[AnnouncedCall], most: usize) -> Vec<String> {
        let lines = lines(calls, "⠿", 40, most);
        lines.iter().map(Line::plain).collect()
    }

    #[test]
    fn the_call_that_runs_stays_and_those_that_wait_are_counted() {
        let mut calls = calls(25);
        calls[0].start("local");
        calls[0].push_output("one\ntwo\nthree\nfour\n");
        let shown = plain(&calls, 7);
        let head = "⠿ sh make 1  local";
        assert!(shown[0].starts_with(head), "{shown:?}");
        let below = [
            "  ┊ two",
            "  ┊ three",
            "  ┊ four",
            "· sh make 2  waits",
            "· sh make 3  waits",
            "… 22 more wait",
        ];
        assert_eq!(shown[1..], below);
        // A call costs less than its output.
        let shown = plain(&calls, 2);
        assert_eq!(shown[1..], ["… 24 more wait"]);
        assert!(shown[0].starts_with(head), "{shown:?}");
    }

    #[test]
    fn calls_that_run_leave_their_output_out_before_one_of_them_is_left_out() {
        let mut calls = calls(4);
        for call in &mut calls {
            call.start("local");
            call.push_output("one\ntwo\n");
        }
        assert_eq!(plain(&calls, 12).len(), 12);
        let heads = |most| {
            let shown = plain(&calls, most);
            let heads = shown.iter().filter(|line| line.starts_with('⠿'));
            (
                heads.count(),
                shown.len(),
                shown.last().cloned().unwrap_or_default(),
            )
        };
        assert_eq!(heads(9), (4, 8, "  ┊ two".to_owned()));
        let (count, lines, _) = heads(6);
        assert_eq!((count, lines), (4, 4));
        assert_eq!(heads(4), (3, 4, "… 1 more runs".to_owned()));
    }
}
