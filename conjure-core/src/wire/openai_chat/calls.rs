//! Tool calls out of the fragments that servers send.
//!
//! Id and name come once, in the first fragment of an index; but some servers leave the index out,
//! count it from 1, repeat the id, or send ids that are empty. A call is never held to be whole
//! because its arguments can be read: `{}` may be the beginning of something.

use serde::Deserialize;
use serde_json::Value;

use crate::chat::{FunctionCall, StreamEvent};
use crate::wire::arguments;
use crate::wire::scan::{Count, LooseString};

/// A fragment of a call, read in place.
#[derive(Deserialize)]
pub(super) struct CallFragment<'a> {
    index: Option<Count>,
    #[serde(borrow, default)]
    id: LooseString<'a>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

/// The function in a fragment, or in the old `function_call` field.
#[derive(Deserialize)]
pub(super) struct Function<'a> {
    #[serde(borrow, default)]
    name: LooseString<'a>,
    #[serde(borrow, default)]
    arguments: LooseString<'a>,
}

impl<'a> CallFragment<'a> {
    /// A call in the field that was there before there were several.
    pub(super) fn single(function: Function<'a>) -> Self {
        Self {
            index: Some(Count(0)),
            id: LooseString::Absent,
            function: Some(function),
        }
    }
}

/// The calls of a message while they come in.
#[derive(Debug, Clone, Default)]
pub(super) struct ChatCalls(Vec<ChatCall>);

#[derive(Debug, Clone, Default)]
struct ChatCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    announced: bool,
}

impl ChatCalls {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes a fragment in; a call is announced once its name is known.
    pub(super) fn take(&mut self, fragment: &CallFragment<'_>, out: &mut Vec<StreamEvent>) {
        let function = fragment.function.as_ref();
        let name = function.map_or("", |function| function.name.str());
        let at = self.find(fragment, name).unwrap_or_else(|| {
            self.0.push(ChatCall {
                index: fragment.index.map(|index| index.0),
                ..ChatCall::default()
            });
            self.0.len() - 1
        });
        let Some(call) = self.0.get_mut(at) else {
            return;
        };
        if call.id.is_empty() && !call.announced {
            fragment.id.str().clone_into(&mut call.id);
        }
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        }
        match function.map(|function| &function.arguments) {
            Some(LooseString::Text(piece)) => call.arguments.push_str(piece),
            // An object instead of its text.
            Some(LooseString::Other(value)) => call.arguments.push_str(&value.to_string()),
            Some(LooseString::Absent) | None => {}
        }
        if !call.announced && !call.name.is_empty() {
            call.announced = true;
            if call.id.is_empty() {
                call.id = fallback_call_id(at);
            }
            out.push(StreamEvent::CallStarted {
                call_id: call.id.clone(),
                name: call.name.clone(),
            });
        }
    }

    /// The call that a fragment goes on with; none when it begins one.
    fn find(&self, fragment: &CallFragment<'_>, name: &str) -> Option<usize> {
        let id = fragment.id.str();
        let index = fragment.index.map(|index| index.0);
        let same_place = |call: &ChatCall| index.is_none() || call.index == index;
        if !id.is_empty()
            && let Some(at) = self
                .0
                .iter()
                .rposition(|call| call.id == id && same_place(call))
        {
            return Some(at);
        }
        match index {
            Some(_) => {
                let at = self.0.iter().rposition(|call| call.index == index)?;
                // Another id and another name under one index: a server that always says 0.
                let is_other = self.0.get(at).is_some_and(|call| {
                    let has_id = !call.id.is_empty() && !id.is_empty() && call.id != id;
                    has_id && !name.is_empty()
                });
                (!is_other).then_some(at)
            }
            None if !id.is_empty() => None,
            None => {
                let at = self.0.len().checked_sub(1)?;
                let is_other = self.0.get(at).is_some_and(|call| {
                    let readable = || serde_json::from_str::<Value>(&call.arguments).is_ok();
                    !name.is_empty() && !call.name.is_empty() && (name != call.name || readable())
                });
                (!is_other).then_some(at)
            }
        }
    }

    /// The calls, in the order in which they began.
    ///
    /// `whole`: whether the reply came to its end. `cut`: whether a limit ended it, so that the
    /// last call may have been in the middle of its arguments.
    pub(super) fn into_calls(self, whole: bool, cut: bool) -> Vec<FunctionCall> {
        let last = self.0.len().saturating_sub(1);
        self.0
            .into_iter()
            .enumerate()
            .map(|(at, call)| {
                let whole = whole && !(cut && at == last);
                let (arguments, arguments_text) = arguments::parsed(&call.arguments, whole);
                FunctionCall {
                    call_id: if call.id.is_empty() {
                        fallback_call_id(at)
                    } else {
                        call.id
                    },
                    name: call.name,
                    arguments,
                    arguments_text,
                }
            })
            .collect()
    }
}

/// An id for a call that has none. Whoever keeps the thread makes it unique there.
fn fallback_call_id(at: usize) -> String {
    format!("call_{}", at + 1)
}
