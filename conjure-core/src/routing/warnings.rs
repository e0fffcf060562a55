//! Rules of a policy that allow or deny less than they seem to, told when the policy is read.
//!
//! Each warning says what the rule does not cover and why, and names a rule that keeps what it says,
//! where there is one. Changes no decision.

use std::fmt;

use serde::Serialize;

use super::Pattern;
use super::command_pattern::{CommandPattern, Weakness};
use super::denying_weakness::denying_weakness;
use super::policy::{Policy, PolicyDecision, Rule};

/// A rule that a person should look at again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyWarning {
    /// The rule.
    pub rule: Rule,
    /// What it does not do, and why.
    pub problem: String,
    /// A pattern that keeps what it suggests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub better: Option<Pattern>,
}

impl fmt::Display for PolicyWarning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { pattern, decision } = &self.rule;
        write!(out, "the rule `{decision} {pattern}` {}", self.problem)?;
        match &self.better {
            Some(better) => write!(out, ". Write for instance `{better}`."),
            None => out.write_str("."),
        }
    }
}

impl Policy {
    /// What a person should know of the rules, in their order.
    #[must_use]
    pub fn warnings(&self) -> Vec<PolicyWarning> {
        self.rules.iter().filter_map(warning).collect()
    }
}

fn warning(rule: &Rule) -> Option<PolicyWarning> {
    let pattern = &rule.pattern;
    let arguments = pattern.arguments()?;
    if !pattern.may_be_about_commands() {
        return None;
    }
    let (problem, better) = match rule.decision {
        PolicyDecision::Allow => allowing_weakness(arguments)?,
        PolicyDecision::Ask | PolicyDecision::Deny => {
            if !pattern.denies_commands() {
                return None;
            }
            let (weakness, better) = denying_weakness(arguments)?;
            (weakness.to_string(), better)
        }
    };
    Some(PolicyWarning {
        rule: rule.clone(),
        problem,
        better: better.map(|better| pattern.with_arguments(&better)),
    })
}

/// What an allowing pattern does not allow, and a better one.
fn allowing_weakness(arguments: &str) -> Option<(String, Option<String>)> {
    let (problem, better) = match CommandPattern::read(arguments).weakness()? {
        Weakness::Unreadable(doubt) => (
            format!("allows no command but one that is written like that: {doubt}"),
            None,
        ),
        Weakness::NoProgram => ("allows nothing: it names no program".to_owned(), None),
        Weakness::AnyProgram => (
            "has a star in the program's name: it allows every program with such a name, except \
             those that can run others, which are still asked about"
                .to_owned(),
            Some("ls *"),
        ),
        Weakness::RunsOthers(program) => (
            "allows no call with its star: this program can run any other one by its arguments, so \
             such calls are still asked about"
                .to_owned(),
            Some(program.safer_pattern),
        ),
    };
    Some((problem, better.map(str::to_owned)))
}
