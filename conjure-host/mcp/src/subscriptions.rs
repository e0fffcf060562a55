//! The resources whose changes a client wants to hear of: by `resources/subscribe` of the old era, or
//! by streams of the new one.
//!
//! Sources are told of a wish as often as it is uttered, and count nothing; so a source that forgot
//! one is told again. They are told that it is over when nobody at the client has it any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use rmcp::model::{ErrorData, SubscriptionFilter};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::answers::read_error;
use super::files;
use super::lists::{discard_output, silent_call};
use super::session::{ClientSession, lock};
use conjure_runtime::backend::readers::ReadError;
use conjure_runtime::session::ToolSession;

/// The most resources that a client of the old era may be subscribed to, and a stream of the new one.
const MAX_SUBSCRIPTIONS: usize = 1000;
/// The most resources of a stream whose sources are told at the same time.
const MAX_AT_ONCE: usize = 32;

/// What the client of a session wants to hear of.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// Resources that requests of the old era asked for.
    requested: Mutex<BTreeSet<String>>,
    /// How many streams of the new era want each.
    stream_counts: Mutex<BTreeMap<String, usize>>,
    /// Resources whose sources know that somebody wants to hear of them.
    announced: Mutex<BTreeSet<String>>,
}

impl Subscriptions {
    /// Whether a client of the old era asked for it.
    pub(super) fn is_requested(&self, uri: &str) -> bool {
        lock(&self.requested).contains(uri)
    }

    /// Whether anybody wants to hear of it.
    fn is_wanted(&self, uri: &str) -> bool {
        self.is_requested(uri) || lock(&self.stream_counts).contains_key(uri)
    }

    /// The resources that a client of the old era asked for.
    pub(super) fn requested(&self) -> BTreeSet<String> {
        lock(&self.requested).clone()
    }

    /// Whether its sources know that somebody wants to hear of it.
    fn is_announced(&self, uri: &str) -> bool {
        lock(&self.announced).contains(uri)
    }

    /// Notes that the sources of a resource know that somebody wants to hear of it.
    fn mark_announced(&self, uri: &str) {
        lock(&self.announced).insert(uri.to_owned());
    }

    /// Takes that note back, before the sources are told that nobody wants to hear of it any more.
    fn clear_announced(&self, uri: &str) {
        lock(&self.announced).remove(uri);
    }

    /// A client of the old era subscribes to a resource, maybe once more. Gives back whether it was
    /// not subscribed to it.
    ///
    /// # Errors
    /// When it is subscribed to as many as it may be.
    fn request(&self, uri: &str) -> Result<bool, ErrorData> {
        let mut requested = lock(&self.requested);
        if requested.len() >= MAX_SUBSCRIPTIONS && !requested.contains(uri) {
            let text = format!("{MAX_SUBSCRIPTIONS} resources are subscribed to already");
            return Err(ErrorData::invalid_params(text, None));
        }
        Ok(requested.insert(uri.to_owned()))
    }

    /// Ends the subscription of a client of the old era. Gives back whether it was subscribed.
    fn cancel_request(&self, uri: &str) -> bool {
        lock(&self.requested).remove(uri)
    }

    /// A stream of the new era wants to hear of a resource.
    fn begin_stream(&self, uri: &str) {
        *lock(&self.stream_counts).entry(uri.to_owned()).or_default() += 1;
    }

    /// A stream of the new era does not want to hear of a resource any more.
    fn end_stream(&self, uri: &str) {
        let mut streamed = lock(&self.stream_counts);
        if let Some(streams) = streamed.get_mut(uri) {
            *streams = streams.saturating_sub(1);
        }
        streamed.retain(|_, streams| *streams > 0);
    }
}

/// What a stream of the new era is told of: of so many resources at most.
pub(super) fn accepted(requested: &SubscriptionFilter) -> SubscriptionFilter {
    let mut accepted = requested.clone();
    if let Some(uris) = &mut accepted.resource_subscriptions {
        uris.truncate(MAX_SUBSCRIPTIONS);
    }
    accepted
}

/// A client of the old era wants to hear of a resource.
///
/// # Errors
/// Why whoever has it tells of no changes, and that too many are subscribed to.
pub(super) async fn subscribe(session: &ClientSession, uri: &str) -> Result<(), ErrorData> {
    // A file of a call stays as it is, so there is nothing to tell.
    if files::is_file(uri) {
        return Ok(());
    }
    let calls = Arc::clone(session.calls().await?);
    let resource = session.resource_lock(uri);
    let _in_order = resource.lock().await;
    let subscriptions = session.subscriptions();
    let is_new = subscriptions.request(uri)?;
    let told = set_source_subscription(session, &calls, uri, true).await;
    if told.is_ok() {
        subscriptions.mark_announced(uri);
    } else if is_new {
        // What it asked for before stands.
        subscriptions.cancel_request(uri);
    }
    told.map_err(|error| read_error(&error))
}

/// A client of the old era does not want to hear of a resource any more.
///
/// # Errors
/// When the session cannot be opened.
pub(super) async fn unsubscribe(session: &ClientSession, uri: &str) -> Result<(), ErrorData> {
    let calls = Arc::clone(session.calls().await?);
    let resource = session.resource_lock(uri);
    let _in_order = resource.lock().await;
    let subscriptions = session.subscriptions();
    if subscriptions.cancel_request(uri) && !subscriptions.is_wanted(uri) {
        subscriptions.clear_announced(uri);
        let _ = set_source_subscription(session, &calls, uri, false).await;
    }
    Ok(())
}

/// The resources of which one stream of the new era wants to hear. It has to be ended.
pub(super) struct ResourceStream<'a> {
    session: &'a ClientSession,
    calls: &'a ToolSession,
    /// Each with whether its sources may not know yet that this client wants to hear of it.
    uris: Vec<(String, bool)>,
}

