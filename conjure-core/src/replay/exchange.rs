//! A model request of a thread, as its wire encodes it.

use serde_json::Value;

use super::cassette::{ExchangeKind, ModelExchange};
use super::drive::DrivenRequest;
use super::setup::Recipient;
use crate::log::Entry;
use crate::request::ModelRequest;
use crate::request::summary_request;

/// The request that leaves behind these entries.
pub(super) fn compile_request(
    request: &DrivenRequest<'_>,
    script: &[Entry],
    recipient: &Recipient,
) -> ModelRequest {
    let entries = script.get(..request.entry_count).unwrap_or(script);
    let like = request.settings.request(entries, request.table, recipient);
    let Some(summary) = request.summary else {
        return like;
    };
    let mut room = recipient.room();
    if summary.was_refused {
        room.window = Some(room.window.unwrap_or(request.tokens).min(request.tokens));
    }
    summary_request(
        entries,
        summary.visible_from,
        &recipient.target(),
        &room,
        like,
    )
}

/// Compiles and encodes the request that leaves behind these entries.
pub(super) fn exchange(
    request: &DrivenRequest<'_>,
    script: &[Entry],
    whom: &Recipient,
) -> ModelExchange {
    let compiled = compile_request(request, script, whom);
    let endpoint = whom.endpoint.clone().with_model(&whom.model);
    let encoded = whom.wire.encode(&compiled, &endpoint);
    ModelExchange {
        kind: if request.summary.is_some() {
            ExchangeKind::Summary
        } else {
            ExchangeKind::Reply
        },
        provider: whom.provider.clone(),
        model: whom.model.clone(),
        wire: whom.wire,
        resource: whom.wire.resource(&compiled),
        content_type: "application/json".to_owned(),
        tokens: request.tokens,
        body: parse_body(&encoded.body),
        notes: encoded.notes,
        left_out: encoded.quarantined,
    }
}

/// A body as JSON; as a text where it is none.
pub(super) fn parse_body(body: &[u8]) -> Value {
    let text = || String::from_utf8_lossy(body).into_owned().into();
    serde_json::from_slice(body).unwrap_or_else(|_| text())
}
