//! Something empty over each place that is hidden, and once more where one of them is replaced.
//!
//! The kernel takes a mount away when what it lies on is removed or replaced outside, as by programs that
//! write a file anew under its name. So a thread of the supervisor, outside of what confines its program,
//! waits for changes of mounts and for new names in the directories above, and covers at once what
//! lies open. It waits for ever where nothing changes. What was not there in the beginning is not covered
//! later: a command may make it itself.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{AtFlags, CWD, OFlags, StatxAttributes, StatxFlags, statx};
use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive, mount_remount};
use rustix::process::Signal;

use crate::signal_all;

/// The options of a directory with next to nothing in it.
pub(super) const EMPTY: &core::ffi::CStr = c"mode=0755,size=64k";

/// The stack of the thread; nothing there is deep.
const STACK: usize = 256 * 1024;

/// Places that are hidden, and those below them that are seen all the same.
#[derive(Debug)]
pub(super) struct Covers {
    /// The outer ones first: what is below one and not shown is covered by that.
    hidden: BTreeSet<PathBuf>,
    visible: BTreeSet<PathBuf>,
}

impl Covers {
    /// Covers for places that are there, without links.
    pub(super) fn new(
        hidden: impl IntoIterator<Item = PathBuf>,
        visible: impl IntoIterator<Item = PathBuf>,
    ) -> Self {
        Self {
            hidden: hidden.into_iter().collect(),
            visible: visible.into_iter().collect(),
        }
    }

    /// The places.
    pub(super) fn hidden(&self) -> impl Iterator<Item = &Path> {
        self.hidden.iter().map(PathBuf::as_path)
    }

    /// Covers all of them, in the mount namespace of this process.
    pub(super) fn cover_all(&self) -> io::Result<()> {
        self.hidden()
            .try_for_each(|place| self.cover_existing(place))
    }

    /// Covers again what lies open, in a thread that ends with this process.
    pub(super) fn watch_covers(self) -> io::Result<()> {
        if self.hidden.is_empty() {
            return Ok(());
        }
        let mounts = File::open("/proc/self/mountinfo")?;
        // A user has a limited number of these; a cover that the kernel takes away is seen without.
        let names = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || self.watch(&mounts, names.as_ref()))?;
        Ok(())
    }

    fn watch(&self, mounts: &File, names: Option<&OwnedFd>) {
        let mut behind_links = BTreeSet::new();
        loop {
            // Before it is looked at the places, so that what comes in between is noticed.
            if let Some(names) = names {
                self.watch_names(names);
            }
            let mut cover = || self.cover_open(&mut behind_links);
            // Something may have been replaced while it was covered.
            if let Err(error) = cover().or_else(|_| cover()) {
                // What cannot be hidden any more is not to be read.
                let _ = writeln!(
                    io::stderr(),
                    "conjure: a hidden file was replaced and cannot be hidden again, so everything \
                     that was started here is ended: {error}"
                );
                signal_all(Signal::KILL);
            }
            wait(mounts, names);
        }
    }

    /// Has new names told in each directory above a hidden place.
    fn watch_names(&self, names: &OwnedFd) {
        let above = self.hidden().flat_map(|place| place.ancestors().skip(1));
        let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        for dir in above.collect::<BTreeSet<_>>() {
            // One that is not there comes to be in one that is watched.
            let _ = inotify::add_watch(names, dir, flags);
        }
    }

    /// Covers what lies open. `behind_links`: what was covered because a link leads there.
    fn cover_open(&self, behind_links: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        for place in self.hidden() {
            if let Some(open) = self.open_at(place, behind_links) {
                self.cover_existing(&open)?;
                if open != place {
                    behind_links.insert(open);
                }
            }
        }
        Ok(())
    }

    /// Where that lies without links which is at a hidden place, if it lies open. What a link leads to may
    /// be mounted there for another reason: it is covered only if that was done here.
    fn open_at(&self, place: &Path, behind_links: &BTreeSet<PathBuf>) -> Option<PathBuf> {
        let real = fs::canonicalize(place).ok()?;
        let is_known = self.hidden.contains(&real) || behind_links.contains(&real);
        (!is_known || is_uncovered(&real)).then_some(real)
    }

    /// Covers a place, if there is one.
    fn cover_existing(&self, place: &Path) -> io::Result<()> {
        match self.cover(place) {
            // Covered with what is above it, or removed.
            Err(_) if is_gone(place) => Ok(()),
            covered => covered,
        }
    }

    /// Puts something empty over a place, with what is to be seen below it.
    fn cover(&self, place: &Path) -> io::Result<()> {
        if !fs::metadata(place)?.is_dir() {
            return cover_file(place);
        }
        // Through these they are found again once they are covered.
        let mut kept: Vec<(&Path, OwnedFd)> = Vec::new();
        for shown in self.visible.iter().map(PathBuf::as_path) {
            let is_inside = shown != place && shown.starts_with(place);
            if is_inside && !kept.iter().any(|(outer, _)| shown.starts_with(outer)) {
                match handle(shown) {
                    // Gone with the directory that was replaced.
                    Err(_) if is_gone(shown) => {}
                    opened => kept.push((shown, opened?)),
                }
            }
        }
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", place, "tmpfs", flags, EMPTY)?;
        for (shown, handle) in kept {
            fs::create_dir_all(shown)?;
            mount_bind_recursive(descriptor(&handle), shown)?;
        }
        let flags = flags | MountFlags::BIND | MountFlags::RDONLY;
        Ok(mount_remount(place, flags, c"")?)
    }
}

