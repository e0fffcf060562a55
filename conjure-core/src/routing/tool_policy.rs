//! What a policy says of each tool before anything is called.
//!
//! A rule without arguments decides for every call of a tool; one with arguments may or may not
//! fit the calls that come. So a tool has one decision for calls that no such rule fits, and a set
//! of those that its calls can reach. Runs nothing and looks at no call.

use serde::Serialize;

use super::policy::{Policy, PolicyCall, PolicyDecision, PolicyVerdict, Rule};
use super::{EffectLevel, Route, RoutingTable};

/// What the calls of one tool can come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolPolicy {
    /// The tool's public name.
    pub name: String,
    /// The backend instance that runs it.
    pub backend: String,
    /// What the tool may do.
    pub effects: EffectLevel,
    /// What a call gets that no rule with arguments fits.
    pub decision: PolicyDecision,
    /// The rule without arguments that says so; `None`: the default for `effects`.
    pub rule: Option<Rule>,
    /// The rules with arguments that decide otherwise where they fit a call, in the order of the
    /// policy. Not empty: the decision depends on the arguments.
    pub depends_on: Vec<Rule>,
    /// Whether it runs commands that a denying rule may be for, so that one which cannot be judged
    /// before it runs is asked about.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub asks_in_doubt: bool,
}

impl ToolPolicy {
    /// Whether a call of the tool may get this decision.
    #[must_use]
    pub fn reaches(&self, decision: PolicyDecision) -> bool {
        let mut decisions = self.depends_on.iter().map(|rule| rule.decision);
        self.decision == decision
            || decisions.any(|other| other == decision)
            || (self.asks_in_doubt && decision == PolicyDecision::Ask)
    }
}

impl Policy {
    /// What the rules say of every tool of a table, in the table's order.
    #[must_use]
    pub fn tool_policies(&self, table: &RoutingTable) -> Vec<ToolPolicy> {
        let routes = table.routes().iter();
        routes.map(|route| self.policy_of(route)).collect()
    }

    /// What one call of a tool would get.
    #[must_use]
    pub fn verdict_for(&self, route: &Route, arguments: &serde_json::Value) -> PolicyVerdict {
        self.decide(&PolicyCall {
            name: route.name.as_str(),
            backend: &route.backend,
            effects: route.definition.effects,
            arguments,
        })
    }

