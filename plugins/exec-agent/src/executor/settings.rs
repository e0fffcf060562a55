//! Checks of settings that several backends with agents have.

use std::collections::BTreeMap;

use conjure_skill_sdk::{Error, Result};

/// Checks the setting `env`: the variables that commands get besides those of the machine.
///
/// # Errors
/// When an environment cannot hold one of the names or values.
pub fn check_env(env: &BTreeMap<String, String>) -> Result<()> {
    for (name, value) in env {
        let first = name.chars().next();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let starts = first.is_some_and(|c| plain(c) && !c.is_ascii_digit());
        if !starts || !name.chars().all(plain) || value.contains('\0') {
            return Err(Error::invalid(format!(
                "`env` has `{}`, which is no variable of an environment",
                name.escape_debug()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_environment_can_hold_is_refused() {
        let check = |name: &str, value: &str| {
            check_env(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
        };
        assert!(check("_HOME2", "any text: \n").is_ok());
        for (name, value) in [
            ("", ""),
            ("2A", ""),
            ("A-B", ""),
            ("A=B", ""),
            ("A", "a\0b"),
        ] {
            let error = check(name, value).unwrap_err().to_string();
            assert!(error.contains("no variable of an environment"), "{error}");
        }
    }
}
