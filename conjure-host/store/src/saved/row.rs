//! Rows of the tables of what is saved.

use crate::sql::{DatabaseRow, SqlError, Value};

/// A row of a table of what is saved.
pub(super) trait TableRow: Sized {
    /// Kind of the rows, as errors name it.
    const NAME: &'static str;
    /// Name of the table.
    const TABLE: &'static str;
    /// The column of ids.
    const ID: &'static str;
    /// The columns, the one of ids first.
    const COLUMNS: &'static [&'static str];

    /// Id of the row.
    fn id(&self) -> &str;

    /// Values of the columns, in their order.
    fn into_values(self) -> Vec<Value>;

    /// Reads it out of the columns.
    fn from_row(row: &DatabaseRow) -> Result<Self, SqlError>;
}

/// Makes a struct the row of a table: what people call it, the table, and its columns, the one of ids
/// first. A column has the name of its field.
macro_rules! table_row {
    ($kind:ty: $name:literal, $table:literal, [$id:ident $(, $column:ident)* $(,)?]) => {
        impl $crate::saved::row::TableRow for $kind {
            const NAME: &'static str = $name;
            const TABLE: &'static str = $table;
            const ID: &'static str = stringify!($id);
            const COLUMNS: &'static [&'static str] =
                &[stringify!($id) $(, stringify!($column))*];

            fn id(&self) -> &str {
                &self.$id
            }

            fn into_values(self) -> Vec<$crate::sql::Value> {
                vec![self.$id.into() $(, self.$column.into())*]
            }

            fn from_row(row: &$crate::sql::DatabaseRow) -> Result<Self, $crate::sql::SqlError> {
                Ok(Self {
                    $id: row.get(stringify!($id))?,
                    $($column: row.get(stringify!($column))?,)*
                })
            }
        }
    };
}

pub(super) use table_row;
