//! What came of packages that were to be installed: which are, which are not, and why.

use conjure_packages::{FetchedPackage, PackageError, redacted_location};
use conjure_plugins::InstallError;
use serde_json::{Value, json};

use super::args::{Global, display_path};
use super::exit::Exit;
use super::output::{self, RED, RESET};
use super::plugin_package::{is_refusal, report_unread};

/// Why a package was not installed.
pub(crate) enum FetchFailure {
    /// The package is not taken.
    Refused(String),
    /// Nobody allowed what it asks for and shows.
    NotAllowed {
        /// What was not allowed, and what to do.
        reason: String,
        /// Difference from what is there.
        difference: Value,
    },
    /// The package cannot be had.
    Missing(String),
    /// The host cannot install the package, whatever it is.
    Host(String),
}

impl FetchFailure {
    /// What kept it from being put where plugins are.
    pub(crate) fn of_install(global: &Global, error: &InstallError) -> Self {
        match error {
            InstallError::ChangedMeanwhile { .. } | InstallError::Conflict { .. } => {
                Self::Refused(error.to_string())
            }
            error if error.is_disk_full() => Self::Host(format!(
                "{error}. Make room on the disk of {}",
                display_path(&global.data_dir())
            )),
            error => Self::Host(error.to_string()),
        }
    }
}

impl From<PackageError> for FetchFailure {
    fn from(error: PackageError) -> Self {
        match is_refusal(&error) {
            true => Self::Refused(error.to_string()),
            false => Self::Missing(error.to_string()),
        }
    }
}

/// What came of several packages; shown as it goes, for programs at the end.
#[derive(Default)]
pub(crate) struct FetchReport {
    installed: Vec<Value>,
    refused: Vec<Value>,
    /// Why indexes could not be read, or not as a whole.
    unread: Vec<String>,
    /// Whether one could not be had.
    has_missing: bool,
    /// Whether this host could not do one.
    has_host_failure: bool,
}

impl FetchReport {
    pub(crate) fn add_installed(&mut self, json: Value) {
        self.installed.push(json);
    }

    /// Says which indexes could not be read, or not as a whole: what they name was not looked at.
    pub(crate) fn add_unread<'a>(
        &mut self,
        global: &Global,
        unread: impl IntoIterator<Item = &'a PackageError>,
    ) {
        for error in unread {
            let told = error.to_string();
            // With several packages one is told once.
            if !self.unread.contains(&told) {
                report_unread(global, std::slice::from_ref(error));
                self.unread.push(told);
            }
        }
    }

    /// Like [`Self::add_unread()`], for all that a package was looked for in.
    pub(crate) fn add_unread_of(&mut self, global: &Global, fetched: &FetchedPackage) {
        self.add_unread(global, fetched.index_errors.iter().chain(&fetched.left_out));
    }

    /// Says that a package was not installed, or not as it was to be. `place` is how it was named.
    pub(crate) fn add_failure(&mut self, global: &Global, place: &str, failure: &FetchFailure) {
        let place = redacted_location(place);
        let (word, reason) = match failure {
            FetchFailure::Refused(reason) | FetchFailure::NotAllowed { reason, .. } => {
                ("refused", reason.clone())
            }
            FetchFailure::Missing(reason) => ("failed", reason.clone()),
            FetchFailure::Host(reason) => ("failed", format!("{place}: {reason}")),
        };
        self.has_missing |= matches!(failure, FetchFailure::Missing(_));
        self.has_host_failure |= matches!(failure, FetchFailure::Host(_));
        let mut entry = json!({ "source": place, "reason": reason });
        if let FetchFailure::NotAllowed { difference, .. } = failure
            && let Some(fields) = entry.as_object_mut()
        {
            fields.insert("difference".to_owned(), difference.clone());
        }
        self.refused.push(entry);
        if !global.json {
            output::line(format_args!(
                "{RED}{word}:{RESET} {}",
                output::clean_line(&reason)
            ));
        }
    }

    pub(crate) fn finish(self, global: &Global) -> Exit {
        if global.json {
            let (installed, refused) = (&self.installed, &self.refused);
            let unread = &self.unread;
            output::json(&json!({ "installed": installed, "refused": refused, "unread": unread }));
        }
        match self.refused.is_empty() {
            true => Exit::Success,
            false if self.has_host_failure => Exit::Host,
            false if self.has_missing => Exit::Usage,
            false => Exit::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct GlobalOnly {
        #[command(flatten)]
        global: Global,
    }

    #[test]
    fn a_disk_that_is_full_is_no_refusal() {
        let global = GlobalOnly::parse_from(["conjure"]).global;
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let failure = FetchFailure::of_install(&global, &full.into());
        assert!(matches!(&failure, FetchFailure::Host(reason) if reason.contains("Make room")));
        let mut report = FetchReport::default();
        let refusal = FetchFailure::Refused("no".to_owned());
        report.add_failure(&global, "one", &refusal);
        let not_allowed = FetchFailure::NotAllowed {
            reason: "no".to_owned(),
            difference: json!({ "details": [] }),
        };
        report.add_failure(&global, "three", &not_allowed);
        assert_eq!(report.refused[1]["difference"], json!({ "details": [] }));
        let unread = PackageError::Index {
            location: "i".to_owned(),
            reason: "it is none".to_owned(),
        };
        report.add_unread(&global, [&unread, &unread]);
        assert_eq!(report.unread, [unread.to_string()]);
        report.add_failure(&global, "https://ada:secret@h.example/two", &failure);
        assert_eq!(report.refused[2]["source"], "https://h.example/two");
        assert_eq!(report.finish(&global), Exit::Host);
    }
}
