//! What holds for a turn beside its session's settings is kept with its run, for whoever takes over
//! one that waited.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::text_null;
use sea_orm_migration::sea_orm::DbErr;

/// Adds `runs.terms`.
pub(crate) struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &'static str {
        "m0004_terms"
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
            .add_column(text_null("terms"))
            .take();
        manager.alter_table(column).await
    }
}