impl<'a> ResourceStream<'a> {
    /// A stream wants to hear of these from now on; their sources are told by
    /// [`Self::subscribe_sources`].
    pub(super) fn begin(
        session: &'a ClientSession,
        calls: &'a ToolSession,
        uris: &[String],
    ) -> Self {
        let subscriptions = session.subscriptions();
        let uris: BTreeSet<&String> = uris.iter().filter(|uri| !files::is_file(uri)).collect();
        let begin = |uri: &String| {
            let is_told = subscriptions.is_announced(uri);
            subscriptions.begin_stream(uri);
            (uri.clone(), !is_told)
        };
        Self {
            session,
            calls,
            uris: uris.into_iter().map(begin).collect(),
        }
    }

    /// All of them.
    pub(super) fn uris(&self) -> Vec<&str> {
        self.uris.iter().map(|(uri, _)| uri.as_str()).collect()
    }

    /// Tells the sources, of several resources at a time: each may take long to answer. Sends what
    /// the client has to be told: a resource may have changed after the stream was acknowledged and
    /// before a source knew.
    pub(super) async fn subscribe_sources(&self, missed: mpsc::UnboundedSender<Arc<str>>) {
        let mut tasks = Vec::new();
        for (uri, is_new) in &self.uris {
            tasks.push(self.subscribe_source_of(uri, *is_new, &missed).boxed());
        }
        run_concurrently(tasks).await;
    }

    /// Tells the sources of one of them, in order with whoever else tells them of it.
    async fn subscribe_source_of(
        &self,
        uri: &str,
        is_new: bool,
        missed: &mpsc::UnboundedSender<Arc<str>>,
    ) {
        let resource = self.session.resource_lock(uri);
        let _in_order = resource.lock().await;
        let subscriptions = self.session.subscriptions();
        // Who listened before may be gone meanwhile, and the sources told that.
        let is_new = is_new || !subscriptions.is_announced(uri);
        // The acknowledgement is out; what tells of nothing is heard of by nobody.
        let told = set_source_subscription(self.session, self.calls, uri, true).await;
        if told.is_err() {
            return;
        }
        subscriptions.mark_announced(uri);
        if is_new {
            // Whoever listened may be gone.
            let _ = missed.send(Arc::from(uri));
        }
    }

    /// The stream is over.
    pub(super) async fn end(self) {
        let mut tasks = Vec::new();
        for (uri, _) in &self.uris {
            tasks.push(self.end_resource(uri).boxed());
        }
        run_concurrently(tasks).await;
    }

    /// Ends one of the stream's resources: where nobody else wants to hear of it, its sources are told.
    async fn end_resource(&self, uri: &str) {
        let resource = self.session.resource_lock(uri);
        let _in_order = resource.lock().await;
        let subscriptions = self.session.subscriptions();
        subscriptions.end_stream(uri);
        if !subscriptions.is_wanted(uri) {
            subscriptions.clear_announced(uri);
            let _ = set_source_subscription(self.session, self.calls, uri, false).await;
        }
    }
}

/// Does these, a few at the same time.
async fn run_concurrently(tasks: Vec<BoxFuture<'_, ()>>) {
    let mut tasks = stream::iter(tasks).buffer_unordered(MAX_AT_ONCE);
    while tasks.next().await.is_some() {}
}

/// Tells the sources that a client wants to hear of a resource, or does not any more.
///
/// # Errors
/// Why whoever has it tells of no changes.
async fn set_source_subscription(
    session: &ClientSession,
    calls: &ToolSession,
    uri: &str,
    on: bool,
) -> Result<(), ReadError> {
    let snapshot = calls.snapshot();
    let (live, cancel) = (discard_output(), CancellationToken::new());
    // Whoever waits may go; the sources are not to go on with it then.
    let _cancelled = cancel.clone().drop_guard();
    let with = silent_call(&snapshot, &cancel, &live);
    let (reader, links) = (calls.reader(None, &with), session.links.sources(uri));
    reader.subscribe(uri, on, &links).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_wanted_until_no_request_and_no_stream_wants_it() {
        let subscriptions = Subscriptions::default();
        for _ in 0..2 {
            subscriptions.request("a").unwrap();
            subscriptions.begin_stream("a");
        }
        assert!(
            subscriptions.cancel_request("a"),
            "twice is no more than once"
        );
        assert!(!subscriptions.cancel_request("a"));
        subscriptions.end_stream("a");
        assert!(subscriptions.is_wanted("a") && !subscriptions.is_requested("a"));
        for _ in 0..2 {
            subscriptions.end_stream("a");
            assert!(!subscriptions.is_wanted("a"));
        }
    }

    #[test]
    fn what_is_subscribed_to_may_be_subscribed_to_again_beyond_the_limit() {
        let subscriptions = Subscriptions::default();
        for number in 0..MAX_SUBSCRIPTIONS {
            subscriptions.request(&number.to_string()).unwrap();
        }
        assert!(subscriptions.request("more").is_err());
        assert!(
            !subscriptions.request("0").unwrap(),
            "it is subscribed to it"
        );
    }

    #[test]
    fn a_stream_is_told_of_so_many_resources_at_most() {
        let uris = |count: usize| (0..count).map(|number| number.to_string());
        let mut requested = SubscriptionFilter::default();
        requested.resource_subscriptions = Some(uris(MAX_SUBSCRIPTIONS + 1).collect());
        requested.tools_list_changed = Some(true);
        let accepted = accepted(&requested);
        let most: Vec<String> = uris(MAX_SUBSCRIPTIONS).collect();
        assert_eq!(accepted.resource_subscriptions, Some(most));
        assert_eq!(accepted.tools_list_changed, Some(true));
    }
}
