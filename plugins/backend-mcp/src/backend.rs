//! The operations of a backend on the registry.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_exec_agent::private::PrivatePaths;
use conjure_skill_sdk::protocol::{
    BackendCall, CatalogReply, FileRef, FilesGet, FilesPut, Open, ServerInstructions, ToolResult,
};
use conjure_skill_sdk::{Backend, Cx, Error, Files, Reopens, Result, Setup};
use futures_util::future::join_all;
use rmcp::model::ClientRequest;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cache::Cache;
use crate::calls::{Call, arguments};
use crate::config::McpSettings;
use crate::directory;
use crate::failure::Failure;
use crate::hub::WatchHub;
use crate::listing::Quarantined;
use crate::oauth::LogoutOutcome;
use crate::registry::{ConnectionRegistry, ServerEntry};
use crate::request_failure::RequestFailure;
use crate::resources::listings;
use crate::result;
use crate::rounds::Rounds;
use crate::server::Server;
use crate::session::McpSession;

/// The most bytes of a resource that becomes a file.
const MAX_FILE_BYTES: usize = 64 * 1024 * 1024;
/// How long the connection of an earlier login may take to end.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(5);

/// One instance of the backend.
pub(crate) struct Mcp {
    settings: McpSettings,
    registry: Arc<ConnectionRegistry>,
    hub: Arc<WatchHub>,
    sessions: Mutex<HashMap<String, Arc<McpSession>>>,
    /// The plugin's own directory.
    data_dir: Option<PathBuf>,
}

