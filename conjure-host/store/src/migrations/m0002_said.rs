//! What is said in a turn that waits is kept with its run, so that it outlives its process.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::text_null;
use sea_orm_migration::sea_orm::DbErr;

/// Adds `runs.message`: a message as JSON, until it is in the thread.
pub(crate) struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &'static str {
        "m0002_said"
    }
}

#[expect(
    elided_lifetimes_in_paths,
    reason = "the trait's macro takes the lifetime only where the trait has it"
)]
#[sea_orm_migration::async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let column = Table::alter()
            .table("runs")
            .add_column(text_null("message"))
            .take();
        manager.alter_table(column).await?;
        // Few runs have one, and those are looked for often.
        let index = "CREATE INDEX runs_unwritten ON runs (queued_at_ms, id) \
                     WHERE message IS NOT NULL";
        manager
            .get_connection()
            .execute_unprepared(index)
            .await
            .map(drop)
    }
}
