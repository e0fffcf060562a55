//! A provider on loopback that answers by script, with every fault a wire can have.
//!
//! Tests of the host go through a real socket: this crate is the other end. It answers each request
//! from a [`Script`], decides every byte and every pause on the socket, refuses requests that the
//! provider would refuse, and keeps what it received. It plays no model: nothing here thinks.
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
//! | file | concept |
//! |---|---|
//! | `script` | which reply a request gets |
//! | `reply`, `message` | what a reply says, before any wire |
//! | `wire` | how a provider writes it down |
//! | `fault` | what goes wrong among the events of a stream |
//! | `delivery` | how bytes reach the socket: chunks, delays, holds, cuts |
//! | `validate` | what the provider would refuse |
//! | `server`, `http`, `perform` | the socket |

mod delivery;
mod fault;
mod http;
mod message;
mod perform;
mod reply;
mod request;
mod script;
mod server;
mod state;
mod validate;
mod wire;

pub use delivery::{Chunks, Cut, CutAt, CutHow, Delivery, Ending, Framing, Hold, Position};
pub use fault::{Faults, Pings, SecondStart, StreamError};
pub use message::{Block, Message, ToolBlock, Usage};
pub use reply::{ErrorReply, HttpReply, Reply, ReplyKind};
pub use request::Request;
pub use script::{Matcher, Script, ScriptError, Step};
pub use server::{MockError, MockLlm};
pub use state::Outcome;
pub use validate::{Rule, Violation, validate};
