//! Owner, group and mode of the files of a plugin: they decide who may read and write them.

use std::path::Path;

use crate::program;

/// Owner, group and mode of a plugin's file, of those that its description names, and of the
/// directories they are in. A refused file is judged again where one of them changed, although its
/// contents did not: [`crate::FileStamp`] knows only these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileAccess(Vec<Option<(u32, u32, u32)>>);

impl FileAccess {
    /// Reads owner, group and mode as they are now.
    pub(crate) fn of(path: &Path) -> Self {
        let own = [path.to_owned()].into_iter();
        let dir = path.parent().map(Path::to_owned);
        let described = match program::is_description(path) {
            true => program::paths(path),
            false => Vec::new(),
        };
        Self(own.chain(dir).chain(described).map(|at| one(&at)).collect())
    }
}

#[allow(
    clippy::useless_conversion,
    reason = "the mode has another type on other platforms"
)]
fn one(path: &Path) -> Option<(u32, u32, u32)> {
    let stat = rustix::fs::stat(path).ok()?;
    Some((stat.st_uid, stat.st_gid, stat.st_mode.into()))
}
