//! `conjure routes`: the routing table of a session.

use conjure_core::routing::{Route, RoutingTable};
use conjure_host::describe::{mode, table_json};
use conjure_host::provider::{Provider, ProviderError, ReplySink};

use super::args::{Global, SessionArgs};
use super::exit::{Exit, Failure};
use super::output::{self, Table};

/// Shows which tools the model would see, and who runs each: public name, backend, skill, plugin
/// and version, mode, and what its definition costs in tokens. Asks no model.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArgs,
}

pub(crate) async fn run(global: &Global, args: Args) -> Result<Exit, Failure> {
    let host = global
        .host()
        .provider("none", NoModel)
        .build()
        .await
        .map_err(|error| Failure::host(error.to_string()))?;
    let mut spec = args.session.spec(&host, global).await?;
    spec.provider = Some("none".to_owned());
    let session = host.session(spec).await?;
    let table = session.table();
    session.close().await;
    if global.json {
        output::json(&table_json(&table));
    } else {
        print(&table);
    }
    Ok(Exit::Fine)
}

/// Prints a routing table for people.
pub(crate) fn print(table: &RoutingTable) {
    if table.routes().is_empty() {
        output::line(
            "There are no tools. Put plugins into a plugin directory, or name one with `--plugin`.",
        );
    } else {
        let mut rows = Table::new(["TOOL", "BACKEND", "SKILL", "PLUGIN", "MODE", "TOKENS"]);
        for route in table.routes() {
            rows.row([
                route.name.as_str().to_owned(),
                route.backend.to_string(),
                route.skill().unwrap_or("-").to_owned(),
                plugin(route),
                mode(route).to_owned(),
                route.schema_tokens().to_string(),
            ]);
        }
        rows.print();
    }
    for shadowed in table.shadowed() {
        output::aside(format_args!(
            "shadowed: {} ({})",
            shadowed.name, shadowed.source
        ));
    }
    for quarantined in table.quarantined() {
        output::aside(format_args!(
            "not offered: {}: {}",
            quarantined.name, quarantined.error
        ));
    }
}

fn plugin(route: &Route) -> String {
    let origin = &route.definition.origin;
    match (&origin.plugin, &origin.version) {
        (Some(plugin), Some(version)) => format!("{plugin} {version}"),
        (Some(plugin), None) => plugin.clone(),
        _ => "-".to_owned(),
    }
}

/// A session that is only looked at has no model.
struct NoModel;

impl Provider for NoModel {
    fn name(&self) -> &str {
        "none"
    }

    fn respond<'a>(
        &'a self,
        _request: &'a conjure_core::request::ModelRequest,
        _sink: &'a ReplySink,
    ) -> futures_util::future::BoxFuture<'a, Result<conjure_core::chat::Response, ProviderError>>
    {
        let error = ProviderError::new("none", "bad_request", "this session has no model");
        Box::pin(std::future::ready(Err(error)))
    }
}
