//! MCP servers of other programs' configurations, taken over: what `conjure mcp import` does for a
//! session file. Starts nothing and unpacks nothing.

use std::collections::BTreeSet;
use std::path::Path;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use conjure_import::{ImportResult, used_secrets};
use conjure_store::StoreError;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::extract::{ImportPermit, JsonBody, Params, is_json, read_large_body, shown_name};
use super::mcp_servers::{MAX_NAME_CHARS, McpServerView};
use super::operations::{Operations, routes};
use super::problem::Problem;
use super::state::App;
use super::transfer::blocking;
use conjure_config::mcp_settings::check_server;

/// Servers of one reading.
const PAGE: u64 = 500;

pub(super) fn router() -> Operations {
    Operations::new().routes(routes!(import))
}

/// A configuration of another program.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct McpConfiguration {
    /// Lines `claude mcp add …` or `codex mcp add …`, JSON with `mcpServers`, `servers`, `mcp` or
    /// `context_servers`, TOML with `[mcp_servers.NAME]`, YAML with `extensions` or `mcpServers`, a
    /// registry's `server.json`, or the manifest of an MCP bundle.
    text: String,
}

/// Where a bundle is.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Unpacked {
    /// For an MCP bundle, and needed there: the directory of the server's machine in which the
    /// bundle is or will be unpacked, as an absolute path.
    directory: Option<String>,
}

/// What an import made.
#[derive(Debug, Serialize, ToSchema)]
struct ImportedServers {
    /// The servers, saved.
    servers: Vec<McpServerView>,
    /// Secrets that have to be set in the environment of the host.
    secrets: Vec<WantedSecret>,
    /// What was not understood or left out.
    notes: Vec<String>,
}

/// A secret that has to be set.
#[derive(Debug, Serialize, ToSchema)]
struct WantedSecret {
    /// Name of the secret in the settings.
    secret: String,
    /// Place where the secret was found.
    what: String,
    /// Variable that sets the secret.
    variable: String,
    /// Variable that holds the secret already, if the configuration says so.
    from: Option<String>,
}

/// Save the MCP servers of another program's configuration
///
/// All of them or none. Secrets are not taken over: each gets a name and is to be set. An MCP bundle
/// (`.mcpb`) is sent as it is, with `directory`; nothing of it but its manifest is read, and nothing
/// is unpacked.
#[utoipa::path(post, path = "/api/v1/mcp-servers/import", operation_id = "import_mcp_servers",
    tag = "mcp-servers", params(Unpacked),
    request_body(content((McpConfiguration = "application/json"), (String = "application/zip"))),
    responses((status = 201, description = "They are saved", body = ImportedServers),
        (status = 409, description = "A name is taken")))]
async fn import(
    State(app): State<App>,
    Params(unpacked): Params<Unpacked>,
    configuration: Configuration,
) -> Result<Response, Problem> {
    let mut import = configuration.read(unpacked).await?;
    // Names of secrets are free from here until they are saved.
    static IMPORTING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _importing = IMPORTING.lock().await;
    import.rename_secrets(&secrets_in_use(&app).await?);
    let settings = import.settings().map_err(Problem::invalid)?;
    if settings.is_empty() {
        let said = "there are no MCP servers in it".to_owned();
        return Err(Problem::invalid(said).with_member("notes", import.notes));
    }
    let mut new = Vec::new();
    for (name, settings) in settings {
        let name = shown_name("name", &name, MAX_NAME_CHARS)?.to_owned();
        check_server(&settings)
            .map_err(|unfit| Problem::invalid(unfit.below(&name).to_string()))?;
        new.push(conjure_store::McpServer::new(name, settings, true));
    }
    let mut servers: Vec<McpServerView> = Vec::new();
    for server in new {
        match app.store.create_mcp_server(server).await {
            Ok(server) => servers.push(server.into()),
            Err(error) => {
                for made in &servers {
                    if let Err(error) = app.store.delete_mcp_server(&made.id).await {
                        tracing::warn!(server = made.id, "stays of an import: {error}");
                    }
                }
                return Err(error.into());
            }
        }
    }
    let secrets = import.secrets.iter().map(|secret| WantedSecret {
        secret: secret.name.clone(),
        what: secret.location.clone(),
        variable: conjure_config::env::secret_variable(&secret.name),
        from: secret.from.clone(),
    });
    let imported = ImportedServers {
        servers,
        secrets: secrets.collect(),
        notes: import.notes,
    };
    Ok((StatusCode::CREATED, Json(imported)).into_response())
}

/// The names of secrets that saved servers use.
async fn secrets_in_use(app: &App) -> Result<BTreeSet<String>, StoreError> {
    let mut used = BTreeSet::new();
    let mut after: Option<String> = None;
    loop {
        let page = app.store.mcp_servers(after.as_deref(), PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(used);
        };
        after = Some(last.id.clone());
        for server in &page {
            used_secrets(&server.settings.0, &mut used);
        }
    }
}

/// What is to be imported.
enum Configuration {
    /// A text, whichever of the forms it has.
    Text(McpConfiguration),
    /// An MCP bundle, with the room for it.
    Bundle(Bytes, ImportPermit),
}

impl FromRequest<App> for Configuration {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        if is_json(request.headers()) {
            let JsonBody(text) = JsonBody::from_request(request, app).await?;
            return Ok(Self::Text(text));
        }
        let what = "the body has to be JSON (`Content-Type: application/json`) or an MCP bundle \
                    (`Content-Type: application/zip`)";
        let kinds = ["application/zip", "application/octet-stream"];
        let (bytes, room) = read_large_body(request, app, &kinds, what).await?;
        Ok(Self::Bundle(bytes, room))
    }
}

impl Configuration {
    /// The servers in it.
    async fn read(self, unpacked: Unpacked) -> Result<ImportResult, Problem> {
        match (self, unpacked.directory) {
            (Self::Text(text), None) => conjure_import::read(&text.text).map_err(Problem::invalid),
            (Self::Text(_), Some(_)) => Err(Problem::invalid(
                "`directory` belongs to an MCP bundle, and the body is JSON; leave it out",
            )),
            (Self::Bundle(bytes, room), Some(directory)) if is_absolute_path(&directory) => {
                let read = blocking(move || {
                    let read = conjure_import::read_bundle(&bytes, &directory);
                    drop((bytes, room));
                    read
                });
                read.await?.map_err(Problem::invalid)
            }
            (Self::Bundle(..), _) => Err(Problem::invalid(
                "an MCP bundle needs `?directory=`: the absolute path, on the server's machine, at \
                 which the bundle is or will be unpacked",
            )),
        }
    }
}

/// Whether a text is a path that means the same wherever a server is started.
fn is_absolute_path(directory: &str) -> bool {
    Path::new(directory).is_absolute() && !directory.contains(char::is_control)
}
