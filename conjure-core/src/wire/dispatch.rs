//! What a wire does, over all wires: the one way on which a host or a program reaches them.

use std::borrow::Cow;

use super::ids::legal_id;
use super::{
    Decoded, Encoded, Endpoint, ReplyDecoder, Wire, WireError, anthropic, gemini, openai_chat,
    openai_responses,
};
use crate::request::ModelRequest;

impl Wire {
    /// Where a request goes, below the base of the API that holds its version, such as
    /// `https://api.openai.com/v1`: `messages`, `responses`, `chat/completions`,
    /// `models/MODEL:streamGenerateContent?alt=sse`.
    #[must_use]
    pub fn resource(self, request: &ModelRequest) -> String {
        match self {
            Self::Anthropic => "messages".to_owned(),
            Self::OpenaiResponses => "responses".to_owned(),
            Self::OpenaiChat => "chat/completions".to_owned(),
            Self::Gemini => gemini::resource(request),
        }
    }

    /// Encodes a request to the provider at this endpoint.
    #[must_use]
    pub fn encode(self, request: &ModelRequest, endpoint: &Endpoint) -> Encoded {
        match self {
            Self::Anthropic => anthropic::encode(request),
            Self::OpenaiResponses => openai_responses::encode(request),
            Self::OpenaiChat => openai_chat::encode(request, &endpoint.dialect),
            Self::Gemini => gemini::encode(request),
        }
    }

