//! The judge of a session: its routing table and its policy behind one question.
//!
//! Says where a call runs and beside which others. Asks nobody and runs nothing.

use std::collections::HashSet;

use super::judge::{CallVerdict, Judge};
use crate::chat::FunctionCall;
use crate::context::{CallFailure, CallFailureKind, no_such_tool};
use crate::routing::{Policy, PolicyCall, PolicyDecision, Route, RouteRef, RoutingTable};

/// Looks calls up in a routing table and asks a policy about them.
#[derive(Debug, Clone)]
pub struct TableJudge<'a> {
    table: &'a RoutingTable,
    policy: &'a Policy,
    attended: bool,
    removed: HashSet<String>,
}

impl<'a> TableJudge<'a> {
    /// A judge with a person nearby who can be asked.
    #[must_use]
    pub fn new(table: &'a RoutingTable, policy: &'a Policy) -> Self {
        Self {
            table,
            policy,
            attended: true,
            removed: HashSet::new(),
        }
    }

    /// Sets that nobody can be asked: what would be asked about does not run.
    #[must_use]
    pub fn unattended(self) -> Self {
        Self {
            attended: false,
            ..self
        }
    }

    /// Sets the names of tools that the session once had; see
    /// [`removed_tools`](crate::log::removed_tools).
    #[must_use]
    pub fn with_removed(self, names: impl IntoIterator<Item = String>) -> Self {
        Self {
            removed: names.into_iter().collect(),
            ..self
        }
    }
}

impl Judge for TableJudge<'_> {
    fn backend(&self, tool: &str) -> Option<&str> {
        self.table.route(tool).map(|route| &*route.backend)
    }

    fn judge(&self, call: &FunctionCall) -> CallVerdict {
        self.judge_route(call).0
    }

    fn judge_route(&self, call: &FunctionCall) -> (CallVerdict, Option<RouteRef>) {
        match self.table.find(&call.name) {
            Some((found, route)) => (self.judge_routed(call, route), Some(found)),
            None => {
                let was_there = self.removed.contains(&call.name);
                let refusal = no_such_tool(self.table, &call.name, was_there);
                (CallVerdict::Refuse(refusal), None)
            }
        }
    }
}

impl TableJudge<'_> {
    fn judge_routed(&self, call: &FunctionCall, route: &Route) -> CallVerdict {
        let backend = route.backend.to_string();
        let plugin = plugin(route);
        let lane = route.lane();
        let verdict = self.policy.decide(&PolicyCall {
            name: route.name.as_str(),
            backend: &route.backend,
            effects: route.definition.effects,
            arguments: &call.arguments,
        });
        match verdict.decision {
            PolicyDecision::Allow => CallVerdict::Run {
                backend,
                plugin,
                lane,
            },
            PolicyDecision::Ask if self.attended => CallVerdict::Ask {
                backend,
                plugin,
                lane,
                reason: verdict.to_string(),
            },
            PolicyDecision::Ask => refuse(
                call,
                &backend,
                CallFailureKind::NobodyToAsk {
                    reason: &verdict.to_string(),
                },
            ),
            PolicyDecision::Deny => refuse(
                call,
                &backend,
                CallFailureKind::Denied {
                    reason: &verdict.to_string(),
                },
            ),
        }
    }
}

fn refuse(call: &FunctionCall, backend: &str, kind: CallFailureKind<'_>) -> CallVerdict {
    let failure = CallFailure {
        tool: &call.name,
        backend: Some(backend),
        kind,
    };
    CallVerdict::Refuse(failure.into())
}

