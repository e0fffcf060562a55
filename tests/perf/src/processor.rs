//! Processor time of other processes, as Linux counts it.

use anyhow::{Context as _, Result};

/// Linux counts in hundredths of a second here, on every machine.
const TICKS_PER_SECOND: f64 = 100.0;
/// Where the counts of a process stand behind its name: its own, in its code and in the kernel, and
/// then those of its children that have ended.
const OWN_TIME_FIELDS: [usize; 2] = [11, 12];
const CHILD_TIME_FIELDS: [usize; 2] = [13, 14];

/// Seconds of processor time that a process has had.
pub(crate) fn seconds_of(process: &str) -> Result<f64> {
    seconds(process, OWN_TIME_FIELDS)
}

/// Seconds of processor time that the programs had which this process started and waited for, and
/// those that they waited for in turn.
pub(crate) fn seconds_of_ended_children() -> Result<f64> {
    seconds("self", CHILD_TIME_FIELDS)
}

fn seconds(process: &str, fields: [usize; 2]) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    sum(&text, fields).context("the process's figures are not whole")
}

/// The sum of two counts in a line of `/proc/…/stat`.
fn sum(line: &str, fields: [usize; 2]) -> Option<f64> {
    // A name may hold blanks and brackets.
    let (_, behind_name) = line.rsplit_once(')')?;
    let counts: Vec<&str> = behind_name.split_whitespace().collect();
    let count = |at: usize| counts.get(at)?.parse::<f64>().ok();
    let [in_code, in_kernel] = fields;
    Some((count(in_code)? + count(in_kernel)?) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_and_its_children_are_counted_apart() {
        let line = "7 (a ) name) S 1 7 7 0 -1 4194560 80 0 0 0 150 50 1200 300 20 0 1 0 90 1 1";
        assert_eq!(sum(line, OWN_TIME_FIELDS), Some(2.0));
        assert_eq!(sum(line, CHILD_TIME_FIELDS), Some(15.0));
        assert_eq!(sum("7 (a) S 1", OWN_TIME_FIELDS), None);
    }

    #[test]
    fn what_a_program_needed_counts_when_it_has_ended() {
        let before = seconds_of_ended_children().unwrap();
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]);
        assert!(shell.status().unwrap().success());
        assert!(seconds_of_ended_children().unwrap() > before);
        assert!(seconds_of("self").is_ok());
    }
}
