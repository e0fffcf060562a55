//! Whether a directory is the user's own: what is in it decides what runs, with which keys and for
//! whom, so that nobody else may have put it there.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{current_user, is_private_group};

/// Why a directory is not the user's own.
#[derive(Debug, thiserror::Error)]
pub enum OwnDirError {
    /// The directory belongs to another user.
    #[error(
        "the directory of data {} belongs to another user (number {owner}), who could have put \
         anything there. Name one of your own: `--data-dir DIR`, or CONJURE_DATA_DIR",
        path.display()
    )]
    OtherOwner {
        /// The directory.
        path: PathBuf,
        /// Numeric id of the owner.
        owner: u32,
    },
    /// Others may write in it.
    #[error(
        "other users may write in the directory of data {} (mode {mode:04o}), and so decide what \
         runs here: `chmod go-w` ends that, where it is the one you mean",
        path.display()
    )]
    Writable {
        /// The directory.
        path: PathBuf,
        /// Mode bits of the directory.
        mode: u32,
    },
    /// The path is no directory but something in which others could write.
    #[error(
        "the directory of data {} is no directory. Name one: `--data-dir DIR`, or CONJURE_DATA_DIR",
        path.display()
    )]
    NotADirectory {
        /// What was named.
        path: PathBuf,
    },
    /// The directory cannot be looked at.
    #[error("the directory of data {} cannot be used: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Checks that a directory is the user's own and that nobody else writes in it. One that is not
/// there yet is made where anybody could make it.
///
/// # Errors
/// [`OwnDirError`].
pub fn check_own_dir(path: &Path) -> Result<(), OwnDirError> {
    let failed = |source| OwnDirError::Io {
        path: path.to_owned(),
        source,
    };
    let found = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let shared = path.parent().and_then(|parent| parent.metadata().ok());
            if !shared.is_some_and(|parent| is_writable_by_others(&parent)) {
                return Ok(());
            }
            crate::fs::create_private_dir(path).map_err(failed)?;
            path.symlink_metadata().map_err(failed)?
        }
        found => found.map_err(failed)?,
    };
    check(path, &found)?;
    if found.is_symlink() {
        check(path, &path.metadata().map_err(failed)?)?;
    }
    Ok(())
}

/// Checks that a directory, which no link leads to, is the user's own and that nobody else does anything in
/// it.
///
/// # Errors
/// The system's; [`io::ErrorKind::PermissionDenied`] where it is not.
pub fn check_private_dir(path: &Path) -> io::Result<()> {
    let found = path
        .symlink_metadata()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let mode = found.mode() & 0o7777;
    if found.is_dir() && found.uid() == current_user() && mode & 0o077 == 0 {
        return Ok(());
    }
    let what = match found.is_dir() {
        true => format!("it has {mode:04o} and belongs to user {}", found.uid()),
        false => "it is no directory".to_owned(),
    };
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "{} must be a directory of your own with mode 0700 ({what})",
            path.display()
        ),
    ))
}

fn check(path: &Path, found: &Metadata) -> Result<(), OwnDirError> {
    let is_anothers = found.uid() != current_user();
    // A link says of everybody that they may write.
    let is_writable = !found.is_symlink() && is_writable_by_others(found);
    // Nobody is to change the mode of a device.
    let is_other_thing = !found.is_dir() && !found.is_symlink();
    if is_other_thing && (is_anothers || is_writable) {
        return Err(OwnDirError::NotADirectory {
            path: path.to_owned(),
        });
    }
    if is_anothers {
        return Err(OwnDirError::OtherOwner {
            path: path.to_owned(),
            owner: found.uid(),
        });
    }
    if is_writable {
        return Err(OwnDirError::Writable {
            path: path.to_owned(),
            mode: found.mode() & 0o7777,
        });
    }
    Ok(())
}

fn is_writable_by_others(found: &Metadata) -> bool {
    let by_group = found.mode() & 0o020 != 0 && !is_private_group(found.gid());
    found.mode() & 0o002 != 0 || by_group
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

    use super::*;

    #[test]
    fn a_directory_that_others_write_in_is_not_the_users_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        check_own_dir(&path).unwrap();
        assert!(!path.exists());
        fs::create_dir(&path).unwrap();
        for (mode, is_own) in [
            (0o700, true),
            (0o755, true),
            (0o777, false),
            (0o1777, false),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_own_dir(&path).is_ok(), is_own, "{mode:o}");
        }
        // Where anybody could make it, it is made.
        let shared = path.join("conjure");
        check_own_dir(&shared).unwrap();
        assert_eq!(fs::metadata(&shared).unwrap().mode() & 0o777, 0o700);
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(check_own_dir(&link).is_err());
    }

    #[test]
    fn a_directory_that_others_may_read_or_a_link_leads_to_is_not_private() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("own"), dir.path().join("link"));
        assert!(check_private_dir(&path).is_err());
        crate::fs::create_private_dir(&path).unwrap();
        check_private_dir(&path).unwrap();
        symlink(&path, &link).unwrap();
        let refused = check_private_dir(&link).unwrap_err().to_string();
        assert!(refused.contains("it is no directory"), "{refused}");
        for mode in [0o710, 0o701, 0o755] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let refused = check_private_dir(&path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            let told = format!("it has {mode:04o}");
            assert!(refused.to_string().contains(&told), "{refused}");
        }
    }

    #[test]
    fn what_is_no_directory_is_told_as_that_whoever_may_write_it() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        symlink("/dev/null", &link).unwrap();
        // The device is root's, who may be this user.
        for path in [Path::new("/dev/null"), &file, &link] {
            let refused = check_own_dir(path).unwrap_err().to_string();
            assert!(refused.contains("is no directory"), "{refused}");
        }
    }

    #[test]
    fn another_users_directory_is_not_the_users_own() {
        if current_user() != 0 {
            println!("LEFT OUT: another user's directory: that takes root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (own, link) = (dir.path().join("own"), dir.path().join("link"));
        fs::create_dir(&own).unwrap();
        symlink(&own, &link).unwrap();
        check_own_dir(&link).unwrap();
        lchown(&link, Some(65_534), None).unwrap();
        let refused = check_own_dir(&link).unwrap_err();
        assert!(
            matches!(refused, OwnDirError::OtherOwner { .. }),
            "{refused}"
        );
        lchown(&own, Some(65_534), None).unwrap();
        assert!(check_own_dir(&own).is_err());
    }
}
