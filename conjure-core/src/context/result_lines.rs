//! Lines of a call's result that the host makes: what was left out, what was refused, and what became
//! of a file.

/// Stands behind the parts of a result where that has too many.
#[must_use]
pub fn more_parts(left_out: usize) -> String {
    format!("[{left_out} more parts left out]")
}

/// Files that a call made and that are not told one by one.
#[must_use]
pub fn more_files(files: usize) -> String {
    format!("[file] and {files} more files in the working directory")
}

/// A file that the host does not take; the reason is one line.
#[must_use]
pub fn refused_file(reason: &str) -> String {
    format!("[file refused] {reason}")
}

/// Files that the host does not take and that are not told one by one.
pub const MORE_REFUSED_FILES: &str = "[file refused] more files, which are not told one by one";

/// An image that the host does not take.
#[must_use]
pub fn refused_image(reason: &str) -> String {
    format!("[image refused] {reason}")
}

/// A file that a call wrote.
#[must_use]
pub fn written_file(path: &str, was_there: bool) -> String {
    let verb = if was_there { "Replaced" } else { "Created" };
    format!("{verb} {path}.")
}

/// A file in which a call replaced a passage.
#[must_use]
pub fn edited_file(path: &str) -> String {
    format!("Replaced the passage in {path}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_there_is_told_as_replaced() {
        assert_eq!(written_file("/a", true), "Replaced /a.");
        assert_eq!(written_file("/a", false), "Created /a.");
        assert_eq!(edited_file("/a"), "Replaced the passage in /a.");
    }

    #[test]
    fn what_is_left_out_or_refused_is_in_brackets() {
        assert_eq!(more_parts(2), "[2 more parts left out]");
        assert_eq!(refused_file("too large"), "[file refused] too large");
        assert_eq!(refused_image("no PNG"), "[image refused] no PNG");
    }
}
