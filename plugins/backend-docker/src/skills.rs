//! Skill folders that the container's user may read.
//!
//! A host that runs as root works in containers as somebody else, who may not read what is root's
//! alone, such as a package that was unpacked for one session. Such a folder is copied to where
//! everybody may read it; all others are mounted as they are.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::modes;

/// The most bytes that are copied.
pub(crate) const MAX_BYTES: u64 = 512 * 1024 * 1024;

/// The folder to mount: the given one, or a copy of it below `copies`.
///
/// # Errors
/// When it cannot be read or copied.
pub(crate) fn readable(folder: &Path, copies: &Path, name: &str, user: u32) -> io::Result<PathBuf> {
    if may_read(folder, user)? {
        return Ok(folder.to_owned());
    }
    let copy = copies.join(name);
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    modes::make_dir(copies)?;
    let mut room = MAX_BYTES;
    copy_all(folder, &copy, &mut room)?;
    Ok(copy)
}

/// Whether a user may read everything in a folder.
fn may_read(path: &Path, user: u32) -> io::Result<bool> {
    let found = fs::symlink_metadata(path)?;
    if found.is_symlink() {
        return Ok(true);
    }
    let needed = if found.is_dir() { 0o5 } else { 0o4 };
    let granted = match found.uid() == user {
        true => found.mode() >> 6,
        false => found.mode(),
    };
    if granted & needed != needed {
        return Ok(false);
    }
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            if !may_read(&entry?.path(), user)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Takes what is in a folder off the room that there is.
///
/// # Errors
/// When it is more, or cannot be read.
pub(crate) fn fits(path: &Path, room: &mut u64) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            fits(&entry?.path(), room)?;
        }
    } else if found.is_file() {
        take(room, found.len())?;
    }
    Ok(())
}

fn take(room: &mut u64, bytes: u64) -> io::Result<()> {
    *room = room.checked_sub(bytes).ok_or_else(|| {
        io::Error::other(format!(
            "the skills have more than {} MiB",
            MAX_BYTES / 1024 / 1024
        ))
    })?;
    Ok(())
}

/// Copies files, directories and links as links; anything else is no part of a skill.
fn copy_all(from: &Path, to: &Path, room: &mut u64) -> io::Result<()> {
    let found = fs::symlink_metadata(from)?;
    if found.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if found.is_dir() {
        modes::make_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy_all(&entry.path(), &to.join(entry.file_name()), room)?;
        }
    } else if found.is_file() {
        take(room, found.len())?;
        let mode = match found.mode() & 0o111 {
            0 => modes::READABLE_MODE,
            _ => modes::EXECUTABLE_MODE,
        };
        modes::copy_file(from, to, mode)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_everybody_may_read_is_left_where_it_is_and_the_rest_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("skill");
        fs::create_dir_all(folder.join("scripts")).unwrap();
        fs::write(folder.join("SKILL.md"), "text").unwrap();
        fs::write(folder.join("scripts/a.sh"), "run").unwrap();
        symlink("scripts/a.sh", folder.join("link")).unwrap();
        let mode = |path: PathBuf, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        for open in ["", "scripts"] {
            mode(folder.join(open), 0o755).unwrap();
        }
        mode(folder.join("SKILL.md"), 0o644).unwrap();
        mode(folder.join("scripts/a.sh"), 0o755).unwrap();
        let copies = dir.path().join("copies");
        let nobody = 65_534;
        assert_eq!(readable(&folder, &copies, "skill", nobody).unwrap(), folder);

        mode(folder.join("scripts/a.sh"), 0o700).unwrap();
        mode(folder.join("SKILL.md"), 0o600).unwrap();
        let own = fs::metadata(&folder).unwrap().uid();
        assert_eq!(readable(&folder, &copies, "skill", own).unwrap(), folder);
        for _ in 0..2 {
            let copy = readable(&folder, &copies, "skill", nobody).unwrap();
            assert_eq!(copy, copies.join("skill"));
            let mode = |name: &str| fs::metadata(copy.join(name)).unwrap().mode() & 0o777;
            assert_eq!((mode("SKILL.md"), mode("scripts/a.sh")), (0o644, 0o755));
            assert_eq!(fs::read(copy.join("link")).unwrap(), b"run");
        }
    }
}
