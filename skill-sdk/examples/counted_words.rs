//! A skill as an `impl` block: the attribute `#[skill]`, with arguments, options, a callback and a state
//! that is made of the configuration.
//!
//! `cargo run -p conjure-skill-sdk --features testkit --example counted_words` calls it through both
//! transports.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use conjure_skill_sdk::protocol::Read;
use conjure_skill_sdk::testkit::{TestHost, Transport};
use conjure_skill_sdk::{Cx, Error, Json, Result, Setup, export_skill, skill};
use serde_json::json;

/// The words of one session.
struct Words {
    least: usize,
    counted: Mutex<BTreeMap<String, usize>>,
}

/// Counts the words of texts
#[skill(name = "counted-words")]
impl Words {
    /// `{"least": 3}`: shorter words do not count.
    #[create]
    fn new(setup: &Setup) -> Result<Self> {
        let least = setup.create.config.get("least");
        let least = least.map_or(Some(1), serde_json::Value::as_u64);
        let least = least.ok_or_else(|| Error::invalid("`least` is a number"))?;
        Ok(Self {
            least: usize::try_from(least)?,
            counted: Mutex::default(),
        })
    }

    /// Counts the words of a text, and says how many there are now
    #[tool]
    fn count(
        &self,
        cx: &Cx,
        /// The text
        text: String,
        /// Whether capital letters make another word
        #[serde(default)]
        case_matters: bool,
    ) -> Result<String> {
        let mut counted = self.counted()?;
        for word in text.split_whitespace() {
            cx.check()?;
            if word.chars().count() < self.least {
                continue;
            }
            let word = if case_matters {
                word.to_owned()
            } else {
                word.to_lowercase()
            };
            *counted.entry(word).or_default() += 1;
        }
        Ok(format!("{} different words", counted.len()))
    }

    /// How often a word was there
    #[tool(read_only, stateless)]
    fn times(&self, word: String) -> Result<Json<usize>> {
        Ok(Json(
            self.counted()?.get(&word).copied().unwrap_or_default(),
        ))
    }

    #[read("all: every word and how often it was there")]
    fn all(&self, _request: Read) -> Result<Json<BTreeMap<String, usize>>> {
        Ok(Json(self.counted()?.clone()))
    }

    /// No tool: it has no mark.
    fn counted(&self) -> Result<MutexGuard<'_, BTreeMap<String, usize>>> {
        self.counted
            .lock()
            .map_err(|_| Error::new("the words are broken"))
    }
}

export_skill!(Words::skill, name = "counted-words");

fn main() -> Result<()> {
    for transport in Transport::BOTH {
        let host = TestHost::builder()
            .transport(transport)
            .config(json!({ "least": 2 }))
            .build()?;
        let words = host.link(Words::skill)?;
        let counted = words.call("skill.tool.count", json!({ "text": "The cat saw a cat" }));
        assert_eq!(counted.text(), "3 different words");
        let times = words.call("skill.tool.times", json!({ "word": "cat" }));
        assert_eq!(times.text(), "2");
        println!("{transport:?}: {} and two of them \"cat\"", counted.text());
    }
    Ok(())
}
