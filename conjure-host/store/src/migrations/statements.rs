//! The statements of a step, out of its file.

use crate::sql::DatabaseKind;

/// Types as the files name them, which is PostgreSQL's way, and what SQLite's databases call them.
const SQLITE_TYPES: [(&str, &str); 4] = [
    (" bigint ", " integer "),
    (" bool ", " boolean "),
    (" bytea ", " blob(1) "),
    (" double precision ", " double "),
];

/// Comments that say of the statement behind them which database it is for.
const DATABASE_MARKERS: [(&str, DatabaseKind); 2] = [
    ("-- only in SQLite", DatabaseKind::Sqlite),
    ("-- only in PostgreSQL", DatabaseKind::Postgres),
];

/// The statements of a file, each in one line, as a database keeps them. A statement ends with a
/// line that ends with `;`, and a comment is a line of its own.
pub(crate) fn statements(sql: &str, backend: DatabaseKind) -> Vec<String> {
    let lines = sql.lines().map(str::trim);
    let is_read = |line: &&str| {
        let is_comment = line.starts_with("--");
        !line.is_empty() && (!is_comment || DATABASE_MARKERS.iter().any(|(only, _)| only == line))
    };
    let lines: Vec<&str> = lines.filter(is_read).collect();
    lines
        .split_inclusive(|line| line.ends_with(';'))
        .filter_map(|statement| match statement.split_first() {
            Some((first, rest)) if first.starts_with("--") => DATABASE_MARKERS
                .contains(&(*first, backend))
                .then_some(rest),
            _ => Some(statement),
        })
        .map(|statement| {
            let statement = statement.join(" ");
            let statement = statement.strip_suffix(';').unwrap_or(&statement).to_owned();
            match backend {
                DatabaseKind::Postgres => statement,
                DatabaseKind::Sqlite => SQLITE_TYPES
                    .iter()
                    .fold(statement, |text, (from, to)| text.replace(from, to)),
            }
        })
        .collect()
}
