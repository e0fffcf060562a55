//! Takes secrets out of the program's environment, and the environment out of the memory in which
//! the system shows it to others.
//!
//! `/proc/PID/environ` shows the bytes that the program was started with, whatever became of its
//! variables since: root reads them, and so does whoever runs as root below this program. What is
//! overwritten there is gone for everybody. The variables themselves live on, elsewhere.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// What becomes of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VariableChange {
    /// The variable stays as it is.
    Keep,
    /// The variable stays, with this value.
    Replace(OsString),
    /// Nobody finds it in the environment any more, nor does any program that is started.
    Take,
}

/// Takes variables out of the environment, and overwrites what the program was started with.
///
/// Nothing happens where it cannot be known that the process has one thread: others could be
/// reading the environment. Only Linux says that.
pub fn take(fate: impl Fn(&OsStr, &OsStr) -> VariableChange) -> BTreeMap<OsString, OsString> {
    let mut taken = BTreeMap::new();
    if !has_one_thread() {
        return taken;
    }
    let mut stays = BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        // A name that no function takes can be of no secret.
        if name.is_empty() || name.as_encoded_bytes().contains(&b'=') {
            continue;
        }
        // Of two with one name the first counts, as for `getenv`.
        match fate(&name, &value) {
            VariableChange::Keep => stays.entry(name).or_insert(value),
            VariableChange::Replace(other) => stays.entry(name).or_insert(other),
            VariableChange::Take => taken.entry(name).or_insert(value),
        };
    }
    memory::replace(&stays, taken.keys());
    taken
}

fn has_one_thread() -> bool {
    cfg!(target_os = "linux")
        && std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

#[expect(
    unsafe_code,
    reason = "changing the environment is unsafe, and its memory is reached by pointers alone"
)]
mod memory {
    use std::collections::BTreeMap;
    use std::ffi::{CStr, OsString, c_char};

    // SAFETY: POSIX gives the program this variable: null, or an array of C strings that a null
    // pointer ends.
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }

    /// Gives each variable that stays a string of its own, removes the others, and overwrites every
    /// string that the environment no longer consists of. For a process with one thread.
    pub(super) fn replace<'a>(
        stays: &'a BTreeMap<OsString, OsString>,
        taken: impl Iterator<Item = &'a OsString>,
    ) {
        let before = strings();
        for name in stays.keys().chain(taken) {
            // SAFETY: there is no other thread, so nobody reads the environment meanwhile.
            unsafe { std::env::remove_var(name) };
        }
        for (name, value) in stays {
            // SAFETY: as above. What was removed is made anew, in memory of its own.
            unsafe { std::env::set_var(name, value) };
        }
        let after = strings();
        for string in before {
            if after.contains(&string) {
                continue;
            }
            // SAFETY: it was in the environment when the program started, so it is a C string in
            // memory that stays, belongs to the program and may be written; nobody refers to it
            // since it was removed, and there is no other thread.
            unsafe {
                let length = CStr::from_ptr(string).to_bytes().len();
                std::ptr::write_bytes(string, 0, length);
            }
        }
    }

    /// The strings that the environment consists of.
    fn strings() -> Vec<*mut c_char> {
        let mut found = Vec::new();
        // SAFETY: there is no other thread that could change the array, and it is read up to the
        // null pointer that ends it.
        unsafe {
            let mut next = environ;
            while !next.is_null() && !(*next).is_null() {
                found.push(*next);
                next = next.add(1);
            }
        }
        found
    }
}
