//! From the command in a program's description to the file that is started.

use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::ProgramDescription;

/// Where the system's programs are, which every worker may run: of `PATH` the directories below these
/// are looked at, then these.
const DEFAULT_PROGRAM_DIRS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// A program that is in none of the places.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MissingProgram {
    pub(super) program: String,
    /// Directories that were searched.
    pub(super) searched_dirs: String,
}

/// The command with the absolute path of what is started. `dir` holds the program's own files.
///
/// # Errors
/// That a program of the system is not there.
pub(super) fn resolve(
    program: &ProgramDescription,
    dir: &Path,
) -> Result<Vec<String>, MissingProgram> {
    let places = search_dirs(std::env::var_os("PATH").as_deref());
    let (first, rest) = program
        .command
        .split_first()
        .unwrap_or((&program.name, &[]));
    let found = match program.own_program() {
        Some(own) => dir.join(own),
        None => find(first, &places).ok_or_else(|| MissingProgram {
            program: first.clone(),
            searched_dirs: join_paths(&places),
        })?,
    };
    let mut command = vec![found.to_string_lossy().into_owned()];
    command.extend_from_slice(rest);
    Ok(command)
}

/// The directories that programs are looked for in: those of `PATH` that are the system's, then those
/// that every system has. Programs elsewhere, such as in a home, a worker does not reach.
fn search_dirs(path: Option<&std::ffi::OsStr>) -> Vec<PathBuf> {
    let listed = path.into_iter().flat_map(std::env::split_paths);
    let of_system = |dir: &PathBuf| {
        ["/usr", "/bin"]
            .iter()
            .any(|system| dir.starts_with(system))
    };
    let mut places: Vec<PathBuf> = Vec::new();
    for dir in listed
        .filter(of_system)
        .chain(DEFAULT_PROGRAM_DIRS.map(PathBuf::from))
    {
        if !places.contains(&dir) {
            places.push(dir);
        }
    }
    places
}

fn find(program: &str, places: &[PathBuf]) -> Option<PathBuf> {
    if program.contains('/') {
        return None;
    }
    let files = places.iter().map(|dir| dir.join(program));
    let mut programs = files.filter(|file| {
        let is_file = std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file());
        is_file && rustix::fs::access(file, Access::EXEC_OK).is_ok()
    });
    programs.next()
}

fn join_paths(places: &[PathBuf]) -> String {
    let places: Vec<_> = places.iter().map(|dir| dir.display().to_string()).collect();
    places.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_a_home_are_passed_over() {
        let path = std::env::join_paths(["/home/ada/bin", "/usr/games", "relative"]).unwrap();
        let expected = ["/usr/games", "/usr/local/bin", "/usr/bin", "/bin"];
        assert_eq!(search_dirs(Some(&path)), expected.map(PathBuf::from));
        assert_eq!(search_dirs(None), DEFAULT_PROGRAM_DIRS.map(PathBuf::from));
        assert!(find("sh", &search_dirs(Some(&path))).is_some());
        assert_eq!(find("no-such-program", &search_dirs(None)), None);
        assert_eq!(find("../bin/sh", &search_dirs(None)), None);
    }
}
