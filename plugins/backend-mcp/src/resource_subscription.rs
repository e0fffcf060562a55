//! Asking a server to tell of the changes of the resources that are watched, over one connection.
//!
//! One task of the connection does all of it. So what is asked for and what is taken back reaches
//! the server in the order in which it was wanted, however many sessions want it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ClientRequest, CustomRequest, ServerNotification, SubscriptionFilter};
use rmcp::service::{ServiceError, Subscription};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::config::RequestLimits;
use crate::connection::{Connection, Era, RequestOptions};
use crate::failure::Failure;
use crate::registry::{WatchedResources, WatchedUris};
use crate::request_failure::RequestFailure;
use crate::server::Server;
use crate::subscription::ACKNOWLEDGE_TIMEOUT;

/// How long a stream is still heard when the next one stands: over HTTP something may be on its way.
const OVERLAP: Duration = Duration::from_millis(100);

/// Whether a server tells of changes of its resources.
pub(crate) fn supports_subscriptions(connection: &Connection) -> bool {
    let resources = connection.info.capabilities.resources.as_ref();
    resources.and_then(|resources| resources.subscribe) == Some(true)
}

/// Keeps a server telling of the resources that are watched, for as long as the connection lives.
/// `missed` are those that may have changed before it.
pub(crate) async fn maintain(
    connection: Arc<Connection>,
    server: Arc<Server>,
    watched: Arc<WatchedResources>,
    missed: BTreeSet<String>,
) {
    if !supports_subscriptions(&connection) {
        return;
    }
    match connection.era {
        Era::Legacy => ask_for_each(&connection, &server, &watched, missed).await,
        Era::Modern => {
            let stream = ResourceStream {
                connection: &connection,
                watched: &watched,
                subscription: None,
                subscribed: BTreeSet::new(),
                missed,
                next_try: NextTry::default(),
                batch_limit: usize::MAX,
            };
            stream.run().await;
        }
    }
}

/// Asks a server of the older era for each resource that is watched, and takes back each that is
/// not any more.
async fn ask_for_each(
    connection: &Connection,
    server: &Server,
    watched: &WatchedResources,
    mut missed: BTreeSet<String>,
) {
    let mut changes = watched.changes();
    let mut asked_for = BTreeSet::new();
    let mut next_try = NextTry::default();
    while connection.link().close_reason().is_none() {
        changes.mark_unchanged();
        let wanted = watched.uris();
        let unwanted = asked_for.difference(&wanted).next().cloned();
        if let Some(uri) = unwanted {
            asked_for.remove(&uri);
            // What it tells all the same concerns nobody.
            let _ = ask_to_watch(connection, server, &uri, false).await;
        } else if let Some(uri) = next_uri(watched, &missed) {
            let asked = ask_to_watch(connection, server, &uri, true).await;
            if connection.link().close_reason().is_some() {
                // The next connection asks once more.
                return;
            }
            let is_refused = matches!(asked, Err(RequestFailure::Failed(Failure::Refused { .. })));
            if !is_refused {
                // Where no answer came, it may tell of it all the same.
                asked_for.insert(uri.clone());
            }
            if asked.is_err() && !is_refused && missed.contains(&uri) {
                // Whoever wanted it before is not told that it failed.
                watched.delay(&BTreeSet::from([uri]));
                next_try.plan();
                continue;
            }
            if asked.is_ok() && missed.remove(&uri) {
                connection.link().resource_updated(&uri);
            }
            watched.answer(&uri, asked.map_err(RequestFailure::into_reason));
        } else {
            match next_wakeup(&mut changes, next_try.at).await {
                Wakeup::Changed => {}
                Wakeup::Due => next_try.begin(watched),
                Wakeup::Closed => return,
            }
        }
    }
}

/// The resource that a server of the older era is asked for next. One that nobody wanted before goes
/// first: somebody waits for its answer, and those before it may take long.
fn next_uri(watched: &WatchedResources, missed: &BTreeSet<String>) -> Option<String> {
    let mut wanted = &watched.unanswered() - &watched.delayed();
    let new = (&wanted - missed).pop_first();
    new.or_else(|| wanted.pop_first())
}