    /// A call's id as the provider at this endpoint sees it. Gemini pairs calls by their places and
    /// sees only ids of its own.
    #[must_use]
    pub fn call_id<'a>(self, endpoint: &Endpoint, id: &'a str) -> Cow<'a, str> {
        match self {
            Self::Anthropic => legal_id(id, anthropic::MAX_ID_LENGTH),
            Self::OpenaiResponses => legal_id(id, openai_responses::MAX_ID_LENGTH),
            Self::OpenaiChat => openai_chat::call_id(&endpoint.dialect, id),
            Self::Gemini => Cow::Borrowed(id),
        }
    }

    /// A decoder for one reply, streamed or in one JSON body.
    #[must_use]
    pub fn decoder(self, endpoint: &Endpoint) -> Box<dyn ReplyDecoder> {
        match self {
            Self::Anthropic => Box::new(anthropic::decoder_of(endpoint)),
            Self::OpenaiResponses => Box::new(openai_responses::decoder(endpoint)),
            Self::OpenaiChat => Box::new(openai_chat::decoder(endpoint)),
            Self::Gemini => Box::new(gemini::decoder(endpoint)),
        }
    }

    /// Decodes the body of a reply that does not stream.
    #[must_use]
    pub fn decode_body(self, endpoint: &Endpoint, body: &[u8]) -> Decoded {
        match self {
            Self::Anthropic => anthropic::decode_body_of(endpoint, body),
            Self::OpenaiResponses => openai_responses::decode_body(endpoint, body),
            Self::OpenaiChat => openai_chat::decode_body(endpoint, body),
            Self::Gemini => gemini::decode_body(endpoint, body),
        }
    }

    /// What a reply with a status that is no success means. Header names may have any case.
    #[must_use]
    pub fn error(
        self,
        endpoint: &Endpoint,
        status: u16,
        headers: &[(String, String)],
        body: &[u8],
    ) -> WireError {
        match self {
            Self::Anthropic => anthropic::error_at(endpoint, status, headers, body),
            Self::OpenaiResponses => openai_responses::error(endpoint, status, headers, body),
            Self::OpenaiChat => openai_chat::error(endpoint, status, headers, body),
            Self::Gemini => gemini::error(endpoint, status, headers, body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Part;
    use crate::wire::REPLY_TOO_LARGE;

    #[test]
    fn a_reply_that_never_ends_is_given_up() {
        let call = |wire: Wire, n: usize| match wire {
            Wire::Anthropic => format!(
                r#"{{"type":"content_block_start","index":{n},"content_block":{{"type":"tool_use","id":"c{n}","name":"x"}}}}"#
            ),
            Wire::OpenaiResponses => format!(
                r#"{{"type":"response.output_item.added","output_index":{n},"item":{{"type":"function_call","call_id":"c{n}","name":"x"}}}}"#
            ),
            Wire::OpenaiChat => format!(
                r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":{n},"id":"c{n}","function":{{"name":"x"}}}}]}}}}]}}"#
            ),
            Wire::Gemini => {
                r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"x"}}]}}]}"#
                    .to_owned()
            }
        };
        for wire in Wire::ALL {
            let mut decoder = wire.decoder(&Endpoint::new("p"));
            let mut events = Vec::new();
            for n in 0..5_000 {
                decoder.push(
                    format!("data: {}\n\n", call(wire, n)).as_bytes(),
                    &mut events,
                );
            }
            let decoded = decoder.finish(&mut events);
            let error = decoded.error.unwrap();
            assert!(
                error.message.contains("more than 4096 parts"),
                "{wire}: {error}"
            );
            assert!(decoded.response.parts.len() <= 4_097, "{wire}");
        }
    }

    /// A whole reply with this text, or with so many calls.
    fn body(wire: Wire, text: &str, calls: usize) -> String {
        let list = |call: &str| {
            let calls = (0..calls).map(|n| call.replace('#', &n.to_string()));
            calls.collect::<Vec<_>>().join(",")
        };
        match wire {
            Wire::Anthropic => {
                let call = list(r#"{"type":"tool_use","id":"c#","name":"x","input":{}}"#);
                let text = format!(r#"{{"type":"text","text":"{text}"}}"#);
                let content = if calls > 0 { call } else { text };
                format!(
                    r#"{{"type":"message","id":"m","model":"m","content":[{content}],"stop_reason":"end_turn"}}"#
                )
            }
            Wire::OpenaiResponses => {
                let call =
                    list(r#"{"type":"function_call","call_id":"c#","name":"x","arguments":"{}"}"#);
                let text = format!(
                    r#"{{"type":"message","content":[{{"type":"output_text","text":"{text}"}}]}}"#
                );
                let output = if calls > 0 { call } else { text };
                format!(r#"{{"id":"r","status":"completed","output":[{output}]}}"#)
            }
            Wire::OpenaiChat => {
                let calls = list(r#"{"id":"c#","function":{"name":"x","arguments":"{}"}}"#);
                format!(
                    r#"{{"id":"r","choices":[{{"index":0,"message":{{"tool_calls":[{calls}],"content":"{text}"}},"finish_reason":"stop"}}]}}"#
                )
            }
            Wire::Gemini => {
                let call = list(r#"{"functionCall":{"name":"x"}}"#);
                let text = format!(r#"{{"text":"{text}"}}"#);
                let parts = if calls > 0 { call } else { text };
                format!(
                    r#"{{"candidates":[{{"content":{{"parts":[{parts}]}},"finishReason":"STOP"}}]}}"#
                )
            }
        }
    }

    #[test]
    fn a_body_of_too_many_parts_is_read_as_far_as_it_may_be() {
        for wire in Wire::ALL {
            let endpoint = Endpoint::new("p");
            let decoded = wire.decode_body(&endpoint, body(wire, "", 20_000).as_bytes());
            let error = decoded.error.unwrap();
            assert_eq!(error.kind, REPLY_TOO_LARGE, "{wire}: {error}");
            assert!(!decoded.response.complete, "{wire}");
            let parts = decoded.response.parts.len();
            assert!((4_096..=4_097).contains(&parts), "{wire}: {parts}");
        }
    }

    #[test]
    fn of_a_body_or_an_event_that_is_too_large_the_beginning_is_kept() {
        let text = "ü".repeat(5 * 1024 * 1024);
        for wire in Wire::ALL {
            let body = body(wire, &text, 0);
            // What a stream has in one event looks the same on two of the wires.
            let streams = matches!(wire, Wire::OpenaiChat | Wire::Gemini);
            for before in ["", "data: "].into_iter().take(1 + usize::from(streams)) {
                let mut decoder = wire.decoder(&Endpoint::new("p"));
                let mut events = Vec::new();
                let bytes = [before.as_bytes(), body.as_bytes(), b"\n\n"].concat();
                for piece in bytes.chunks(1 << 20) {
                    decoder.push(piece, &mut events);
                }
                let decoded = decoder.finish(&mut events);
                let error = decoded.error.unwrap();
                assert_eq!(error.kind, REPLY_TOO_LARGE, "{wire}: {error}");
                assert!(!decoded.response.complete, "{wire}");
                let kept = decoded.response.parts.iter().filter_map(Part::as_text);
                let kept: usize = kept.map(str::len).sum();
                let taken = crate::wire::sse::MAX_EVENT_BYTES / 2;
                assert!(
                    kept >= taken,
                    "all that a session takes: {wire}: {before} {kept}"
                );
            }
        }
    }

    #[test]
    fn a_request_goes_where_its_wire_says() {
        let mut request =
            ModelRequest::empty(&crate::repair::RepairTarget::new("x", "a model/../b?c"));
        let places = |request: &ModelRequest| Wire::ALL.map(|wire| wire.resource(request));
        assert_eq!(
            places(&request),
            [
                "messages",
                "responses",
                "chat/completions",
                "models/a%20model%2F..%2Fb%3Fc:streamGenerateContent?alt=sse",
            ]
        );
        request.stream = false;
        request.model = "models/gemini-2.5-flash".to_owned();
        assert_eq!(
            places(&request)[3],
            "models/gemini-2.5-flash:generateContent"
        );
    }

    #[test]
    fn every_wire_is_found_by_the_name_that_it_shows() {
        for wire in Wire::ALL {
            assert_eq!(wire.to_string().parse(), Ok(wire));
            let json = serde_json::to_string(&wire).unwrap();
            assert_eq!(json, format!("\"{wire}\""));
        }
        let error = "openai".parse::<Wire>().unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no wire `openai`; the wires are anthropic, openai-responses, openai-chat, \
             gemini"
        );
    }
}
