//! A provider on loopback that answers by script, with every fault a wire can have.
//!
//! Tests of the host go through a real socket: this crate is the other end. It answers each request
//! from a [`Script`], decides every byte and every pause on the socket, refuses requests that the
//! provider would refuse, and keeps what it received. It plays no model: nothing here thinks.
//!
//! One server speaks four wires, streaming and not, each on its own path: Anthropic Messages
//! (`/v1/messages`), `OpenAI` Responses (`/v1/responses`), `OpenAI` Chat Completions
//! (`/v1/chat/completions`, in the dialects of compatible servers) and Gemini
//! (`/v1beta/models/{model}:generateContent` and `:streamGenerateContent`, as events with `alt=sse`
//! and else as a JSON list), and lists models (`GET /v1/models`, `GET /v1beta/models`). The same script
//! is written down on any of them, so that a conversation may begin on one and go on with the others.
//! Ids and signatures are made in each wire's grammar and checked when they come back.
//!
//! ```
//! use conjure_mock_llm::{Message, MockLlm, Script};
//!
//! let script = Script::new()
//!     .reply(Message::new().tool_use("toolu_1", "clock_read", serde_json::json!({})))
//!     .answer(|request| {
//!         let time = request.tool_result_text("toolu_1").unwrap_or_default();
//!         Message::new().text(format!("It is {time}.")).into()
//!     });
//! let mock = MockLlm::start_blocking(script)?;
//! assert!(mock.base_url().starts_with("http://127.0.0.1:"));
//! # Ok::<(), conjure_mock_llm::MockError>(())
//! ```
//!
//! Everything but the socket is there without a server, too: a message as any wire writes it, and what
//! a provider would refuse, in form ([`validate`]) and of what is said to be its own ([`verify`]).
//!
//! ```
//! use conjure_mock_llm::{Message, Request, Wire, validate, verify};
//! use serde_json::json;
//!
//! let body = json!({"model": "gpt-5", "messages": [{"role": "user", "content": "Hello"}]});
//! let request = Request::to(Wire::Chat, "gpt-5", body).streaming();
//! assert_eq!(validate(Wire::Chat, &request), []);
//! assert_eq!(verify(Wire::Chat, &request), []);
//! let stream = Message::new().reasoning("Hm.").text("Hi").body(&request);
//! assert!(stream.ends_with(b"data: [DONE]\n\n"));
//! ```
//!
//! | file | concept |
//! |---|---|
//! | `script` | which reply a request gets |
//! | `reply`, `message` | what a reply says, before any wire |
//! | `wire` | how a provider writes it down, one file a wire |
//! | `dialect` | how servers of one wire differ |
//! | `mint` | ids and signatures, made and recognised |
//! | `fault`, `bulk` | what goes wrong among the events of a stream, and what there is far too much of |
//! | `delivery` | how bytes reach the socket: chunks, delays, holds, cuts |
//! | `validate` | what the provider would refuse, one folder a wire |
//! | `hosted` | Anthropic's Skills and Files APIs and its containers, which have a memory |
//! | `server`, `http`, `perform` | the socket |

mod bulk;
mod delivery;
mod dialect;
mod fault;
mod hosted;
mod http;
mod message;
mod mint;
mod perform;
mod reply;
mod request;
mod script;
mod server;
mod state;
mod validate;
mod wire;

pub use bulk::Bulk;
pub use delivery::{Chunks, Cut, CutAt, CutHow, Delivery, Ending, Framing, Hold, Position};
pub use dialect::{
    CallIds, CallIndex, ChatDialect, Dialect, GeminiDialect, NoArguments, ReasoningField,
    ResponsesDialect, StreamUsage,
};
pub use fault::{Faults, Pings, SecondStart, StreamError};
pub use hosted::{Hosted, StoredFile, StoredSkill};
pub use message::{Block, Message, ToolBlock, Usage};
pub use mint::signature;
pub use reply::{ErrorReply, HttpReply, Reply, ReplyKind};
pub use request::Request;
pub use script::{Matcher, Script, ScriptError, Step};
pub use server::{MockError, MockLlm};
pub use state::Outcome;
pub use validate::{Rule, Violation, validate, verify};
pub use wire::Wire;