fn plugin(route: &Route) -> Option<String> {
    let origin = &route.definition.origin;
    let name = origin.plugin.as_ref()?;
    Some(match &origin.version {
        Some(version) => format!("{name} {version}"),
        None => name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::context::CallRefusal;
    use crate::log::NotRun;
    use crate::routing::{
        CallMode, Catalog, CatalogTool, EffectLevel, Naming, Origin, Prefix, Rule,
    };

    fn catalog(backend: &str, kind: &str, tools: Vec<CatalogTool>) -> Catalog {
        Catalog {
            backend: backend.to_owned(),
            kind: kind.to_owned(),
            naming: Prefix::Skill,
            tools: tools.into_iter().map(Arc::new).collect(),
        }
    }

    fn table() -> RoutingTable {
        let read = |tool: &str| CatalogTool::new(tool, "op", EffectLevel::Read);
        let native = vec![
            CatalogTool {
                origin: Origin {
                    plugin: Some("fetcher".to_owned()),
                    version: Some("1.2.0".to_owned()),
                    file: None,
                    build: None,
                },
                ..read("execute").of_skill("log-fetcher", None)
            },
            read("read").of_skill("log-fetcher", None),
            read("execute").of_skill("cache", None),
            CatalogTool {
                mode: CallMode::Stateless,
                ..read("now").of_skill("clock", None)
            },
        ];
        let write = |tool: &str| CatalogTool::new(tool, "op", EffectLevel::Write);
        let local = vec![
            write("bash_tool").of_skill("analyzer", None),
            write("view").of_skill("other", None),
        ];
        let catalogs = [
            catalog("native", "native", native),
            catalog("local", "local", local),
        ];
        RoutingTable::build(1, &catalogs, &Naming::default()).unwrap()
    }

    fn call(name: &str) -> FunctionCall {
        FunctionCall {
            call_id: "c".to_owned(),
            name: name.to_owned(),
            arguments: json!({"command": "ls"}),
            arguments_text: None,
        }
    }

    fn lanes(table: &RoutingTable, names: &[&str]) -> Vec<Option<String>> {
        let policy = Policy {
            rules: vec![Rule {
                pattern: "*".parse().unwrap(),
                decision: PolicyDecision::Allow,
            }],
            ..Policy::default()
        };
        let judge = TableJudge::new(table, &policy);
        names
            .iter()
            .map(|name| match judge.judge(&call(name)) {
                CallVerdict::Run { lane, .. } => lane,
                other => panic!("{name}: {other:?}"),
            })
            .collect()
    }

    #[test]
    fn lanes_are_one_a_native_skill_one_a_backend_and_none_for_stateless_tools() {
        let table = table();
        let names = [
            "log-fetcher_execute",
            "log-fetcher_read",
            "cache_execute",
            "clock_now",
            "analyzer_bash_tool",
            "other_view",
        ];
        let lanes = lanes(&table, &names);
        assert_eq!(lanes[0], lanes[1]);
        assert_ne!(lanes[0], lanes[2]);
        assert_eq!(lanes[3], None);
        assert_eq!(lanes[4], lanes[5]);
        assert_eq!(lanes[4].as_deref(), Some("local"));
    }

    #[test]
    fn independent_servers_of_a_backend_have_a_lane_each() {
        let of_server = |server: &str, tool: &str| CatalogTool {
            is_independent: true,
            ..CatalogTool::new(tool, "op", EffectLevel::Write).of_skill(server, None)
        };
        let stateless = CatalogTool {
            mode: CallMode::Stateless,
            ..of_server("notes", "list")
        };
        let tools = vec![
            of_server("notes", "add"),
            of_server("notes", "remove"),
            of_server("web", "open"),
            stateless,
        ];
        let catalogs = [catalog("mcp", "mcp", tools)];
        let table = RoutingTable::build(1, &catalogs, &Naming::default()).unwrap();
        let names = ["notes_add", "notes_remove", "web_open", "notes_list"];
        let expected = [
            Some("mcp\nnotes"),
            Some("mcp\nnotes"),
            Some("mcp\nweb"),
            None,
        ];
        let lanes = lanes(&table, &names);
        let lanes: Vec<Option<&str>> = lanes.iter().map(Option::as_deref).collect();
        assert_eq!(lanes, expected);
    }

    #[test]
    fn a_call_runs_is_asked_about_or_is_denied_as_the_policy_says() {
        let table = table();
        let policy = Policy {
            rules: vec![Rule {
                pattern: "cache_*".parse().unwrap(),
                decision: PolicyDecision::Deny,
            }],
            ..Policy::default()
        };
        let judge = TableJudge::new(&table, &policy);
        assert_eq!(
            judge.judge(&call("log-fetcher_execute")),
            CallVerdict::Run {
                backend: "native".to_owned(),
                plugin: Some("fetcher 1.2.0".to_owned()),
                lane: Some("native\nlog-fetcher".to_owned()),
            }
        );
        let asks = judge.judge(&call("analyzer_bash_tool"));
        assert_eq!(
            asks,
            CallVerdict::Ask {
                backend: "local".to_owned(),
                plugin: None,
                lane: Some("local".to_owned()),
                reason: "ask by default for a tool with effects `write`".to_owned(),
            }
        );
        let refusals = [
            judge.judge(&call("cache_execute")),
            judge
                .clone()
                .unattended()
                .judge(&call("analyzer_bash_tool")),
        ];
        insta::assert_debug_snapshot!(refusals, @r#"
        [
            Refuse(
                CallRefusal {
                    text: "The call of `cache_execute` on backend `native` was not run: the session's policy does not allow it (deny by the rule `cache_*`). Do not try to reach the same in another way.",
                    reason: Some(
                        Denied,
                    ),
                },
            ),
            Refuse(
                CallRefusal {
                    text: "The call of `analyzer_bash_tool` on backend `local` was not run: a person would have to allow it (ask by default for a tool with effects `write`), and nobody is there to be asked. Whoever started this session can allow it with `--allow 'analyzer_bash_tool'`.",
                    reason: Some(
                        NobodyToAsk,
                    ),
                },
            ),
        ]
        "#);
    }

    #[test]
    fn h7_an_unknown_tool_is_told_with_what_is_nearby() {
        let table = table();
        let policy = Policy::default();
        let judge = TableJudge::new(&table, &policy)
            .with_removed(["old_tool".to_owned(), "log-fetcher_write".to_owned()]);
        let told: Vec<String> = [
            "log_fetcher.execute",
            "log-fetcher_exec",
            "bash_tool",
            "functions.clock_now",
            "view",
            "old_tool",
            "log-fetcher_write",
            "",
            &"x".repeat(500),
        ]
        .iter()
        .map(|name| match judge.judge(&call(name)) {
            CallVerdict::Refuse(refusal) => refusal.text,
            other => panic!("{name}: {other:?}"),
        })
        .collect();
        insta::assert_snapshot!(told.join("\n"), @r#"
        The call of `log_fetcher.execute`, which came to no backend, was not run: no backend of this session has such a tool. Did you mean `log-fetcher_execute`?
        The call of `log-fetcher_exec`, which came to no backend, was not run: no backend of this session has such a tool. Did you mean `log-fetcher_execute` or `log-fetcher_read`?
        The call of `bash_tool`, which came to no backend, was not run: no backend of this session has such a tool. Did you mean `analyzer_bash_tool`?
        The call of `functions.clock_now`, which came to no backend, was not run: no backend of this session has such a tool. Did you mean `clock_now`?
        The call of `view`, which came to no backend, was not run: no backend of this session has such a tool. Did you mean `other_view`?
        The call of `old_tool`, which came to no backend, was not run: the tool was removed while the session ran, and no backend has it now. The tools are `cache_execute`, `clock_now`, `log-fetcher_execute`, `log-fetcher_read`, `analyzer_bash_tool`, `other_view`.
        The call of `log-fetcher_write`, which came to no backend, was not run: the tool was removed while the session ran, and no backend has it now. Did you mean `log-fetcher_read` or `log-fetcher_execute`?
        The call of ``, which came to no backend, was not run: no backend of this session has such a tool. The tools are `cache_execute`, `clock_now`, `log-fetcher_execute`, `log-fetcher_read`, `analyzer_bash_tool`, `other_view`.
        The call of `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx`, which came to no backend, was not run: no backend of this session has such a tool. The tools are `cache_execute`, `clock_now`, `log-fetcher_execute`, `log-fetcher_read`, `analyzer_bash_tool`, `other_view`.
        "#);
        let empty = RoutingTable::default();
        assert_eq!(
            TableJudge::new(&empty, &policy).judge(&call("x")),
            CallVerdict::Refuse(CallRefusal {
                reason: Some(NotRun::NoSuchTool),
                text: "The call of `x`, which came to no backend, was not run: no backend of this session has such a tool. This session has no tools; go on without them and say so.".to_owned()
            })
        );
    }
}
