//! Whether a tool call may run: allowed, asked about or denied.
//!
//! Pure: the host asks the person, and turns "ask" into "deny" when nobody is there. A policy
//! is a decision about intent; it confines nothing.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::EffectLevel;
use super::command_pattern::CommandPattern;
use super::pattern::{Pattern, command};
use super::shell::{Doubt, Expansions, ShellScript};

/// A session's rules about tool calls.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// The rules. Their order matters only for which of several is named.
    pub rules: Vec<Rule>,
    /// What holds where no rule fits.
    pub default: Defaults,
}

/// One rule of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Pattern of the calls that the rule is about.
    pub pattern: Pattern,
    /// Decision of the rule on such a call.
    pub decision: PolicyDecision,
}

/// The decision of a policy on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyDecision {
    /// The call runs.
    Allow,
    /// A person decides whether the call runs.
    Ask,
    /// The call does not run.
    Deny,
}

/// Decisions by what a tool may do, for calls that no rule fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Defaults {
    /// For tools that only read. Default: allow.
    pub read: PolicyDecision,
    /// For tools that add or change. Default: ask.
    pub write: PolicyDecision,
    /// For tools that may destroy. Default: ask.
    pub destructive: PolicyDecision,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            read: PolicyDecision::Allow,
            write: PolicyDecision::Ask,
            destructive: PolicyDecision::Ask,
        }
    }
}

/// A call as the policy sees it.
#[derive(Debug, Clone, Copy)]
pub struct PolicyCall<'a> {
    /// The tool's public name.
    pub name: &'a str,
    /// The backend instance that would run it.
    pub backend: &'a str,
    /// What the tool may do.
    pub effects: EffectLevel,
    /// The arguments.
    pub arguments: &'a Value,
}

/// A decision and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyVerdict {
    /// What may happen.
    pub decision: PolicyDecision,
    /// The pattern of the rule that decided; `None`: the default for `effects`.
    pub rule: Option<Pattern>,
    /// What the tool may do.
    pub effects: EffectLevel,
    /// Why its command cannot be judged before it runs, where that is what the decision rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

impl Policy {
    /// Decides on one call. A denying rule wins over an allowing one, that over an asking one,
    /// and any rule over the default.
    ///
    /// A command is allowed by rules with arguments if each of its simple commands is. One that
    /// cannot be judged before it runs is asked about where a denying rule with arguments is about
    /// its tool, because nobody can tell whether that rule is for it; so is one that a shell may
    /// expand to what such a rule is for.
    #[must_use]
    pub fn decide(&self, call: &PolicyCall<'_>) -> PolicyVerdict {
        let verdict = |decision, rule: Option<&Rule>, doubt: Option<Doubt>| PolicyVerdict {
            decision,
            rule: rule.map(|rule| rule.pattern.clone()),
            effects: call.effects,
            doubt: doubt.map(|doubt| doubt.to_string()),
        };
        let touching = |decision: PolicyDecision| {
            let mut rules = self.rules.iter();
            rules.find(|rule| rule.decision == decision && rule.pattern.touches(call))
        };
        if let Some(rule) = touching(PolicyDecision::Deny) {
            return verdict(PolicyDecision::Deny, Some(rule), None);
        }
        let script = command(call).map(ShellScript::read);
        let doubt = script.as_ref().and_then(ShellScript::first_doubt);
        let mut denying = self.rules.iter().filter(|rule| {
            rule.decision == PolicyDecision::Deny
                && rule.pattern.has_arguments()
                && rule.pattern.concerns(call.name, call.backend)
        });
        let may_be_denied = match (&script, doubt) {
            (_, Some(_)) => denying.next(),
            (Some(script), None) => {
                let expansions = Expansions::new(script);
                denying.find(|rule| rule.pattern.may_fit(&expansions))
            }
            (None, None) => None,
        };
        let doubt = doubt.or(may_be_denied.map(|_| Doubt::ComputedArguments));
        let allowing = self.allowing_rule(call, script.as_ref());
        if let Some(rule) = allowing {
            return match may_be_denied {
                Some(rule) => verdict(PolicyDecision::Ask, Some(rule), doubt),
                None => verdict(PolicyDecision::Allow, Some(rule), None),
            };
        }
        if let Some(rule) = touching(PolicyDecision::Ask) {
            return verdict(PolicyDecision::Ask, Some(rule), None);
        }
        match (self.default.for_effects(call.effects), may_be_denied) {
            (PolicyDecision::Allow, Some(rule)) => verdict(PolicyDecision::Ask, Some(rule), doubt),
            (decision @ PolicyDecision::Ask, _) => {
                let allows = |rule: &Rule| {
                    rule.decision == PolicyDecision::Allow
                        && rule.pattern.concerns(call.name, call.backend)
                };
                let shown_doubt = doubt.filter(|_| self.rules.iter().any(allows));
                verdict(decision, None, shown_doubt)
            }
            (decision, _) => verdict(decision, None, None),
        }
    }

