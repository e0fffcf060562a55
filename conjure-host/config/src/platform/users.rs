//! Identity of the host's user, and whether a group is theirs alone.
//!
//! Only the system's own files are read. A user or group that comes from elsewhere (a directory
//! service) counts as shared, which is the safe side.

use std::sync::OnceLock;

/// Numeric id of the user that the host runs as.
pub fn current_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether only the host's user is in the group: a group of the user's own name, without other
/// members, and no other user's primary group.
pub fn is_private_group(gid: u32) -> bool {
    static PRIVATE: OnceLock<Option<u32>> = OnceLock::new();
    let private = PRIVATE.get_or_init(|| {
        let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
        let group = std::fs::read_to_string("/etc/group").ok()?;
        private_group(&passwd, &group, current_user())
    });
    *private == Some(gid)
}

fn private_group(passwd: &str, group: &str, uid: u32) -> Option<u32> {
    let users = || {
        passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let uid: u32 = fields.nth(1)?.parse().ok()?;
            let gid: u32 = fields.next()?.parse().ok()?;
            Some((name, uid, gid))
        })
    };
    let (user, _, own) = users().find(|(_, id, _)| *id == uid)?;
    let mut fields = group.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let gid: u32 = fields.nth(1)?.parse().ok()?;
        (gid == own && name == user).then_some(fields)
    })?;
    let others = fields
        .next()
        .unwrap_or_default()
        .split(',')
        .any(|member| !member.is_empty() && member != user);
    let shared = users().any(|(_, id, gid)| gid == own && id != uid);
    (!others && !shared).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::private_group;

    const PASSWD: &str = "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n\
                          bob:x:1001:100::/home/bob:/bin/sh\ncy:x:1002:1002::/home/cy:/bin/sh\n\
                          dee:x:1003:1002::/home/dee:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nusers:x:100:\nann:x:1000:ann\ncy:x:1002:\n";

    #[test]
    fn a_group_of_the_users_own_is_private() {
        assert_eq!(private_group(PASSWD, GROUP, 1000), Some(1000));
    }

    #[test]
    fn a_shared_group_is_not() {
        assert_eq!(private_group(PASSWD, GROUP, 1001), None, "another name");
        assert_eq!(private_group(PASSWD, GROUP, 1002), None, "dee is in it too");
        let joined = GROUP.replace("ann:x:1000:ann", "ann:x:1000:bob");
        assert_eq!(
            private_group(PASSWD, &joined, 1000),
            None,
            "bob is a member"
        );
        assert_eq!(private_group(PASSWD, GROUP, 4000), None, "an unknown user");
    }
}
