//! Databases of a PostgreSQL server.

use anyhow::Result;
use conjure_kit::Postgres;
use sea_orm::{ConnectionTrait as _, Database};

/// Makes an empty database and gives its URL.
///
/// # Errors
/// What the server says.
pub fn database(server: &Postgres, name: &str) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(made(server, name))
}

async fn made(server: &Postgres, name: &str) -> Result<String> {
    let connection = Database::connect(server.url()).await?;
    for sql in [
        format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
        format!("CREATE DATABASE {name}"),
    ] {
        connection.execute_unprepared(&sql).await?;
    }
    connection.close().await?;
    Ok(server.url_of(name))
}
