//! Tables for people: columns as wide as they must be, and on a terminal no wider than that. One column,
//! the first unless another is named, is what its row is called, which other commands take, so it is
//! never cut; where the others have no room even cut, the last are left out.

use std::io::IsTerminal as _;

use unicode_width::UnicodeWidthStr as _;

use super::output::{BOLD, RESET, clean_line, line};

/// Between two columns.
const GAP: usize = 2;
/// What a column that is cut keeps at the least.
const MIN_WIDTH: usize = 8;

/// A table of columns.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Index of the column that names a row.
    name: usize,
}

impl Table {
    /// A table with a head.
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self {
            rows: vec![head.iter().map(|name| (*name).to_owned()).collect()],
            name: 0,
        }
    }

    /// Says by its head which column is what a row is called.
    pub(crate) fn with_name_column(mut self, head: &str) -> Self {
        let mut heads = self.rows.iter().take(1).flatten();
        self.name = heads.position(|one| one == head).unwrap_or_default();
        self
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        let cells = cells.map(|cell| clean_line(&cell).into_owned());
        self.rows.push(cells.into());
    }

    /// Prints it. On a terminal, cells are cut so that each row is one line; elsewhere everything
    /// is there.
    pub(crate) fn print(&self) {
        for (number, text) in self.lines(terminal_width()).into_iter().enumerate() {
            if number == 0 {
                line(format_args!("{BOLD}{text}{RESET}"));
            } else {
                line(text);
            }
        }
    }

    fn lines(&self, most: Option<usize>) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        };
        let mut widths: Vec<Option<usize>> = (0..columns).map(width).map(Some).collect();
        if let Some(most) = most {
            narrow(&mut widths, self.name, most);
        }
        let rows = self.rows.iter().map(|row| {
            let mut text = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let Some(width) = width else {
                    continue;
                };
                let cell = truncate_cell(cell, *width);
                let blanks = (width + GAP).saturating_sub(cell.width());
                text.push_str(&cell);
                text.extend(std::iter::repeat_n(' ', blanks));
            }
            text.trim_end().to_owned()
        });
        rows.collect()
    }
}

/// Takes from the widest columns but that of names, and then leaves out the last ones, until a row fits.
/// A column that is left out has no width.
fn narrow(widths: &mut [Option<usize>], name: usize, most: usize) {
    while row_width(widths, name, MIN_WIDTH) > most {
        let mut others = widths.iter_mut().enumerate().rev();
        let last = others.find(|(at, width)| *at != name && width.is_some());
        let Some((_, last)) = last else {
            break;
        };
        *last = None;
    }
    let mut over = row_width(widths, name, usize::MAX).saturating_sub(most);
    while over > 0 {
        let others = widths.iter_mut().enumerate();
        let others = others.filter(|(at, _)| *at != name);
        let widest = others.filter_map(|(_, width)| width.as_mut()).max();
        let Some(widest) = widest.filter(|widest| **widest > MIN_WIDTH) else {
            return;
        };
        *widest -= 1;
        over -= 1;
    }
}

/// What a row takes where no column but that of names is wider than this.
fn row_width(widths: &[Option<usize>], name: usize, widest: usize) -> usize {
    let shown = widths.iter().enumerate();
    let shown = shown.filter_map(|(at, width)| {
        let width = (*width)?;
        Some(if at == name { width } else { width.min(widest) })
    });
    let (columns, all) = shown.fold((0_usize, 0), |(columns, all), width| {
        (columns + 1, all + width)
    });
    all + GAP * columns.saturating_sub(1)
}

/// A cell that is no wider than this: of a path its end is kept, of anything else its beginning.
fn truncate_cell(cell: &str, most: usize) -> String {
    if cell.width() <= most {
        return cell.to_owned();
    }
    let mut room = most.saturating_sub(1);
    let mut takes = |c: &char| {
        let width = unicode_width::UnicodeWidthChar::width(*c).unwrap_or(0);
        let fits = width <= room;
        room = room.saturating_sub(width);
        fits
    };
    if is_path(cell) {
        let kept: Vec<char> = cell.chars().rev().take_while(&mut takes).collect();
        format!("…{}", kept.into_iter().rev().collect::<String>())
    } else {
        let kept: String = cell.chars().take_while(&mut takes).collect();
        format!("{kept}…")
    }
}

