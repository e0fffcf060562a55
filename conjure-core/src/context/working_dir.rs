//! What the model is told about the directory that a session works in.

/// Where relative paths start; a block of the system prompt.
#[must_use]
pub fn working_dir(dir: &str) -> String {
    format!("The session's working directory is {dir}. Relative paths start there.")
}

/// Told in the conversation where the directory changed.
#[must_use]
pub fn changed_working_dir(now: &str, before: &str) -> String {
    format!(
        "The working directory is {now} from here on; it was {before}. Relative paths start in the \
         new one."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_changed_is_told_with_the_one_before() {
        assert_eq!(
            [working_dir("/a"), changed_working_dir("/b", "/a")],
            [
                "The session's working directory is /a. Relative paths start there.",
                "The working directory is /b from here on; it was /a. Relative paths start in the \
                 new one.",
            ]
        );
    }
}
