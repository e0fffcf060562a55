//! The statements of a step, out of its file.

use crate::sql::DatabaseKind;

/// Types as the files name them, which is PostgreSQL's way, and what SQLite's databases call them.
const TYPES: [(&str, &str); 4] = [
    (" bigint ", " integer "),
    (" bool ", " boolean "),
    (" bytea ", " blob(1) "),
    (" double precision ", " double "),
];

/// The statements of a file, each in one line, as a database keeps them. A statement ends with a
/// line that ends with `;`, and a comment is a line of its own.
pub(crate) fn statements(sql: &str, backend: DatabaseKind) -> Vec<String> {
    let lines = sql.lines().map(str::trim);
    let lines: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !line.starts_with("--"))
        .collect();
    lines
        .split_inclusive(|line| line.ends_with(';'))
        .map(|statement| {
            let statement = statement.join(" ");
            let statement = statement.trim_end_matches(';').to_owned();
            match backend {
                DatabaseKind::Postgres => statement,
                DatabaseKind::Sqlite => TYPES
                    .iter()
                    .fold(statement, |text, (from, to)| text.replace(from, to)),
            }
        })
        .collect()
}
