//! Resources of a session's servers: listed together, read from the server that has each.

use std::sync::Arc;
use std::time::Duration;

use conjure_skill_sdk::protocol::{
    Complete, Completions, ResourceRead, ResourceWatch, Resources as ResourceList, ToolResult,
};
use conjure_skill_sdk::{Cx, Error, Resources, Result, Subscriptions};
use futures_util::future::join_all;
use rmcp::model::{
    ClientRequest, CompleteRequest, CompleteRequestParams, ReadResourceRequest,
    ReadResourceRequestParams,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::backend::Mcp;
use crate::connection::Connection;
use crate::directory::{self, Claim};
use crate::failure::Failure;
use crate::listing::Listing;
use crate::registry::ServerEntry;
use crate::request_failure::RequestFailure;
use crate::resource_subscription::supports_subscriptions;
use crate::result::{self, Receiver};
use crate::session::{McpSession, PendingWatch};

/// JSON-RPC codes by which a server says that it has no such resource: of the older era, and of
/// the newer one.
const NOT_FOUND_CODES: [i32; 2] = [-32002, -32602];
/// Further codes of a server that has no resources: the method is not served, and what the first
/// Python SDK says whatever went wrong.
const NO_RESOURCES_CODES: [i32; 2] = [-32601, 0];
/// How long a wish to hear of a resource waits for its server. The host waits for 10 s.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(8);

impl Mcp {
    /// Reads a resource of a server, as that says it.
    pub(crate) async fn read_from(
        &self,
        cx: &Cx,
        entry: &ServerEntry,
        uri: &str,
    ) -> Result<Value, RequestFailure> {
        let params = ReadResourceRequestParams::new(uri);
        let request = ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params));
        self.ask(cx, entry, request).await
    }

    /// The entry of the server that has a resource, and why it is taken for that. `linked` is the
    /// server whose result named the resource.
    async fn entry_of(
        &self,
        session: &McpSession,
        uri: &str,
        linked: Option<&str>,
    ) -> Result<Option<(Arc<ServerEntry>, Claim)>> {
        let entries = self.entries(session).await;
        let owner = |entries: &[Arc<ServerEntry>]| {
            let listings = listings(entries);
            let lists = listings
                .iter()
                .map(|(entry, listing)| (entry.server.name.as_str(), listing.clone()))
                .collect::<Vec<_>>();
            let owner = directory::resource(&lists, uri, linked)?;
            Ok::<_, Error>(owner.and_then(|owner| {
                let mut names = lists.iter().map(|(name, _)| *name);
                let at = names.position(|name| name == owner.server)?;
                Some((Arc::clone(entries.get(at)?), owner.claim))
            }))
        };
        let mut found = owner(&entries)?;
        if matches!(found, None | Some((_, Claim::SoleCandidate))) {
            // It may be one's that has not listed what it has yet.
            self.until_all_listed(&entries).await;
            found = owner(&entries)?;
        }
        Ok(found)
    }

    /// The entry of another server that has a resource which this one only named.
    ///
    /// # Errors
    /// When it is not known which of several others has it.
    async fn find_other_owner(
        &self,
        session: &McpSession,
        uri: &str,
        linked: &ServerEntry,
    ) -> Result<Option<(Arc<ServerEntry>, Claim)>> {
        let other = self.entry_of(session, uri, None).await?;
        Ok(other.filter(|(entry, _)| entry.server.name != linked.server.name))
    }

    /// Waits for the lists of servers that have not said yet what they have.
    pub(crate) async fn until_all_listed(&self, entries: &[Arc<ServerEntry>]) {
        let waits = entries.iter().map(|entry| async {
            let limit = entry.server.config.limits().idle;
            let _ = tokio::time::timeout(limit, entry.until_listed()).await;
        });
        join_all(waits).await;
    }
}

/// The entries with what each lists.
pub(crate) fn listings(
    entries: &[Arc<ServerEntry>],
) -> Vec<(&Arc<ServerEntry>, Option<Arc<Listing>>)> {
    let entries = entries.iter();
    entries
        .map(|entry| (entry, entry.lists().listing))
        .collect()
}