/// How long a server of the older era may take to say that it tells of a resource.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks a server of the older era to tell of the changes of a resource from now on, or not any more.
async fn ask_to_watch(
    connection: &Connection,
    server: &Server,
    uri: &str,
    on: bool,
) -> Result<(), RequestFailure> {
    let method = match on {
        true => "resources/subscribe",
        false => "resources/unsubscribe",
    };
    let request = CustomRequest::new(method, Some(json!({ "uri": uri })));
    let request = ClientRequest::CustomRequest(request);
    let limits = server.config.limits();
    // Others wait behind it, and not as long as one that a server acknowledges.
    let limits = RequestLimits {
        idle: limits.idle.min(ASK_TIMEOUT),
        total: limits.total.min(ASK_TIMEOUT),
    };
    let options = RequestOptions::for_host(limits);
    connection.request(request, options).await.map(drop)
}

/// The long request by which a server of the newer era tells of resources. Where others are watched,
/// the next one is begun before the one before ends, so that nothing is missed between them.
struct ResourceStream<'a> {
    connection: &'a Connection,
    watched: &'a WatchedResources,
    /// The stream that stands.
    subscription: Option<Subscription>,
    /// Resources that the stream tells of.
    subscribed: BTreeSet<String>,
    /// Resources that may have changed while nothing told of them.
    missed: BTreeSet<String>,
    next_try: NextTry,
    /// How many more are asked for at a time: fewer where the server refused several together.
    batch_limit: usize,
}

impl ResourceStream<'_> {
    async fn run(mut self) {
        let mut changes = self.watched.changes();
        while self.connection.link().close_reason().is_none() {
            changes.mark_unchanged();
            match self.next_uris() {
                Some(uris) => self.listen_to(uris).await,
                None => {
                    self.batch_limit = usize::MAX;
                    if !self.until_changed(&mut changes).await {
                        return;
                    }
                }
            }
        }
    }

    /// The resources that the next stream is to tell of; none where the one that stands does, or
    /// there is nothing to hear of.
    fn next_uris(&mut self) -> Option<BTreeSet<String>> {
        let wanted = self.watched.not_refused();
        self.missed.retain(|uri| wanted.contains(uri));
        let allowed = &wanted - &self.watched.delayed();
        let new = (&allowed - &self.subscribed)
            .into_iter()
            .take(self.batch_limit);
        let uris: BTreeSet<String> = (&allowed & &self.subscribed)
            .into_iter()
            .chain(new)
            .collect();
        if uris.is_empty() {
            self.subscribed.clear();
            self.subscription = None;
        }
        (uris != self.subscribed).then_some(uris)
    }

    /// Waits until others are watched, the stream has ended, or what failed is due again. False when
    /// nothing is ever watched again.
    async fn until_changed(&mut self, changes: &mut watch::Receiver<WatchedUris>) -> bool {
        let changed = Box::pin(next_wakeup(changes, self.next_try.at));
        match self.forward_until(changed).await {
            Some(Wakeup::Changed) => {}
            Some(Wakeup::Due) => self.next_try.begin(self.watched),
            Some(Wakeup::Closed) => return false,
            None => tokio::time::sleep(self.next_try.backoff.next()).await,
        }
        true
    }

    /// Begins a stream for these resources, and ends the one before once it stands.
    async fn listen_to(&mut self, uris: BTreeSet<String>) {
        let mut filter = SubscriptionFilter::default();
        filter.resource_subscriptions = Some(uris.iter().cloned().collect());
        let listening = self.connection.peer().listen(filter);
        let mut listening = Box::pin(tokio::time::timeout(ACKNOWLEDGE_TIMEOUT, listening));
        let opened = match self.forward_until(&mut listening).await {
            Some(opened) => opened,
            None => listening.await,
        };
        match opened {
            Ok(Ok(subscription)) => self.take(subscription, &uris).await,
            Ok(Err(error)) => {
                let is_refusal = matches!(error, ServiceError::McpError(_));
                let why = self.connection.link().secrets().redact(error.to_string());
                self.handle_failure(uris, is_refusal, &why);
            }
            Err(_) => {
                let why = format!("it acknowledged nothing within {ACKNOWLEDGE_TIMEOUT:?}");
                self.handle_failure(uris, false, &why);
            }
        }
    }

    /// A stream stands in the place of the one before.
    async fn take(&mut self, subscription: Subscription, uris: &BTreeSet<String>) {
        self.next_try.backoff.reset();
        self.batch_limit = self.batch_limit.saturating_mul(2);
        let accepted = subscription.acknowledged().resource_subscriptions.clone();
        let accepted: BTreeSet<String> = accepted.into_iter().flatten().collect();
        for uri in uris {
            let is_told = accepted.contains(uri);
            // What changed before the acknowledgement was told to nobody.
            if self.missed.remove(uri) && is_told {
                self.connection.link().resource_updated(uri);
            }
            let answer = match is_told {
                true => Ok(()),
                false => Err("it does not tell of changes of this resource".to_owned()),
            };
            self.watched.answer(uri, answer);
        }
        if self.subscription.is_some() {
            self.forward_until(Box::pin(tokio::time::sleep(OVERLAP)))
                .await;
        }
        // An end of the one before was no loss.
        self.missed.retain(|uri| !uris.contains(uri));
        self.subscribed = uris & &accepted;
        self.subscription = Some(subscription);
    }

    /// No stream for these resources comes to stand; the one before goes on.
    fn handle_failure(&mut self, uris: BTreeSet<String>, is_refusal: bool, why: &str) {
        let new = &uris - &self.subscribed;
        if new.is_empty() {
            // It tells of more than is wanted, which concerns nobody.
            self.subscribed = uris;
        } else if is_refusal && new.len() > 1 {
            // It may be only one of them that is refused. Halves find it in few streams.
            self.batch_limit = new.len() / 2;
        } else {
            self.batch_limit = self.batch_limit.saturating_mul(2);
            // Whoever wanted it before is not told that it failed: it is tried again.
            let wished = &(&new & &self.watched.unanswered()) - &self.missed;
            for uri in &wished {
                self.watched.answer(uri, Err(why.to_owned()));
            }
            let delayed = &new - &wished;
            if !delayed.is_empty() {
                self.watched.delay(&delayed);
                self.next_try.plan();
            }
        }
    }

    /// Passes on what comes until something is done; nothing where the stream ended before that.
    async fn forward_until<T>(&mut self, done: impl Future<Output = T> + Unpin) -> Option<T> {
        let mut done = done;
        loop {
            tokio::select! {
                biased;
                said = next_of(&mut self.subscription) => match said {
                    Some(said) => self.forward(&said),
                    None => {
                        self.subscription = None;
                        self.missed.append(&mut self.subscribed);
                        return None;
                    }
                },
                done = &mut done => return Some(done),
            }
        }
    }

    fn forward(&self, said: &ServerNotification) {
        if let ServerNotification::ResourceUpdatedNotification(updated) = said {
            let link = self.connection.link();
            link.resource_updated(&updated.params.uri);
        }
    }
}

