//! What changes while a session runs: its tools and its settings.

use std::sync::Arc;

use conjure_core::chat::Event;
use conjure_core::log::{self, EntryBody, PluginChange, StateHandover, TableChange, VersionStep};
use conjure_core::routing::{ExcludedTools, ToolName};
use conjure_core::turn::{self, Input, When};

use super::actor::Actor;
use super::derived::{turn_settings, whom};
use super::handle::{SessionError, Settings};
use super::history::Record;
use crate::backend::reports::Report;
use crate::backend::sampling::AskedModel;
use crate::backend::watching::Change;
use conjure_config::SessionSpec;

impl Actor {
    pub(super) fn backends_changed(&mut self) {
        for change in self.toolbox.changes().take() {
            match change {
                Change::Notice { text } => self.recorder.event(Event::Notice { text }),
                // Nobody subscribes to a resource in a conversation.
                Change::Resource { .. } => {}
                Change::Catalog { backend } => {
                    let Some(asked) = self.toolbox.ask_catalog(&backend) else {
                        continue;
                    };
                    let internal = self.internal.clone();
                    let provider = self.spec.provider.clone();
                    tokio::spawn(async move {
                        match asked.await {
                            Ok(catalog) => {
                                let renewed = Report::Catalog {
                                    backend,
                                    provider,
                                    catalog,
                                };
                                let _ = internal.send(renewed).await;
                            }
                            Err(error) => {
                                tracing::warn!(backend, "keeps its catalog: {error}");
                            }
                        }
                    });
                }
            }
        }
    }

    pub(super) fn plugins_changed(&mut self) {
        let (snapshot, quarantined) = self.toolbox.update(&self.newest);
        for kept_out in ExcludedTools::of(&quarantined) {
            self.note(kept_out.to_string());
        }
        let diff = self.newest.table().diff(snapshot.table());
        let words = |names: &[ToolName]| -> Vec<String> {
            names.iter().map(|name| name.as_str().to_owned()).collect()
        };
        let change = TableChange {
            version: snapshot.table().version(),
            added: words(&diff.added),
            removed: words(&diff.removed),
            changed: words(&diff.changed),
            plugins: self.toolbox.changed_plugins(&self.newest),
        };
        let changed = self.newest.table().version() != change.version;
        self.newest = Arc::new(snapshot);
        if !changed {
            return;
        }
        self.recorder.event(Event::Notice {
            text: table_notice(&change),
        });
        self.input(Input::Table(change));
        if !self.machine.is_busy() {
            // Nothing runs, so nothing holds on to the table before.
            self.current.store(Arc::clone(&self.newest));
        }
    }

    /// Tells a person something, and the thread.
    pub(super) fn note(&mut self, text: String) {
        self.recorder.entry(EntryBody::notice(text.clone()));
        self.recorder.event(Event::Notice { text });
    }

    /// Says which plugins that calls of this thread needed are there in another version than they
    /// ran in. What they held in memory ended with the session that had it.
    pub(super) fn compare_versions(&mut self) {
        let ran = log::plugin_versions(self.recorder.entries());
        let table = self.newest.table();
        let plugins: Vec<PluginChange> = ran
            .into_iter()
            .filter_map(|(plugin, from)| {
                let mut routes = table.routes().iter();
                let route = routes.find(|route| {
                    let origin = &route.definition.origin;
                    origin.plugin.as_deref() == Some(plugin.as_str())
                })?;
                let to = route.definition.origin.version.clone()?;
                let state = match &*route.kind {
                    "native" => StateHandover::Lost,
                    _ => StateHandover::None,
                };
                (to != from).then_some(PluginChange {
                    plugin,
                    from,
                    to,
                    state,
                })
            })
            .collect();
        if plugins.is_empty() {
            return;
        }
        let change = TableChange {
            version: table.version(),
            plugins,
            ..TableChange::default()
        };
        let text = reopened_notice(&change);
        self.recorder.event(Event::Notice { text });
        self.input(Input::Table(change));
    }

    pub(super) fn change(&mut self, change: &Settings, when: When) -> Result<(), SessionError> {
        // What is still to come stays, with this on top.
        let newest = self.revisions.last_key_value().map(|(_, spec)| spec);
        let spec = change.applied_to(newest.unwrap_or(&self.spec));
        self.reconfigure(spec, when)
    }