    /// The rule by which a call is allowed, of several the first.
    fn allowing_rule(&self, call: &PolicyCall<'_>, script: Option<&ShellScript>) -> Option<&Rule> {
        let rules = || {
            let allows = |rule: &&Rule| rule.decision == PolicyDecision::Allow;
            self.rules.iter().filter(allows)
        };
        if let Some(rule) = rules().find(|rule| rule.pattern.allows(call)) {
            return Some(rule);
        }
        let script =
            script.filter(|script| script.doubt.is_none() && !script.commands.is_empty())?;
        let patterns: Vec<(&Rule, &CommandPattern)> = rules()
            .filter_map(|rule| Some((rule, rule.pattern.for_commands(call)?)))
            .collect();
        if let Some((rule, _)) = patterns
            .iter()
            .find(|(_, pattern)| pattern.allows_all(script))
        {
            return Some(rule);
        }
        let mut first = None;
        for command in &script.commands {
            let allows = |(_, pattern): &&(&Rule, &CommandPattern)| pattern.allows(command, script);
            let (rule, _) = match patterns.iter().find(allows) {
                Some(found) => found,
                // A variable of a loop or of the script, which runs nothing.
                None if command.only_sets_harmless() => continue,
                None => return None,
            };
            first.get_or_insert(*rule);
        }
        first
    }
}

impl Defaults {
    pub(super) fn for_effects(self, effects: EffectLevel) -> PolicyDecision {
        match effects {
            EffectLevel::Read => self.read,
            EffectLevel::Write => self.write,
            EffectLevel::Destructive => self.destructive,
        }
    }
}

impl PolicyVerdict {
    /// The verdict where nobody can be asked: "ask" becomes "deny".
    #[must_use]
    pub fn unattended(self) -> Self {
        let decision = match self.decision {
            PolicyDecision::Ask => PolicyDecision::Deny,
            other => other,
        };
        Self { decision, ..self }
    }
}

impl fmt::Display for PolicyDecision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        })
    }
}

