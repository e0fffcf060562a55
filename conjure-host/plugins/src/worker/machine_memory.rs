//! How much memory this process and what it starts can have: the machine's, or less where a control group
//! limits it, as in a container or a service of systemd. Groups of the first version are not looked at.

use std::fs;
use std::path::Path;

/// Where the groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes that there are for this process and what it starts, where the system says so.
pub(super) fn usable_memory() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok();
    let machine = info.as_deref().and_then(machine_memory);
    let groups = fs::read_to_string("/proc/self/cgroup").ok();
    let own = groups.as_deref().and_then(own_group);
    let limit = own.and_then(|own| group_memory(Path::new(GROUPS), own));
    machine.into_iter().chain(limit).min()
}

fn machine_memory(info: &str) -> Option<u64> {
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib = line.trim().strip_suffix(" kB")?.trim().parse::<u64>();
    Some(kib.ok()?.saturating_mul(1024))
}

/// The group of this process, below the place where they are.
fn own_group(groups: &str) -> Option<&str> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // One above what a container sees of them.
    (!path.split('/').any(|part| part == "..")).then_some(path)
}

/// The lowest limit of a group and of those that it is in; what is not limited says `max`.
fn group_memory(groups: &Path, own: &str) -> Option<u64> {
    let own = groups.join(own);
    let within = own.ancestors().take_while(|dir| dir.starts_with(groups));
    let limits = within.filter_map(|dir| {
        let limit = fs::read_to_string(dir.join("memory.max")).ok()?;
        limit.trim().parse::<u64>().ok()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_the_groups_around_a_process_counts() {
        let scratch = tempfile::tempdir().unwrap();
        let groups = scratch.path();
        fs::create_dir_all(groups.join("user/service")).unwrap();
        fs::create_dir(groups.join("other")).unwrap();
        for (group, limit) in [
            ("user/service", "max\n"),
            ("user", "4096\n"),
            (".", "8192\n"),
            ("other", "1\n"),
        ] {
            fs::write(groups.join(group).join("memory.max"), limit).unwrap();
        }
        assert_eq!(group_memory(groups, "user/service"), Some(4096));
        assert_eq!(group_memory(groups, ""), Some(8192));
        fs::remove_file(groups.join("user/memory.max")).unwrap();
        fs::remove_file(groups.join("memory.max")).unwrap();
        assert_eq!(group_memory(groups, "user/service"), None);
    }

    #[test]
    fn the_system_says_what_there_is_and_which_group_a_process_is_in() {
        assert_eq!(
            machine_memory("MemTotal:  16 kB\nMemFree: 1 kB\n"),
            Some(16384)
        );
        assert_eq!(machine_memory("MemFree: 1 kB\n"), None);
        assert_eq!(own_group("0::/user/service\n"), Some("user/service"));
        assert_eq!(own_group("4:memory:/x\n0::/\n"), Some(""));
        assert_eq!(own_group("4:memory:/x\n"), None);
        assert_eq!(own_group("0::/../other\n"), None);
    }
}