    /// Uses another specification, whose backends are the same.
    pub(super) fn reconfigure(
        &mut self,
        spec: SessionSpec,
        when: When,
    ) -> Result<(), SessionError> {
        self.shared.provider(&spec)?;
        let entry = Record::of(&spec, &self.request_context.working_dir).entry();
        let mut settings = turn_settings(&spec, &self.shared.models);
        self.revision += 1;
        settings.revision = self.revision;
        self.revisions.insert(self.revision, spec);
        self.input(Input::Settings {
            settings: Box::new(settings),
            entry: Box::new(entry),
            when,
        });
        Ok(())
    }

    pub(super) fn use_settings(&mut self, settings: &turn::Settings) {
        let Some(spec) = self.revisions.remove(&settings.revision) else {
            return;
        };
        // Those before are part of it, or were given up for it.
        self.revisions = self.revisions.split_off(&settings.revision);
        match self.shared.provider(&spec) {
            Ok(provider) => {
                self.spec = spec;
                self.renew_policy();
                let now = AskedModel {
                    provider: Arc::clone(&provider),
                    model: settings.model.clone(),
                    session: Some(self.internal.clone()),
                };
                self.asked_by_plugins.store(Some(Arc::new(now)));
                self.provider = provider;
                self.outdated |= self.toolbox.talks_to(whom(&self.spec));
            }
            Err(error) => tracing::error!("the provider stays: {error}"),
        }
    }

    /// Asks for the catalogs that depend on the model, where it is another provider's now. Before
    /// anything is sent to it.
    pub(super) async fn renew_catalogs(&mut self) {
        self.outdated = false;
        self.toolbox.renew_catalogs().await;
        self.plugins_changed();
        if self.calls.is_empty() {
            // What is made again for the new model has its tools; no call runs on the old.
            self.current.store(Arc::clone(&self.newest));
        }
    }
}

/// What a person is told of another table.
fn table_notice(change: &TableChange) -> String {
    let mut parts = Vec::new();
    for (word, names) in [
        ("new", &change.added),
        ("gone", &change.removed),
        ("changed", &change.changed),
    ] {
        if !names.is_empty() {
            parts.push(format!("{word}: {}", names.join(", ")));
        }
    }
    let mut notice = format!(
        "The tools are other ones from the next step on ({}).",
        parts.join("; ")
    );
    for change in &change.plugins {
        notice.push(' ');
        notice.push_str(&plugin_notice(change));
    }
    notice
}

/// What a person is told of a plugin that is there in another version. Whether its state comes over
/// is known at its next call only, and told then.
pub(super) fn plugin_notice(change: &PluginChange) -> String {
    let step = step(change);
    match change.state {
        StateHandover::None => format!("{step}."),
        StateHandover::Carried => format!("{step}; its state moves over at its next call."),
        StateHandover::Lost => {
            format!(
                "{step}; its state, if it held any, was lost: the two versions cannot hand it over."
            )
        }
    }
}

/// What a person is told of plugins that are others since the thread was open before.
fn reopened_notice(change: &TableChange) -> String {
    let mut notice =
        "Since this thread was open before, plugins are there in another version.".to_owned();
    for change in &change.plugins {
        let step = step(change);
        notice.push_str(&match change.state {
            StateHandover::None | StateHandover::Carried => format!(" {step}."),
            StateHandover::Lost => {
                format!(" {step}; its state, if it held any in memory, was lost.")
            }
        });
    }
    notice
}

fn step(change: &PluginChange) -> String {
    let PluginChange {
        plugin, from, to, ..
    } = change;
    match change.step() {
        VersionStep::Upgrade => format!("{plugin} {from} → {to}"),
        VersionStep::Downgrade => format!("{plugin} {from} → {to}, a downgrade"),
        VersionStep::Rebuild => format!("{plugin} {from}, built again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_says_versions_downgrade_and_lost_state() {
        let plugin = |from: &str, to: &str, state| PluginChange {
            plugin: "notes".to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            state,
        };
        let change = TableChange {
            changed: vec!["notes_execute".to_owned()],
            plugins: vec![
                plugin("0.2.0", "0.3.0", StateHandover::Carried),
                plugin("0.3.0", "0.2.0", StateHandover::Lost),
                plugin("0.3.0", "0.3.0", StateHandover::None),
            ],
            ..TableChange::default()
        };
        assert_eq!(
            table_notice(&change),
            "The tools are other ones from the next step on (changed: notes_execute). notes 0.2.0 \
             → 0.3.0; its state moves over at its next call. notes 0.3.0 → 0.2.0, a \
             downgrade; its state, if it held any, was lost: the two versions cannot hand it over. \
             notes 0.3.0, built again."
        );
    }
}