impl fmt::Display for PolicyVerdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.rule, &self.doubt) {
            (Some(pattern), None) => write!(out, "{} by the rule `{pattern}`", self.decision),
            (Some(pattern), Some(doubt)) => write!(
                out,
                "{} because nobody can tell whether the rule `{pattern}` is for the command: {doubt}",
                self.decision
            ),
            (None, doubt) => {
                write!(
                    out,
                    "{} by default for a tool with effects `{}`",
                    self.decision, self.effects
                )?;
                match doubt {
                    Some(doubt) => write!(out, "; no rule can allow the command: {doubt}"),
                    None => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(rules: &[(PolicyDecision, &str)]) -> Policy {
        Policy {
            rules: rules
                .iter()
                .map(|(decision, pattern)| Rule {
                    pattern: pattern.parse().unwrap(),
                    decision: *decision,
                })
                .collect(),
            default: Defaults::default(),
        }
    }

    fn decide(policy: &Policy, name: &str, arguments: &Value) -> String {
        let call = PolicyCall {
            name,
            backend: "local",
            effects: EffectLevel::Write,
            arguments,
        };
        policy.decide(&call).to_string()
    }

    #[test]
    fn without_rules_reading_is_allowed_and_more_is_asked_about() {
        let decisions: Vec<String> = [
            EffectLevel::Read,
            EffectLevel::Write,
            EffectLevel::Destructive,
        ]
        .into_iter()
        .map(|effects| {
            let arguments = json!({});
            let call = PolicyCall {
                name: "x",
                backend: "local",
                effects,
                arguments: &arguments,
            };
            let verdict = Policy::default().decide(&call);
            format!(
                "{verdict}; unattended {}",
                verdict.clone().unattended().decision
            )
        })
        .collect();
        assert_eq!(
            decisions,
            [
                "allow by default for a tool with effects `read`; unattended allow",
                "ask by default for a tool with effects `write`; unattended deny",
                "ask by default for a tool with effects `destructive`; unattended deny",
            ]
        );
    }

    #[test]
    fn deny_wins_then_allow_then_ask_and_the_rule_is_named() {
        let policy = policy(&[
            (PolicyDecision::Ask, "*"),
            (PolicyDecision::Allow, "backend:local"),
            (PolicyDecision::Deny, "x_bash_tool(*rm *)"),
            (PolicyDecision::Deny, "secret_*"),
        ]);
        let run = |command: &str| {
            decide(
                &policy,
                "x_bash_tool",
                &json!({"command": command, "description": "d"}),
            )
        };
        assert_eq!(run("ls"), "allow by the rule `backend:local`");
        assert_eq!(
            run("cd / && rm -r ."),
            "deny by the rule `x_bash_tool(*rm *)`"
        );
        assert_eq!(
            decide(&policy, "secret_read", &json!({})),
            "deny by the rule `secret_*`"
        );
    }

    #[test]
    fn an_allowed_command_cannot_bring_another_one_along() {
        let policy = policy(&[
            (PolicyDecision::Allow, "x_bash_tool(git log *)"),
            (PolicyDecision::Allow, "x_bash_tool(cat * | wc *)"),
        ]);
        let is_allowed = |command: &str| {
            decide(
                &policy,
                "x_bash_tool",
                &json!({"command": command, "description": "d"}),
            )
            .starts_with("allow")
        };
        assert!(is_allowed("git log --stat"));
        assert!(is_allowed("cat a b | wc -l"));
        for command in [
            "git",
            "gitx log a",
            "git log a; rm -r /",
            "git log a && reboot",
            "git log | sh",
            "git log > /etc/passwd",
            "git log $(reboot)",
            "git log `reboot`",
            "git log\nreboot",
            "cat a | sh | wc -l",
        ] {
            assert!(!is_allowed(command), "{command}");
        }
    }

    #[test]
    fn an_allowed_path_cannot_leave_its_directory() {
        let policy = policy(&[(PolicyDecision::Allow, "x_create_file(/data/*)")]);
        let is_allowed = |path: &str| {
            decide(
                &policy,
                "x_create_file",
                &json!({"path": path, "file_text": "t"}),
            )
            .starts_with("allow")
        };
        assert!(is_allowed("/data/a/b..txt"));
        assert!(!is_allowed("/data/../etc/passwd"));
        assert!(!is_allowed("/data/a/.."));
        assert!(!is_allowed("/other"));
    }

    #[test]
    fn what_denies_looks_into_every_argument() {
        let policy = policy(&[
            (PolicyDecision::Deny, "*(*token*)"),
            (PolicyDecision::Allow, "*"),
        ]);
        assert_eq!(
            decide(&policy, "a", &json!({"n": 1, "deep": [{"x": "my token"}]})),
            "deny by the rule `*(*token*)`"
        );
        assert_eq!(
            decide(&policy, "a", &json!({"n": 1})),
            "allow by the rule `*`"
        );
    }

    #[test]
    fn other_arguments_are_compared_as_text_or_json() {
        let policy = policy(&[
            (PolicyDecision::Allow, "a(logs*)"),
            (PolicyDecision::Allow, "b({\"n\":1*)"),
        ]);
        assert!(decide(&policy, "a", &json!({"query": "logs of today"})).starts_with("allow"));
        assert!(!decide(&policy, "a", &json!({"query": "logs", "x": "y"})).starts_with("allow"));
        assert!(decide(&policy, "b", &json!({"n": 1, "m": 2})).starts_with("allow"));
        // A command that is not text fits no pattern for text.
        assert!(!decide(&policy, "a", &json!({"command": ["logs"]})).starts_with("allow"));
    }

    #[test]
    fn a_policy_is_read_from_settings() {
        let policy: Policy = serde_json::from_value(json!({
            "rules": [{"pattern": "x_*", "decision": "deny"}],
            "default": {"write": "allow"}
        }))
        .unwrap();
        assert_eq!(
            policy,
            Policy {
                rules: vec![Rule {
                    pattern: "x_*".parse().unwrap(),
                    decision: PolicyDecision::Deny
                }],
                default: Defaults {
                    write: PolicyDecision::Allow,
                    ..Defaults::default()
                },
            }
        );
        assert!(
            serde_json::from_value::<Policy>(
                json!({"rules": [{"pattern": "x(", "decision": "deny"}]})
            )
            .is_err()
        );
    }
}
