//! Whether somebody has to agree to a build of a plugin before it is taken. One rule for every way that
//! a build comes in: as a file, in a package, over HTTP, and where it is put back.

/// The step from the build that is there, if one is, to the one that is to take its place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildStep {
    /// What it asks for beyond the one that is there, a phrase each; of the first of its name all that
    /// it asks for.
    pub more: Vec<String>,
    /// Whether a model sees tools that are new, or look otherwise than before.
    pub shows_other_tools: bool,
    /// Whether it is not known any more what the one that is there asks for and shows.
    pub is_unknown: bool,
    /// Whether its version is older, and nobody has said yet that it may be.
    pub is_downgrade: bool,
}

impl BuildStep {
    /// What somebody has to agree to, a phrase each that goes on after "it asks for"; nothing where the
    /// build is taken without a question.
    pub fn to_agree_to(&self) -> Vec<String> {
        let others = [
            (
                self.shows_other_tools,
                "to show a model tools that are new or look otherwise",
            ),
            (
                self.is_unknown,
                "to take the place of one of which it is not known any more what it asks for and shows",
            ),
            (self.is_downgrade, "to go back to an older version"),
        ];
        let others = others.into_iter().filter(|(holds, _)| *holds);
        let others = others.map(|(_, phrase)| phrase.to_owned());
        self.more.iter().cloned().chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_has_allowed_yet_is_asked_for() {
        assert_eq!(BuildStep::default().to_agree_to(), [""; 0]);
        let first = BuildStep {
            more: vec!["connections of its own".to_owned()],
            ..BuildStep::default()
        };
        assert_eq!(first.to_agree_to(), ["connections of its own"]);
        let all = BuildStep {
            shows_other_tools: true,
            is_unknown: true,
            is_downgrade: true,
            ..first
        };
        assert_eq!(all.to_agree_to().len(), 4);
    }
}
