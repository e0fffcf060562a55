//! Names that a session may be given: none that stands for another session, and none that is shown
//! as something else than it is.

use super::ManagerError;
use conjure_config::shown_name::hidden_character;

/// Refuses a name that has the form of an id, under which another session would be found, and one
/// with characters that nobody sees. `.` and `..` are taken out of addresses before they are sent.
///
/// # Errors
/// [`ManagerError::Invalid`] says what is wrong with it.
pub(super) fn check_name(name: &str) -> Result<(), ManagerError> {
    let invalid = |message: String| {
        Err(ManagerError::Invalid {
            field: Some("name"),
            message,
        })
    };
    if name.parse::<uuid::Uuid>().is_ok() {
        return invalid(format!(
            "`{name}` cannot be the name of a session: it has the form of an id, by which \
             sessions are found before their names; choose a name in words"
        ));
    }
    if matches!(name, "." | "..") {
        return invalid(format!(
            "`{name}` cannot be the name of a session: in an address it stands for a step, and \
             clients take it out; choose a name in words"
        ));
    }
    match hidden_character(name) {
        Some(hidden) => invalid(format!(
            "a session cannot have this name: it has the character U+{:04X}, which is not shown \
             or changes how the others are; write the name without it",
            u32::from(hidden)
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_id_and_is_shown_as_it_is() {
        for fine in [
            "site",
            "Site plan",
            "0199",
            "Grüße, 世界",
            "\u{1f469}\u{200d}\u{1f4bb} work",
        ] {
            check_name(fine).unwrap();
        }
        let id = uuid::Uuid::now_v7();
        for wrong in [
            id.to_string(),
            id.simple().to_string(),
            id.to_string().to_uppercase(),
        ] {
            let error = check_name(&wrong).unwrap_err().to_string();
            assert!(error.contains("the form of an id"), "{error}");
        }
        for wrong in [".", ".."] {
            let error = check_name(wrong).unwrap_err().to_string();
            assert!(error.contains("stands for a step"), "{error}");
        }
        for fine in ["...", ".site", "a.b"] {
            check_name(fine).unwrap();
        }
        for (wrong, named) in [
            ("site\u{202e}nalp", "U+202E"),
            ("si\u{200b}te", "U+200B"),
            ("\u{feff}site", "U+FEFF"),
            ("site\u{2066}", "U+2066"),
        ] {
            let error = check_name(wrong).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
            assert!(!error.contains(wrong), "{error}");
        }
    }
}
