//! Processes that share a database ask each other: what is asked of a process, and where it is.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, boolean, text, text_null};
use sea_orm_migration::sea_orm::DbErr;

/// Adds `requests`, and `writers.address`: where a process serves the API.
pub(crate) struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &'static str {
        "m0003_requests"
    }
}

#[expect(
    elided_lifetimes_in_paths,
    reason = "the trait's macro takes the lifetime only where the trait has it"
)]
#[sea_orm_migration::async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let requests = Table::create()
            .table("requests")
            .col(text("id").primary_key())
            .col(text("writer_id"))
            .col(text("body"))
            .col(boolean("taken"))
            .col(text_null("answer"))
            .col(big_integer("at_ms"))
            .take();
        manager.create_table(requests).await?;
        let address = Table::alter()
            .table("writers")
            .add_column(text_null("address"))
            .take();
        manager.alter_table(address).await
    }
}
