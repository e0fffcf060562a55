//! An error with what is behind it, as one text.

use std::error::Error;

/// What an error says, and each of its causes behind a colon; what is said already is not said twice.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{said}")]
    struct Failure {
        said: &'static str,
        source: Option<Box<Failure>>,
    }

    #[test]
    fn each_cause_is_told_once() {
        let causes = [
            "no file: the disk is gone",
            "the disk is gone",
            "it was pulled out",
        ];
        let failure = causes.into_iter().rev().fold(None, |source, said| {
            let source = source.map(Box::new);
            Some(Failure { said, source })
        });
        let text = with_causes(&failure.unwrap());
        assert_eq!(text, "no file: the disk is gone: it was pulled out");
    }
}
