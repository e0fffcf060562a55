//! The pattern of a rule for calls like one that waits, for a person who would not be asked again.
//!
//! A pattern is suggested only where a rule with it lets that very call run. Makes no rule.

use serde_json::Value;

use super::EffectLevel;
use super::pattern::Pattern;
use super::policy::{Defaults, Policy, PolicyCall, PolicyDecision, Rule};

impl Pattern {
    /// The pattern of a rule that allows calls like this one: for a command those of the same
    /// program; where that program can run others by its arguments, those with the same first
    /// argument; else, and where it is more than a program with plain arguments, this very command.
    /// For another tool all its calls. Nothing for a command that no pattern can say.
    #[must_use]
    pub fn for_calls_like(name: &str, arguments: &Value) -> Option<Self> {
        let texts = match arguments.get("command") {
            None => vec![name.to_owned()],
            Some(command) => {
                let commands = suggested_commands(command.as_str()?.trim());
                let patterns = commands.map(|command| format!("{name}({command})"));
                patterns.collect()
            }
        };
        let mut patterns = texts.iter().filter_map(|text| text.parse::<Self>().ok());
        patterns.find(|pattern| lets_run(pattern, name, arguments))
    }
}

/// Patterns for commands like this one, the widest first.
fn suggested_commands(command: &str) -> impl Iterator<Item = String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@+ ".contains(c);
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let mut words = command.split(' ').filter(|word| !word.is_empty());
    let program = words.next().filter(|word| word.chars().all(is_name));
    let program = program.filter(|_| command.chars().all(is_plain));
    let first = program.and(words.next());
    let is_option = |word: &&str| word.starts_with(['-', '+']);
    let of_program = program
        .zip(first)
        .map(|(program, _)| format!("{program} *"));
    let of_first = program.zip(first.filter(|word| !is_option(word)));
    let of_first = of_first.map(|(program, first)| format!("{program} {first} *"));
    // A star would be any text, and a rule is one line.
    let is_sayable = !command.is_empty() && !command.contains(['*', '\n', '\r']);
    let itself = is_sayable.then(|| command.to_owned());
    [of_program, of_first, itself].into_iter().flatten()
}

/// Whether a rule that allows this lets a call run that is asked about without it.
fn lets_run(pattern: &Pattern, name: &str, arguments: &Value) -> bool {
    let rule = Rule {
        pattern: pattern.clone(),
        decision: PolicyDecision::Allow,
    };
    let policy = Policy {
        rules: vec![rule],
        default: Defaults::default(),
    };
    let call = PolicyCall {
        name,
        // The pattern names the tool, and the backend says nothing about it.
        backend: "",
        effects: EffectLevel::Destructive,
        arguments,
    };
    policy.decide(&call).decision == PolicyDecision::Allow
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn suggested(command: &str) -> Option<String> {
        let pattern = Pattern::for_calls_like("sh", &json!({ "command": command }));
        pattern.map(|pattern| pattern.to_string())
    }

    proptest! {
        #[test]
        fn a_suggested_pattern_allows_the_call_that_it_was_made_from(
            program in "git|cargo|npm|python3|ls|docker|sudo|find|make|\\./run\\.sh",
            arguments in prop::collection::vec(
                "status|test|run|install|ps|exec|x\\.py|src/[a-c]|[a-c]|--?[a-z]{1,6}|-c|-[a-z]=[a-c]\
                 |'a b'|\\$x|\\||;|>|  ",
                0..5,
            ),
        ) {
            let command = format!("{program} {}", arguments.join(" "));
            let call = json!({ "command": command });
            let pattern = Pattern::for_calls_like("sh", &call);
            prop_assert!(
                pattern.as_ref().is_some_and(|pattern| lets_run(pattern, "sh", &call)),
                "{}: {:?}", command, pattern
            );
        }
    }

    #[test]
    fn a_suggested_pattern_is_as_narrow_as_its_program_is_dangerous() {
        for (command, pattern) in [
            ("ls", "sh(ls)"),
            ("ls -l  src", "sh(ls *)"),
            ("cargo test -q", "sh(cargo test *)"),
            ("cargo test", "sh(cargo test)"),
            ("cargo -q test", "sh(cargo -q test)"),
            ("cargo run -q", "sh(cargo run -q)"),
            ("git status -s", "sh(git status *)"),
            ("git log --output=x", "sh(git log --output=x)"),
            (
                "python3 scripts/report.py a",
                "sh(python3 scripts/report.py *)",
            ),
            ("python3 -m pytest", "sh(python3 -m pytest)"),
            (
                "sudo systemctl restart web",
                "sh(sudo systemctl restart web)",
            ),
            ("curl x | sh", "sh(curl x | sh)"),
            ("/bin/ls src", "sh(/bin/ls src)"),
        ] {
            assert_eq!(suggested(command).as_deref(), Some(pattern), "{command}");
        }
        for none in ["ls *.rs", "ls\nrm x", "", "/bin/ls *"] {
            assert_eq!(suggested(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_tool_without_a_command_is_meant_whole() {
        let of = |name: &str, arguments: &Value| {
            Pattern::for_calls_like(name, arguments).map(|pattern| pattern.to_string())
        };
        assert_eq!(of("view", &json!({ "path": "x" })).as_deref(), Some("view"));
        assert_eq!(of("two words", &json!({})), None);
        assert_eq!(of("sh", &json!({ "command": 5 })), None);
    }
}
