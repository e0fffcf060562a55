//! The agents that were copied to a machine: each version of a plugin brings one, and those that
//! nobody uses any more go.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};

/// Prefix of a program's name, before its digest.
const NAME_PREFIX: &str = "agent-";
/// Prefix of the name of a program that is being copied.
const COPY_PREFIX: &str = ".new-";
/// Hexadecimal digits of the digest.
const DIGEST_DIGITS: usize = 64;
/// Number of programs that are kept in any case, the last used ones.
const MIN_KEPT_PROGRAMS: usize = 3;
/// Age at which an unfinished copy is abandoned.
const STALE_COPY_AGE: Duration = Duration::from_secs(60 * 60);

/// Says that this process uses its program, for as long as the value lives, and removes those beside
/// it that no relay uses and that were not used lately. A program that lies somewhere else, under a
/// name of its own, is left alone, and so is what lies there.
pub(super) fn remove_unused_programs() -> Option<File> {
    let own = std::env::current_exe().ok()?;
    if !is_agent(own.file_name()?) {
        return None;
    }
    let file = File::open(&own).ok()?;
    let _ = flock(&file, FlockOperation::NonBlockingLockShared);
    let used = FileTimes::new().set_modified(SystemTime::now());
    // Where it is somebody else's, that one sees to it.
    let _ = file.set_times(used);
    remove_unused(own.parent()?);
    Some(file)
}

fn remove_unused(dir: &Path) {
    let mut agents = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(found) = entry.metadata() else {
            continue;
        };
        let used = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let name = entry.file_name();
        if found.is_file() && is_agent(&name) {
            agents.push((used, entry.path()));
        }
        let is_copy = name.to_string_lossy().starts_with(COPY_PREFIX);
        if found.is_file() && is_copy && used.elapsed().is_ok_and(|age| age > STALE_COPY_AGE) {
            let _ = fs::remove_file(entry.path());
        }
    }
    agents.sort_by(|one, other| other.cmp(one));
    for (_, path) in agents.split_off(MIN_KEPT_PROGRAMS.min(agents.len())) {
        remove_where_unused(&path);
    }
}

fn remove_where_unused(path: &PathBuf) {
    if let Ok(file) = File::open(path)
        && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    {
        let _ = fs::remove_file(path);
    }
}

fn is_agent(name: &OsStr) -> bool {
    let name = name
        .to_str()
        .and_then(|name| name.strip_prefix(NAME_PREFIX));
    let is_digest = |digest: &str| {
        digest.len() == DIGEST_DIGITS && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    name.is_some_and(is_digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_used_stay_and_those_in_use_and_what_is_no_agent() {
        let dir = tempfile::tempdir().unwrap();
        let made = |name: &str, hours: u64| {
            let path = dir.path().join(name);
            let file = File::create(&path).unwrap();
            let then = SystemTime::now() - Duration::from_secs(hours * 3_600);
            file.set_times(FileTimes::new().set_modified(then)).unwrap();
            path
        };
        let agent = |digit: char| format!("agent-{}", String::from(digit).repeat(64));
        let new: Vec<_> = ('a'..='c').map(|c| made(&agent(c), 1)).collect();
        let old: Vec<_> = ('0'..='3').map(|c| made(&agent(c), 50)).collect();
        let others = [
            made("agent-1", 99),
            made("notes", 99),
            made(".new-7", 0),
            dir.path().join(agent('f')),
        ];
        fs::create_dir(&others[3]).unwrap();
        let half = made(".new-8", 99);
        let used = File::open(&old[2]).unwrap();
        flock(&used, FlockOperation::NonBlockingLockShared).unwrap();
        remove_unused(dir.path());
        let stay = [&new[..], &old[2..3], &others[..]].concat();
        for path in &stay {
            assert!(path.exists(), "{}", path.display());
        }
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!((left, half.exists()), (stay.len(), false));
    }
}
