//! What a person is told of tools that are others now, and of plugins that are there in another
//! version.

use conjure_core::log::{PluginChange, StateHandover, TableChange, VersionStep};

/// What a person is told of another table.
pub(super) fn table_notice(change: &TableChange) -> String {
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
    let mut notice = match parts.is_empty() {
        true => "The tools are the same, and plugins behind them are others from the next step on."
            .to_owned(),
        false => format!(
            "The tools are other ones from the next step on ({}).",
            parts.join("; ")
        ),
    };
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
        StateHandover::Lost if change.from == change.to => {
            format!("{step}; its state, if it held any, was lost: it cannot be handed over.")
        }
        StateHandover::Lost => {
            format!(
                "{step}; its state, if it held any, was lost: the two versions cannot hand it over."
            )
        }
    }
}

/// What a person is told of plugins that are others since the thread was open before.
pub(super) fn reopened_notice(change: &TableChange) -> String {
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
        VersionStep::Rebuild => format!("{plugin} {from}, loaded again"),
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
             notes 0.3.0, loaded again."
        );
        let same_tools = TableChange {
            plugins: vec![plugin("0.3.0", "0.3.0", StateHandover::Lost)],
            ..TableChange::default()
        };
        assert_eq!(
            table_notice(&same_tools),
            "The tools are the same, and plugins behind them are others from the next step on. notes \
             0.3.0, loaded again; its state, if it held any, was lost: it cannot be handed over."
        );
    }
}