/// Whether a cell is a path, which may have blanks in it where it says by its beginning that it is
/// one.
fn is_path(cell: &str) -> bool {
    let rooted = ["/", "~/", "./", "../"];
    let rooted = rooted.into_iter().any(|start| cell.starts_with(start));
    rooted || (cell.contains('/') && !cell.contains(' '))
}

/// How wide the terminal is that the table goes to; nothing when it goes elsewhere.
fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_its_end_also_with_blanks_in_it() {
        for path in [
            "/home/some body/my plugins/libcache.so",
            "~/my plugins and more/libcache.so",
            "../other plugins/target/libcache.so",
            "somewhere/without/blanks/libcache.so",
        ] {
            assert!(truncate_cell(path, 16).ends_with("/libcache.so"), "{path}");
        }
        let words = truncate_cell("Reads and/or writes a cache of things", 16);
        assert!(words.starts_with("Reads and/or"), "{words}");
    }

    #[test]
    fn what_a_cell_says_begins_no_row_of_its_own() {
        let mut table = Table::new(["PLUGIN", "DESCRIPTION"]);
        let forged = "Tells the weather\nofficial  signed and trusted";
        table.row(["x".to_owned(), forged.to_owned()]);
        for most in [None, Some(80)] {
            let lines = table.lines(most);
            assert_eq!(lines.len(), 2, "{lines:#?}");
            assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:#?}");
        }
    }

    #[test]
    fn a_row_is_one_line_of_the_terminal_and_whole_elsewhere() {
        let mut table = Table::new(["PLUGIN", "KIND", "FILE"]);
        let file = "/home/somebody/.local/share/conjure/plugins/liblong.so";
        let about = "a description of many words that nobody needs here";
        table.row(["cache".to_owned(), "skill".to_owned(), file.to_owned()]);
        table.row(["x".to_owned(), about.to_owned(), "世界".to_owned()]);
        let whole = table.lines(None);
        assert!(whole.iter().any(|line| line.ends_with(file)), "{whole:#?}");
        for most in [60, 80, 100] {
            let lines = table.lines(Some(most));
            assert!(lines.iter().all(|line| line.width() <= most), "{lines:#?}");
            assert!(lines[1].ends_with("liblong.so"), "{lines:#?}");
            assert!(lines[2].contains("a description"), "{lines:#?}");
        }
    }

    #[test]
    fn names_stay_whole_and_columns_without_room_are_left_out() {
        let mut table = Table::new(["PLUGIN", "VERSION", "KIND", "STATE", "WHY THERE", "FILE"]);
        let row = [
            "conjure-skill-cache-manager",
            "0.1.0",
            "skill",
            "loaded",
            "comes with it",
        ];
        let [name, version, kind, state, why] = row.map(str::to_owned);
        let file = "/usr/lib/conjure/plugins/libcache.so".to_owned();
        table.row([name, version, kind, state, why, file]);
        for most in [28, 40, 60, 70, 80] {
            let lines = table.lines(Some(most));
            assert!(lines.iter().all(|line| line.width() <= most), "{lines:#?}");
            assert!(lines[1].starts_with(row[0]), "{lines:#?}");
        }
        assert!(table.lines(Some(40))[0].ends_with("VERSION"));
        assert!(table.lines(Some(80))[1].ends_with("cache.so"));
        // Narrower than a name.
        assert_eq!(table.lines(Some(10))[1], row[0]);
    }

    #[test]
    fn the_column_of_names_stays_whole_wherever_it_is() {
        let mut table =
            Table::new(["PROVIDER", "MODEL", "CONTEXT", "$ OUT"]).with_name_column("MODEL");
        let row = ["anthropic", "claude-opus-4-5-20251101", "200000", "25"];
        table.row(row.map(str::to_owned));
        for most in [24, 36, 40, 60] {
            let lines = table.lines(Some(most));
            assert!(lines.iter().all(|line| line.width() <= most), "{lines:#?}");
            assert!(lines[1].contains(row[1]), "{lines:#?}");
        }
        assert!(table.lines(Some(60))[1].ends_with("25"));
        assert_eq!(table.lines(Some(24)), ["MODEL", row[1]]);
    }
}
