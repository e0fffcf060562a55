//! What is known of models: context, longest answer, prices, and what they cannot look at.
//!
//! From a data file that comes with the program, and from one of the person's that wins over it.
//! Asks nobody; what a provider lists itself is another matter.

use std::collections::BTreeMap;
use std::path::Path;

use conjure_core::cost::Price;
use conjure_core::repair::RepairTarget;
use conjure_core::wire::model_family;
use serde::{Deserialize, Serialize};

use super::Provider;

/// The file that comes with the program.
const BUILT_IN: &str = include_str!("../data/models.toml");
/// The person's, in the data directory.
const FILE: &str = "models.toml";

/// What is known of a model; what is absent is not known.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelFacts {
    /// Tokens of input and output together.
    pub context: Option<u64>,
    /// The most tokens of one answer.
    pub max_output: Option<u64>,
    /// Whether it can look at images. Where it cannot, it is told of each in words; where that is not
    /// known, its provider decides.
    pub images: Option<bool>,
    /// What tokens cost.
    pub price: Price,
}

/// Models by provider and name.
type ModelTable = BTreeMap<String, BTreeMap<String, ModelFacts>>;

/// What is known of all models.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelBook {
    table: ModelTable,
}

/// A data file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelBookError {
    /// The file cannot be read.
    #[error("the file of models cannot be used: {source}")]
    Read {
        /// Why, with the file's name.
        source: std::io::Error,
    },
    /// The file does not have the form of a table of models.
    #[error("the file of models `{path}` is not right: {message}")]
    Parse {
        /// The file.
        path: String,
        /// The place in the file, and what is wrong there.
        message: String,
    },
}

