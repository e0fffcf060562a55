//! Databases of a PostgreSQL server.

use anyhow::Result;
use conjure_kit::Postgres;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, raw_sql};

/// Makes an empty database and gives its URL.
///
/// # Errors
/// What the server says.
pub fn database(server: &Postgres, name: &str) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(create_database(server, name))
}

async fn create_database(server: &Postgres, name: &str) -> Result<String> {
    let mut connection = PgConnection::connect(server.url()).await?;
    for sql in [
        format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
        format!("CREATE DATABASE {name}"),
    ] {
        raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
    }
    connection.close().await?;
    Ok(server.url_of(name))
}