impl Resources for Mcp {
    async fn list(&self, cx: Cx) -> Result<ResourceList> {
        let session = self.session(&cx)?;
        let mut list = ResourceList::default();
        for entry in self.entries(&session).await {
            if let Some(listing) = entry.lists().listing {
                list.resources.extend(listing.resources.iter().cloned());
                let templates = listing.templates.iter().cloned();
                list.resource_templates.extend(templates);
            }
        }
        Ok(list)
    }

    async fn read(&self, cx: Cx, request: ResourceRead) -> Result<ToolResult> {
        let session = self.session(&cx)?;
        let uri = &request.uri;
        let linked = session.mentioning_server(uri);
        let found = self.entry_of(&session, uri, linked.as_deref()).await?;
        let (mut entry, mut claim) = found.ok_or_else(|| not_listed(uri))?;
        let mut answer = self.read_from(&cx, &entry, uri).await;
        if claim == Claim::Linked
            && answer.as_ref().is_err_and(is_resource_missing)
            && let Some(other) = self.find_other_owner(&session, uri, &entry).await?
        {
            (entry, claim) = other;
            answer = self.read_from(&cx, &entry, uri).await;
            if answer.is_ok() {
                session.note_mention(&entry.server.name, uri);
            }
        }
        let server = &entry.server.name;
        match answer {
            Ok(read) => Ok(result::contents(server, read, Receiver::of(&cx))),
            Err(RequestFailure::Failed(failure @ Failure::Refused { code, .. })) => {
                // Another backend may have it. Whoever serves a program asks it, and hands this on
                // where none has.
                let to_model = !Receiver::of(&cx).verbatim;
                if to_model && claim == Claim::SoleCandidate && NOT_FOUND_CODES.contains(&code) {
                    return Err(Error::not_found(failure.to_string()));
                }
                Ok(failure.into_result())
            }
            Err(trouble) => Err(Error::new(trouble.into_reason())),
        }
    }

    async fn complete(&self, cx: Cx, request: Complete) -> Result<Completions> {
        let session = self.session(&cx)?;
        let entries = self.entries(&session).await;
        let mut reference = request.reference.clone();
        let listings = listings(&entries);
        let lists: Vec<_> = listings
            .iter()
            .map(|(entry, listing)| (entry.server.name.as_str(), listing.clone()))
            .collect();
        let uri = reference.get("uri").and_then(Value::as_str);
        let name = reference.get("name").and_then(Value::as_str);
        let server = match (uri, name) {
            (Some(uri), _) => directory::with_template(&lists, uri).map(str::to_owned),
            (None, Some(name)) => {
                let named = directory::prompts(&lists).into_iter();
                let mut named = named.filter(|one| one.prompt.name == name);
                let found = named.next();
                if let (Some(found), Some(fields)) = (&found, reference.as_object_mut()) {
                    fields.insert("name".to_owned(), found.original_name.as_str().into());
                }
                found.map(|found| found.server)
            }
            (None, None) => None,
        };
        let entry = match (&server, entries.as_slice()) {
            (Some(server), all) => all.iter().find(|entry| entry.server.name == *server),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        let unknown = || Error::not_found("no MCP server lists what is to be completed");
        let entry = entry.ok_or_else(unknown)?;
        let params = json!({
            "ref": reference,
            "argument": { "name": request.argument, "value": request.value },
            "context": { "arguments": request.context },
        });
        let params: CompleteRequestParams = serde_json::from_value(params)?;
        let request = ClientRequest::CompleteRequest(CompleteRequest::new(params));
        let answer = self.ask(&cx, entry, request).await;
        let answer = answer.map_err(|trouble| Error::new(trouble.into_reason()))?;
        let completion = answer.get("completion").cloned().unwrap_or_default();
        let values = completion.get("values").and_then(Value::as_array);
        let values = values.into_iter().flatten().filter_map(Value::as_str);
        Ok(Completions {
            values: values.take(100).map(str::to_owned).collect(),
            more: completion.get("hasMore").and_then(Value::as_bool) == Some(true),
            total: completion.get("total").and_then(Value::as_u64),
        })
    }
}

impl Subscriptions for Mcp {
    /// Returns once the server says that it tells of the resource, so that no change after the
    /// answer is missed.
    async fn subscribe(&self, cx: Cx, request: ResourceWatch) -> Result<()> {
        let until = Instant::now() + SUBSCRIBE_TIMEOUT;
        let session = self.session(&cx)?;
        let uri = request.uri.as_str();
        let linked = session.mentioning_server(uri);
        let found = self.entry_of(&session, uri, linked.as_deref()).await?;
        let (mut entry, mut claim) = found.ok_or_else(|| not_listed(uri))?;
        let mut connection = wait_for_connection(&entry, until).await?;
        if claim == Claim::Linked
            && connection.info.capabilities.resources.is_none()
            && let Some(other) = self.find_other_owner(&session, uri, &entry).await?
        {
            (entry, claim) = other;
            connection = wait_for_connection(&entry, until).await?;
        }
        let name = &entry.server.name;
        let is_known = claim != Claim::SoleCandidate;
        if !supports_subscriptions(&connection) {
            return Err(match is_known {
                true => Error::invalid(format!(
                    "the MCP server `{name}` does not tell of changes of its resources"
                )),
                // It may be another source's, which is not this server's concern.
                false => not_listed(uri),
            });
        }
        let pending = PendingSubscription::of(self, &session, name, uri).map_err(Error::new)?;
        let answered = pending.watch.entry.watched.wait_for_answer(uri);
        let answer = tokio::time::timeout_at(until, answered).await;
        match answer {
            Ok(Some(Ok(()))) => {
                pending.confirm();
                Ok(())
            }
            Ok(Some(Err(_))) if !is_known => Err(not_listed(uri)),
            Ok(Some(Err(why))) => Err(Error::new(why)),
            Ok(None) => Err(Error::new(session.end_reason())),
            Err(_) => Err(Error::new(format!(
                "the MCP server `{name}` did not say within {SUBSCRIBE_TIMEOUT:?} whether it tells \
                 of changes of `{uri}`"
            ))),
        }
    }

