//! The records in a thread's file of JSON lines, out of its bytes.
//!
//! A last line that is cut off is what a crash left behind of a log, and is not read; of a file that
//! was exported it means that a part is missing, and is refused. A damaged line anywhere else is said,
//! never skipped.

use super::sequence::RecordSequence;
use crate::Record;

/// Treatment of a last line without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CutLine {
    /// The line is skipped.
    Skip,
    /// The file is refused, unless the line is a whole record.
    Refuse,
}

/// A line that is no record, or none that follows those before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DamagedLine {
    /// Line number, from 1 on.
    pub(super) line: usize,
    /// Reason, for the person who wants the file read.
    pub(super) reason: String,
}

/// The records of a file.
///
/// # Errors
/// The first line that is damaged.
pub(super) fn read_records(bytes: &[u8], cut: CutLine) -> Result<Vec<Record>, DamagedLine> {
    let last_end = bytes.iter().rposition(|b| *b == b'\n');
    let read = match cut {
        CutLine::Skip => last_end.map_or(0, |at| at + 1),
        CutLine::Refuse => bytes.len(),
    };
    let mut sequence = RecordSequence::default();
    bytes
        .get(..read)
        .unwrap_or_default()
        .split(|b| *b == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| {
            record(line, &mut sequence).map_err(|reason| DamagedLine {
                line: index + 1,
                reason,
            })
        })
        .collect()
}

/// The record of a line, or why it is none that follows those before it.
fn record(line: &[u8], sequence: &mut RecordSequence) -> Result<Record, String> {
    let mut record: Record = serde_json::from_slice(line).map_err(|error| {
        if error.is_eof() {
            format!("it is cut off ({error})")
        } else {
            error.to_string()
        }
    })?;
    sequence.take(&mut record)?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use conjure_core::log::{Entry, EntryBody};

    use super::*;

    #[test]
    fn a_file_that_is_cut_at_any_byte_reads_as_its_whole_lines() {
        let entry = |seq| {
            let text = format!("Grüße {seq}");
            Record::Entry(Entry {
                seq,
                turn: 1,
                at_ms: 0,
                body: EntryBody::notice(text),
            })
        };
        let records = [Record::Opened { epoch: 1 }, entry(1), entry(2), entry(3)];
        let mut file = Vec::new();
        let mut ends = vec![0];
        for record in &records {
            serde_json::to_writer(&mut file, record).unwrap();
            file.push(b'\n');
            ends.push(file.len());
        }
        for length in 0..=file.len() {
            let whole = ends.partition_point(|end| *end <= length) - 1;
            let read = read_records(&file[..length], CutLine::Skip);
            assert_eq!(read.unwrap(), records[..whole], "cut at {length}");
            // A record is whole without the end of its line.
            let is_whole = ends.contains(&length) || ends.contains(&(length + 1));
            let read = read_records(&file[..length], CutLine::Refuse);
            assert_eq!(read.is_ok(), is_whole, "cut at {length}");
        }
        let damaged = b"{\"opened\":{\"epoch\":1}}\nnonsense\n{}\n";
        let error = read_records(damaged, CutLine::Skip).unwrap_err();
        assert_eq!(error.line, 2, "{error:?}");
        let cut = &file[..file.len() - 9];
        let error = read_records(cut, CutLine::Refuse).unwrap_err();
        assert_eq!(error.line, 4, "{error:?}");
        assert!(error.reason.contains("it is cut off"), "{error:?}");
    }
}