/// The device can be written to all the same; its mode stays what it is.
fn cover_file(place: &Path) -> io::Result<()> {
    mount_bind("/dev/null", place)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::BIND | MountFlags::RDONLY;
    Ok(mount_remount(place, flags, c"")?)
}

/// Whether the place is gone, also because a directory above is none any more.
fn is_gone(place: &Path) -> bool {
    use ErrorKind::{NotADirectory, NotFound};
    let found = fs::metadata(place);
    found.is_err_and(|error| matches!(error.kind(), NotFound | NotADirectory))
}

/// Whether something is there that nothing lies over. A kernel that does not say so is older than
/// every one that has a sandbox.
fn is_uncovered(place: &Path) -> bool {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW;
    let found = statx(CWD, place, flags, StatxFlags::empty());
    let covered = StatxAttributes::MOUNT_ROOT;
    found.is_ok_and(|found| {
        found.stx_attributes_mask.contains(covered) && !found.stx_attributes.contains(covered)
    })
}

/// Waits until mounts or names have changed. Which ones is no matter.
fn wait(mounts: &File, names: Option<&OwnedFd>) {
    let mut fds = vec![PollFd::new(mounts, PollFlags::PRI)];
    fds.extend(names.map(|names| PollFd::new(names, PollFlags::IN)));
    // What interrupts it lets the places be looked at once more.
    let _ = poll(&mut fds, None);
    if let Some(names) = names {
        let mut told = [0_u8; 4096];
        while rustix::io::read(names, &mut told).is_ok_and(|length| length > 0) {}
    }
}

/// What is at a path, to be found again when something else lies over it.
pub(super) fn handle(path: &Path) -> io::Result<OwnedFd> {
    let flags = (OFlags::PATH | OFlags::CLOEXEC).bits();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.cast_signed());
    let file: File = options.open(path)?;
    Ok(file.into())
}

/// The path of what a handle is for.
pub(super) fn descriptor(handle: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory of its own below that of temporary files.
    fn directory(name: &str) -> PathBuf {
        let name = format!("conjure-covers-{}-{name}", std::process::id());
        let dir = fs::canonicalize(std::env::temp_dir()).unwrap().join(name);
        fs::create_dir(&dir).unwrap();
        dir
    }

    #[test]
    fn what_a_link_leads_to_lies_open_until_it_is_covered_here() {
        let dir = directory("links");
        let place = dir.join("secret");
        let covers = Covers::new([place.clone()], []);
        let none = BTreeSet::new();
        assert_eq!(covers.open_at(&place, &none), None, "nothing is there");
        fs::write(&place, "").unwrap();
        assert_eq!(covers.open_at(&place, &none), Some(place.clone()));
        fs::remove_file(&place).unwrap();
        // Something is mounted there, and does not hide it.
        let root = PathBuf::from("/");
        symlink(&root, &place).unwrap();
        assert_eq!(covers.open_at(&place, &none), Some(root.clone()));
        assert_eq!(covers.open_at(&place, &BTreeSet::from([root])), None);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_below_no_directory_any_more_needs_no_cover() {
        let dir = directory("gone");
        let above = dir.join("above");
        fs::write(&above, "").unwrap();
        let covers = Covers::new([above.join("secret"), dir.join("removed")], []);
        covers.cover_all().unwrap();
        covers.cover_open(&mut BTreeSet::new()).unwrap();
        fs::remove_dir_all(dir).unwrap();
    }
}