    /// The connection tells the server of it, in the order of all that is wanted of it.
    async fn unsubscribe(&self, cx: Cx, request: ResourceWatch) -> Result<()> {
        self.session(&cx)?.unwatch(&request.uri);
        Ok(())
    }
}

/// A session's wish to hear of a resource, which is taken back when this is dropped: its server may
/// refuse it, and whoever waits may go.
struct PendingSubscription<'a> {
    backend: &'a Mcp,
    session: &'a Arc<McpSession>,
    watch: PendingWatch,
    is_confirmed: bool,
}

impl<'a> PendingSubscription<'a> {
    fn of(
        backend: &'a Mcp,
        session: &'a Arc<McpSession>,
        server: &str,
        uri: &str,
    ) -> Result<Self, String> {
        Ok(Self {
            watch: session.watch(server, uri)?,
            backend,
            session,
            is_confirmed: false,
        })
    }

    /// The session that has what this one wanted: it may have been configured anew meanwhile.
    fn current(&self) -> Arc<McpSession> {
        let current = self.backend.session_named(&self.session.id);
        current.unwrap_or_else(|| Arc::clone(self.session))
    }

    fn confirm(mut self) {
        self.is_confirmed = true;
        self.current().confirm_watch(&self.watch);
    }
}

impl Drop for PendingSubscription<'_> {
    fn drop(&mut self) {
        if !self.is_confirmed {
            self.current().withdraw_watch(&self.watch);
        }
    }
}

async fn wait_for_connection(entry: &ServerEntry, until: Instant) -> Result<Arc<Connection>> {
    let connection = entry.wait_for_connection(0, until).await;
    connection.map_err(|not_there| Error::new(not_there.reason))
}

/// Whether a server refused since it has no such resource.
fn is_resource_missing(trouble: &RequestFailure) -> bool {
    let RequestFailure::Failed(Failure::Refused { code, .. }) = trouble else {
        return false;
    };
    NOT_FOUND_CODES.contains(code) || NO_RESOURCES_CODES.contains(code)
}

fn not_listed(uri: &str) -> Error {
    Error::not_found(format!(
        "no MCP server lists `{uri}` or has a URI template that it fits"
    ))
}