/// When the resources that could not be asked for are tried again.
#[derive(Default)]
struct NextTry {
    /// Absent where there are none.
    at: Option<Instant>,
    backoff: Backoff,
}

impl NextTry {
    /// Plans the next try, since some resources could not be asked for.
    fn plan(&mut self) {
        if self.at.is_none() {
            self.at = Some(Instant::now() + self.backoff.next());
        }
    }

    /// Begins the next try for them now.
    fn begin(&mut self, watched: &WatchedResources) {
        watched.retry();
        self.at = None;
    }
}

/// What there is to do after a wait.
enum Wakeup {
    /// Others are watched.
    Changed,
    /// What failed is tried again.
    Due,
    /// Nothing is ever watched again.
    Closed,
}

/// Waits until others are watched, or until this time.
async fn next_wakeup(changes: &mut watch::Receiver<WatchedUris>, again: Option<Instant>) -> Wakeup {
    let due = async {
        match again {
            Some(again) => tokio::time::sleep_until(again).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        changed = changes.changed() => match changed {
            Ok(()) => Wakeup::Changed,
            Err(_) => Wakeup::Closed,
        },
        () = due => Wakeup::Due,
    }
}

/// What a stream says next; nothing at its end. Where there is none, nothing ever comes.
async fn next_of(stream: &mut Option<Subscription>) -> Option<ServerNotification> {
    match stream {
        Some(stream) => stream.next().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_waits_for_is_asked_for_before_what_was_wanted_already() {
        let watched = WatchedResources::default();
        for uri in ["a", "b", "c"] {
            assert!(watched.add(uri, "one"));
        }
        let missed = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let next = || next_uri(&watched, &missed);
        assert_eq!(next().as_deref(), Some("c"));
        watched.answer("c", Ok(()));
        assert_eq!(next().as_deref(), Some("a"));
        watched.delay(&BTreeSet::from(["a".to_owned()]));
        assert_eq!(next().as_deref(), Some("b"));
        watched.answer("b", Ok(()));
        assert_eq!(next(), None);
        assert!(watched.add("a", "two"));
        assert_eq!(next().as_deref(), Some("a"), "a new wish does not wait");
    }
}