impl Mcp {
    /// Starts nothing yet.
    pub(crate) fn new(setup: &Setup) -> Result<Self> {
        let settings = McpSettings::from_setup(setup)?;
        let hub = Arc::new(WatchHub::default());
        let cache = Cache::new(setup.create.data_dir.as_deref());
        let private = PrivatePaths::of(setup.create.data_dir.as_deref().map(Path::new), &[]);
        Ok(Self {
            registry: ConnectionRegistry::new(
                settings.max_starting,
                Arc::clone(&hub),
                cache,
                private,
            ),
            hub,
            settings,
            data_dir: setup.create.data_dir.as_ref().map(PathBuf::from),
            sessions: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<McpSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session(&self, cx: &Cx) -> Result<Arc<McpSession>> {
        let session = self.session_named(id(cx)?);
        session.ok_or_else(|| Error::not_found("the session is not open here"))
    }

    /// The session that is open under a name, if any is.
    pub(crate) fn session_named(&self, id: &str) -> Option<Arc<McpSession>> {
        self.lock().get(id).cloned()
    }

    /// The session's entries in the order of the configuration.
    pub(crate) async fn entries(&self, session: &McpSession) -> Vec<Arc<ServerEntry>> {
        let mut entries = Vec::new();
        for (name, _) in &session.servers {
            if let Ok(entry) = session.entry(&self.registry, name).await {
                entries.push(entry);
            }
        }
        entries
    }

    /// Sends a request that is no tool call to a server of the session.
    pub(crate) async fn ask(
        &self,
        cx: &Cx,
        entry: &ServerEntry,
        request: ClientRequest,
    ) -> Result<Value, RequestFailure> {
        let limits = entry.server.config.limits();
        let until = Instant::now() + limits.idle;
        let _used = entry.in_use();
        let mut may_again = true;
        loop {
            let connection = entry.wait_for_connection(0, until).await;
            let connection = connection.map_err(|not_there| Failure::NotReady {
                server: entry.server.name.clone(),
                why: not_there.reason,
            })?;
            let rounds = Rounds {
                server: &entry.server,
                connection: &connection,
                cx,
                limits,
                trace: None,
            };
            match rounds.run(request.clone()).await {
                Err(RequestFailure::Unsent(_)) if may_again => may_again = false,
                sent => return sent,
            }
        }
    }

    /// What is done to a server and not by it: `login` and `logout`. No tool of a server's comes
    /// without its name, so no model can call these.
    async fn managed(&self, cx: &Cx, request: &BackendCall) -> Result<ToolResult> {
        // Files are read and clients made, which is nothing for the host's thread.
        tokio::task::yield_now().await;
        let session = self.session(cx)?;
        let server = request.arguments.get("server").and_then(Value::as_str);
        let server = server.ok_or_else(|| Error::invalid("`server` is missing"))?;
        let entry = session.entry(&self.registry, server).await;
        let entry = entry.map_err(Error::not_found)?;
        let Some(auth) = &entry.server.auth else {
            return Err(Error::invalid(format!(
                "the MCP server `{server}` has no login: it is a program, or its configuration \
                 has an `Authorization` header"
            )));
        };
        match request.name.as_str() {
            "login" => {
                // What the server says to a request tells what it wants.
                entry.until_listed().await;
                auth.log_in(cx).await.map_err(Error::new)?;
                let until = Instant::now() + ABANDON_TIMEOUT + entry.server.config.initialize();
                let ready = entry.wait_for_connection(0, until).await;
                ready.map_err(|not_there| Error::new(not_there.reason))?;
                let _ = tokio::time::timeout_at(until, entry.until_listed()).await;
                Ok(ToolResult::text("logged in"))
            }
            "logout" => {
                let done = auth.log_out().await.map_err(Error::new)?;
                Ok(ToolResult::text(match done {
                    LogoutOutcome::NotLoggedIn => "not logged in".to_owned(),
                    LogoutOutcome::Complete => "logged out".to_owned(),
                    LogoutOutcome::LocalOnly(why) => format!(
                        "logged out on this machine; the authorization server did not take the \
                         tokens back ({why}), so they are good there until they end"
                    ),
                }))
            }
            other => Err(Error::not_found(format!("there is no `{other}`"))),
        }
    }

    /// The servers of these settings as the session has them; one that cannot be used with the
    /// reason.
    async fn resolve_servers(
        &self,
        cx: &Cx,
        settings: &McpSettings,
    ) -> Vec<(String, Result<Arc<Server>, String>)> {
        let mut servers = Vec::new();
        for (name, configured) in &settings.servers {
            let resolved = match configured {
                Ok(config) if !config.enabled => continue,
                Ok(config) => {
                    let server = Server::resolve(name, config, cx, self.data_dir.as_deref()).await;
                    server.map(Arc::new)
                }
                Err(why) => Err(why.clone()),
            };
            servers.push((name.clone(), resolved));
        }
        servers
    }

    async fn run_call(&self, cx: &Cx, mut request: BackendCall) -> Result<ToolResult, Failure> {
        let invalid = |error: Error| Failure::Invalid(error.message().to_owned());
        let session = self.session(cx).map_err(invalid)?;
        let server = request.skill.clone().unwrap_or_default();
        let entry = session.entry(&self.registry, &server).await;
        let entry = entry.map_err(|why| Failure::NotReady {
            server: server.clone(),
            why,
        })?;
        let _used = entry.in_use();
        if entry.lists().listing.is_none() {
            // Whoever knows the tool's name from elsewhere may be faster than the list.
            let limit = entry.server.config.limits().idle;
            let _ = tokio::time::timeout(limit, entry.until_listed()).await;
        }
        let listing = entry.lists().listing;
        let tool = listing
            .as_ref()
            .and_then(|listing| listing.tool(&request.name));
        let tool = tool.ok_or_else(|| {
            let text = format!(
                "the MCP server `{server}` has no tool `{}` (any more)",
                request.name
            );
            Failure::Invalid(text)
        })?;
        let call = Call {
            cx,
            session: &session,
            entry: &entry,
            tool,
            arguments: arguments(&mut request)?,
            trace: trace(cx, &session),
        };
        call.run().await
    }
}

impl Backend for Mcp {
    async fn open(&self, cx: Cx, request: Open) -> Result<()> {
        let session = id(&cx)?;
        // What a session was given later stands here only, where it is opened once more.
        let own = match request
            .options
            .as_object()
            .is_some_and(|own| !own.is_empty())
        {
            true => Some(McpSettings::from_options(request.options)?),
            false => None,
        };
        let settings = own.as_ref().unwrap_or(&self.settings);
        let servers = self.resolve_servers(&cx, settings).await;
        let known = self.lock().get(session).cloned();
        let working_dir = working_dir(&cx, known.as_deref());
        let session = Arc::new(McpSession::new(session, working_dir, servers));
        let before = self.lock().insert(session.id.clone(), Arc::clone(&session));
        if let Some(before) = before {
            session.inherit_watches(&before);
            release(&self.registry, &before).await;
        }
        // They start here, in the background.
        self.entries(&session).await;
        Ok(())
    }

    async fn catalog(&self, cx: Cx) -> Result<CatalogReply> {
        let session = self.session(&cx)?;
        let entries = self.entries(&session).await;
        // Later on whoever is late is told of when it is there.
        if session.begin_first_wait() {
            let listed = join_all(entries.iter().map(|entry| entry.until_listed()));
            let _ = tokio::time::timeout(self.settings.catalog_wait, listed).await;
        }
        let mut catalog = CatalogReply::default();
        let mut states = Vec::new();
        let listings = listings(&entries);
        let lists = listings.iter();
        let lists: Vec<_> = lists
            .map(|(entry, listing)| (entry.server.name.as_str(), listing.clone()))
            .collect();
        let hidden = directory::hidden_resources(&lists);
        for entry in &entries {
            let name = &entry.server.name;
            let mut status = entry.status();
            if let Some(hidden) = hidden.get(name.as_str()) {
                status.quarantined.extend(Quarantined::hidden(hidden));
            }
            states.push(json!(status));
            let Some(listing) = entry.lists().listing else {
                continue;
            };
            catalog
                .tools
                .extend(listing.tools.iter().map(|tool| tool.decl.clone()));
            catalog.resources.extend(listing.resources.iter().cloned());
            catalog
                .resource_templates
                .extend(listing.templates.iter().cloned());
            if let Some(text) = &listing.instructions {
                catalog.server_instructions.push(ServerInstructions {
                    server: name.clone(),
                    text: text.clone(),
                });
            }
            session.record_sent(name, &listing);
        }
        let prompts = Self::named_prompts(&entries).into_iter();
        catalog.prompts = prompts.map(|named| named.prompt).collect();
        for (name, server) in &session.servers {
            if let Err(why) = server {
                states.push(json!({ "server": name, "state": "failed", "why": why }));
            }
        }
        catalog.meta = Some(json!({ "servers": states }));
        Ok(catalog)
    }

    async fn call(&self, cx: Cx, request: BackendCall) -> Result<ToolResult> {
        if request.skill.is_none() {
            return self.managed(&cx, &request).await;
        }
        match self.run_call(&cx, request).await {
            Ok(result) => Ok(result),
            Err(Failure::Cancelled { .. }) => Err(Error::cancelled()),
            Err(failure) => Ok(failure.into_result()),
        }
    }

    async fn close(&self, cx: Cx) -> Result<()> {
        let closed = self.lock().remove(id(&cx)?);
        if let Some(session) = closed {
            release(&self.registry, &session).await;
        }
        Ok(())
    }

    async fn watch(&self, cx: Cx) -> Result<()> {
        let session = self.session(&cx)?;
        let _watching = self.hub.watch(&session.id, cx.clone());
        // What changed before anybody watched was told to nobody.
        let is_news = self.entries(&session).await.iter().any(|entry| {
            let listing = entry.lists().listing;
            listing.is_some_and(|listing| !session.has(&entry.server.name, &listing))
        });
        if is_news {
            self.hub.catalog_changed(std::slice::from_ref(&session.id));
        }
        for (name, server) in &session.servers {
            if let Err(why) = server {
                self.hub
                    .notice(&session.id, &format!("MCP server `{name}`: {why}"));
            }
        }
        for entry in session.entries() {
            entry.report_failures(&self.hub, &session.id);
        }
        cx.until_cancelled().await;
        Ok(())
    }
}

impl Files for Mcp {
    async fn put(&self, _cx: Cx, request: FilesPut) -> Result<FileRef> {
        // A server on this machine reads it where it is.
        Ok(request.file)
    }

    async fn get(&self, cx: Cx, request: FilesGet) -> Result<FileRef> {
        let Some((server, uri)) = result::lazy_file(&request.id) else {
            return Err(Error::not_found("there is no such file on an MCP server"));
        };
        let session = self.session(&cx)?;
        let entry = session.entry(&self.registry, server).await;
        let entry = entry.map_err(Error::not_found)?;
        let read = self.read_from(&cx, &entry, uri).await;
        let read = read.map_err(|trouble| Error::new(trouble.into_reason()))?;
        let first = read.get("contents").and_then(|contents| contents.get(0));
        let bytes = first.and_then(result::bytes);
        let bytes = bytes.ok_or_else(|| Error::new(format!("`{uri}` has no content")))?;
        if bytes.len() > MAX_FILE_BYTES {
            let text = format!("`{uri}` has more than {MAX_FILE_BYTES} bytes");
            return Err(Error::new(text));
        }
        result::write_new(Path::new(&request.to), &bytes)?;
        Ok(FileRef::at(request.to))
    }
}

impl Reopens for Mcp {
    /// Servers that are the same go on, with their connections and what runs there.
    async fn reopen(&self, cx: Cx, request: Open) -> Result<()> {
        let settings = McpSettings::from_options(request.options)?;
        let before = self.session(&cx)?;
        let servers = self.resolve_servers(&cx, &settings).await;
        let working_dir = working_dir(&cx, Some(&before));
        let session = Arc::new(McpSession::new(id(&cx)?, working_dir, servers));
        let gone = session.inherit_entries(&before);
        self.lock().insert(session.id.clone(), Arc::clone(&session));
        for entry in gone {
            if entry.users() == [session.id.as_str()] {
                // What runs there comes to its end.
                entry.retire();
            }
            self.registry.release(&entry, &session.id).await;
        }
        self.entries(&session).await;
        Ok(())
    }
}

/// Ends a session's use of its entries, all at the same time.
async fn release(registry: &Arc<ConnectionRegistry>, session: &McpSession) {
    let entries = session.end();
    let released = entries
        .iter()
        .map(|entry| registry.release(entry, &session.id));
    let _ = tokio::time::timeout(Duration::from_secs(10), join_all(released)).await;
}

/// Where a session works: the host names it without links. It is not resolved here, where a link may be by
/// now. What is known of it from before stays.
fn working_dir(cx: &Cx, before: Option<&McpSession>) -> Option<PathBuf> {
    let known = before.and_then(McpSession::working_dir);
    known
        .map(Path::to_owned)
        .or_else(|| cx.working_dir().map(Path::to_owned))
}

fn id(cx: &Cx) -> Result<&str> {
    let none = || Error::invalid("the request names no session");
    cx.session().ok_or_else(none)
}

/// The host's trace of the call, else the session's.
fn trace(cx: &Cx, session: &McpSession) -> String {
    let own = cx.envelope().traceparent;
    own.unwrap_or_else(|| session.trace().to_owned())
}