impl ModelBook {
    /// What comes with the program, and over it what `models.toml` in the data directory says.
    ///
    /// # Errors
    /// [`ModelBookError`] names file, line and field.
    pub fn read(data_dir: &Path) -> Result<Self, ModelBookError> {
        let mut book = Self {
            table: parse(BUILT_IN, "conjure-host/data/models.toml")?,
        };
        let path = data_dir.join(FILE);
        match conjure_config::fs::read_to_string(&path) {
            Ok(text) => book.add(parse(&text, &path.display().to_string())?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(ModelBookError::Read { source }),
        }
        Ok(book)
    }

    /// What is known of a model; its name may say when it was published.
    #[must_use]
    pub fn facts(&self, provider: &str, model: &str) -> Option<ModelFacts> {
        let models = self.table.get(provider)?;
        models
            .get(model)
            .or_else(|| models.get(&model_family(model)))
            .copied()
    }

    /// Narrows the target of a repair by what is known that the model cannot look at. What its wire
    /// cannot carry stays so, whatever is known of the model.
    #[must_use]
    pub fn narrowed(&self, target: RepairTarget) -> RepairTarget {
        let facts = self.facts(&target.provider, &target.model);
        let sees = facts.and_then(|facts| facts.images).unwrap_or(true);
        RepairTarget {
            images: target.images && sees,
            ..target
        }
    }

    /// Target of the repair of a conversation that goes to a model of a session's provider. `name` is
    /// the session's for the provider, under which facts and sidecars of the conversation are; the
    /// provider itself may go by another one.
    #[must_use]
    pub fn target(&self, name: &str, provider: &dyn Provider, model: &str) -> RepairTarget {
        self.narrowed(RepairTarget {
            provider: name.to_owned(),
            ..provider.target(model)
        })
    }

    /// The models of a provider, by name.
    pub fn models(&self, provider: &str) -> impl Iterator<Item = &str> {
        let models = self.table.get(provider).into_iter();
        models.flat_map(|models| models.keys().map(String::as_str))
    }

    fn add(&mut self, more: ModelTable) {
        for (provider, models) in more {
            let known = self.table.entry(provider).or_default();
            for (model, facts) in models {
                let own = known.entry(model).or_default();
                own.context = facts.context.or(own.context);
                own.max_output = facts.max_output.or(own.max_output);
                own.images = facts.images.or(own.images);
                own.price = Price {
                    input: facts.price.input.or(own.price.input),
                    cache_read: facts.price.cache_read.or(own.price.cache_read),
                    cache_write: facts.price.cache_write.or(own.price.cache_write),
                    output: facts.price.output.or(own.price.output),
                };
            }
        }
    }
}

fn parse(text: &str, path: &str) -> Result<ModelTable, ModelBookError> {
    toml::from_str(text).map_err(|error| ModelBookError::Parse {
        path: path.to_owned(),
        message: error.to_string().trim_end().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::ToolWalk;
    use super::*;

    #[test]
    fn what_comes_with_the_program_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let book = ModelBook::read(dir.path()).unwrap();
        for (provider, models) in &book.table {
            assert!(
                super::super::KnownProvider::named(provider).is_some(),
                "{provider}"
            );
            for (model, facts) in models {
                let price = facts.price;
                assert_eq!(*model, model_family(model), "it would not be found");
                assert!(facts.context >= facts.max_output && facts.max_output.is_some());
                assert!(
                    price.cache_read < price.input && price.input < price.output,
                    "{model}"
                );
            }
        }
        let dated = book.facts("anthropic", "claude-sonnet-4-5-20250929");
        assert_eq!(dated, book.facts("anthropic", "claude-sonnet-4-5"));
        assert_eq!(dated.unwrap().context, Some(200_000));
        assert_eq!(book.facts("anthropic", "claude-nonsense"), None);
    }

    #[test]
    fn a_persons_file_wins_field_by_field() {
        let dir = tempfile::tempdir().unwrap();
        let own = "[openai.\"gpt-5\"]\nprice = { input = 9.0 }\n[mine.m]\ncontext = 7\n";
        conjure_config::fs::write(dir.path().join(FILE), own).unwrap();
        let book = ModelBook::read(dir.path()).unwrap();
        let facts = book.facts("openai", "gpt-5").unwrap();
        assert_eq!(
            (facts.price.input, facts.price.output),
            (Some(9.0), Some(10.0))
        );
        assert_eq!(book.models("mine").collect::<Vec<_>>(), ["m"]);
        conjure_config::fs::write(dir.path().join(FILE), "[mine.m]\ncontxt = 7").unwrap();
        let error = ModelBook::read(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("models.toml") && error.contains("contxt"),
            "{error}"
        );
    }

    #[test]
    fn a_model_that_a_person_says_is_blind_is_shown_no_images() {
        let dir = tempfile::tempdir().unwrap();
        let own = "[ollama.qwen3]\nimages = false\n[ollama.llava]\nimages = true\n\
                   [deepseek.seer]\nimages = true\n";
        conjure_config::fs::write(dir.path().join(FILE), own).unwrap();
        let book = ModelBook::read(dir.path()).unwrap();
        let sees = |provider: &str, model: &str, images| {
            let target = RepairTarget {
                images,
                ..RepairTarget::new(provider, model)
            };
            book.narrowed(target).images
        };
        assert!(!sees("ollama", "qwen3", true));
        assert!(sees("ollama", "llava", true) && sees("ollama", "another", true));
        assert!(sees("openrouter", "qwen3", true), "another provider's");
        assert!(!sees("deepseek", "seer", false), "its wire carries none");
    }

    #[test]
    fn facts_are_those_of_the_name_that_a_session_has_for_its_provider() {
        let dir = tempfile::tempdir().unwrap();
        let own = "[mine.m]\nimages = false\n";
        conjure_config::fs::write(dir.path().join(FILE), own).unwrap();
        let book = ModelBook::read(dir.path()).unwrap();
        let target = book.target("mine", &ToolWalk, "m");
        assert_eq!((target.provider.as_str(), target.images), ("mine", false));
        assert_eq!(target.wire, ToolWalk.target("m").wire);
        assert!(book.target(ToolWalk.name(), &ToolWalk, "m").images);
    }
}