    fn policy_of(&self, route: &Route) -> ToolPolicy {
        let (name, backend) = (route.name.as_str(), &*route.backend);
        let effects = route.definition.effects;
        let about: Vec<&Rule> = self
            .rules
            .iter()
            .filter(|rule| rule.pattern.concerns(name, backend))
            .collect();
        let fits_always = |rule: &Rule| match rule.decision {
            // A star that allows stands for less than one that asks or denies.
            PolicyDecision::Allow => !rule.pattern.has_arguments(),
            PolicyDecision::Ask | PolicyDecision::Deny => rule.pattern.takes_any_arguments(),
        };
        let rule = [
            PolicyDecision::Deny,
            PolicyDecision::Allow,
            PolicyDecision::Ask,
        ]
        .into_iter()
        .find_map(|decision| {
            let mut rules = about.iter();
            rules.find(|rule| rule.decision == decision && fits_always(rule))
        });
        let wins = |decision: PolicyDecision| match rule.map(|rule| rule.decision) {
            Some(PolicyDecision::Deny) => false,
            Some(PolicyDecision::Allow) => decision == PolicyDecision::Deny,
            Some(PolicyDecision::Ask) => decision != PolicyDecision::Ask,
            None => true,
        };
        let decision = rule.map_or_else(|| self.default.for_effects(effects), |rule| rule.decision);
        let asks_anyway =
            |rule: &Rule| rule.decision == decision && decision == PolicyDecision::Ask;
        let mut depends_on: Vec<Rule> = about
            .iter()
            .filter(|rule| !fits_always(rule) && wins(rule.decision) && !asks_anyway(rule))
            .map(|rule| (*rule).clone())
            .collect();
        if depends_on.iter().all(|rule| rule.decision == decision) {
            depends_on.clear();
        }
        let properties = route.definition.input_schema.get("properties");
        let takes_commands = properties.is_none_or(|named| named.get("command").is_some());
        let may_be_denied = |rule: &&Rule| {
            rule.decision == PolicyDecision::Deny
                && rule.pattern.has_arguments()
                && !fits_always(rule)
        };
        ToolPolicy {
            name: name.to_owned(),
            backend: backend.to_owned(),
            effects,
            decision,
            rule: rule.map(|rule| (*rule).clone()),
            asks_in_doubt: takes_commands
                && decision != PolicyDecision::Deny
                && about.iter().copied().any(|rule| may_be_denied(&rule)),
            depends_on,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::routing::{Catalog, CatalogTool, Naming, Prefix};

    fn table() -> RoutingTable {
        let tool = |name: &str, effects| Arc::new(CatalogTool::new(name, "x", effects));
        let catalog = |backend: &str, tools| Catalog {
            backend: backend.to_owned(),
            kind: "local".to_owned(),
            naming: Prefix::Backend,
            tools,
        };
        let catalogs = [
            catalog(
                "a",
                vec![
                    tool("look", EffectLevel::Read),
                    tool("run", EffectLevel::Write),
                ],
            ),
            catalog("b", vec![tool("drop", EffectLevel::Destructive)]),
        ];
        RoutingTable::build(1, &catalogs, &Naming::default()).unwrap()
    }

    fn policy(rules: &[(PolicyDecision, &str)]) -> Policy {
        let rules = rules.iter().map(|(decision, pattern)| Rule {
            pattern: pattern.parse().unwrap(),
            decision: *decision,
        });
        Policy {
            rules: rules.collect(),
            ..Policy::default()
        }
    }

    /// `NAME DECISION by RULE, depends on RULES`.
    fn told(policy: &Policy) -> Vec<String> {
        let pattern = |rule: &Rule| rule.pattern.to_string();
        policy
            .tool_policies(&table())
            .iter()
            .map(|tool| {
                let rule = tool.rule.as_ref().map_or("default".to_owned(), pattern);
                let depends: Vec<String> = tool.depends_on.iter().map(pattern).collect();
                format!(
                    "{} {} by {rule}, depends on [{}]",
                    tool.name,
                    tool.decision,
                    depends.join(" ")
                )
            })
            .collect()
    }

    #[test]
    fn without_rules_the_effects_decide() {
        assert_eq!(
            told(&Policy::default()),
            [
                "a_look allow by default, depends on []",
                "a_run ask by default, depends on []",
                "b_drop ask by default, depends on []",
            ]
        );
    }

    #[test]
    fn deny_wins_and_then_no_arguments_matter() {
        let policy = policy(&[
            (PolicyDecision::Allow, "*"),
            (PolicyDecision::Ask, "a_run(*)"),
            (PolicyDecision::Deny, "backend:b"),
            (PolicyDecision::Allow, "b_drop(x)"),
        ]);
        assert_eq!(
            told(&policy),
            [
                "a_look allow by *, depends on []",
                "a_run allow by *, depends on []",
                "b_drop deny by backend:b, depends on []",
            ]
        );
    }

    #[test]
    fn arguments_matter_where_their_rule_would_win() {
        let policy = policy(&[
            (PolicyDecision::Ask, "a_*"),
            (PolicyDecision::Allow, "a_run(git *)"),
            (PolicyDecision::Deny, "*(*rm *)"),
            (PolicyDecision::Ask, "a_look(/etc/*)"),
        ]);
        assert_eq!(
            told(&policy),
            [
                "a_look ask by a_*, depends on [*(*rm *)]",
                "a_run ask by a_*, depends on [a_run(git *) *(*rm *)]",
                "b_drop ask by default, depends on [*(*rm *)]",
            ]
        );
    }

    #[test]
    fn a_tool_that_is_allowed_by_default_can_reach_ask_through_its_arguments() {
        let policy = policy(&[(PolicyDecision::Ask, "a_look(/etc/*)")]);
        let tool = &policy.tool_policies(&table())[0];
        assert_eq!(tool.decision, PolicyDecision::Allow);
        assert!(tool.reaches(PolicyDecision::Ask) && !tool.reaches(PolicyDecision::Deny));
    }

    fn any_rule() -> impl Strategy<Value = (PolicyDecision, String)> {
        let decision = prop_oneof![
            Just(PolicyDecision::Allow),
            Just(PolicyDecision::Ask),
            Just(PolicyDecision::Deny)
        ];
        let subject = prop_oneof![
            Just("*"),
            Just("a_*"),
            Just("a_run"),
            Just("b_drop"),
            Just("backend:a"),
        ];
        let arguments = prop_oneof![
            3 => Just(""),
            1 => Just("()"),
            1 => Just("(*)"),
            1 => Just("(git *)"),
            1 => Just("(*x*)"),
        ];
        (decision, subject, arguments)
            .prop_map(|(decision, subject, arguments)| (decision, format!("{subject}{arguments}")))
    }

    fn any_arguments() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(json!({})),
            Just(json!({"command": "git status"})),
            Just(json!({"command": "git x; ls"})),
            Just(json!({"command": "eval $x"})),
            Just(json!({"path": "/a/x"})),
            Just(json!({"n": 1})),
            Just(json!({"q": "xx", "n": [1]})),
        ]
    }

    proptest! {
        #[test]
        fn no_call_gets_what_the_preview_of_its_tool_does_not_name(
            rules in prop::collection::vec(any_rule(), 0..6),
            arguments in any_arguments(),
        ) {
            let rules: Vec<(PolicyDecision, &str)> =
                rules.iter().map(|(decision, text)| (*decision, text.as_str())).collect();
            let policy = policy(&rules);
            let table = table();
            for (route, tool) in table.routes().iter().zip(policy.tool_policies(&table)) {
                let verdict = policy.verdict_for(route, &arguments);
                prop_assert!(tool.reaches(verdict.decision), "{tool:?}: {verdict}");
                let by = verdict.rule.as_ref();
                let named = tool.depends_on.iter().any(|rule| Some(&rule.pattern) == by);
                if !named && verdict.doubt.is_none() {
                    prop_assert_eq!(tool.decision, verdict.decision);
                }
                if by.is_none_or(|pattern| !pattern.has_arguments()) {
                    prop_assert_eq!(tool.rule.as_ref().map(|rule| &rule.pattern), by);
                }
            }
        }
    }
}
