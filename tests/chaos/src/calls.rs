//! The calls of a test: a key a call, which its command carries, which it appends as a line to a
//! file outside, and which its result repeats. So the file, the ledger and the log can be compared.

use std::collections::HashMap;

pub(crate) use conjure_chaos_notes::{CALLS, NAME as NATIVE, key_of, noted};

/// What a command carries of a call's key.
pub(crate) fn key_mark(key: &str) -> String {
    format!("key={key};")
}

/// A command for the native skill.
pub(crate) fn native(key: &str, ms: u64) -> String {
    format!("{} {ms}", key_mark(key))
}

/// A command for a shell in the directory that has the file. The variable is used for its name alone.
pub(crate) fn shell(key: &str, file: &str, ms: u64) -> String {
    format!(
        "{} echo \"$key\" >> {file}; sleep {}.{:03}; printf 'noted %s' \"$key\"",
        key_mark(key),
        ms / 1000,
        ms % 1000
    )
}

/// How often each key stands in the files.
pub(crate) fn count(files: &[String]) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for line in files.iter().flat_map(|file| file.lines()) {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_commands_carry_the_key() {
        for command in [native("t1-0-n", 20), shell("t1-0-n", "calls", 1020)] {
            assert_eq!(key_of(&command), Some("t1-0-n"), "{command}");
        }
        assert!(shell("k", "calls", 1020).contains("sleep 1.020"));
        assert_eq!(key_of("echo"), None);
    }

    #[test]
    fn a_call_that_ran_twice_is_counted_twice() {
        let counts = count(&["a\nb\n".to_owned(), "a\n".to_owned()]);
        assert_eq!((counts["a"], counts["b"]), (2, 1));
    }
}
