//! Keeps other processes of the same user from looking into this one.

/// From now on other processes of the same user read neither this process's environment nor its
/// memory, and no core dump holds its keys. For programs, not for libraries: a debugger is such a
/// process too. Programs that this one starts are not concerned.
///
/// Only Linux has this; elsewhere nothing changes. Root, and who may trace any process, still can.
pub fn deny_inspection() {
    #[cfg(target_os = "linux")]
    if let Err(error) =
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        tracing::warn!("other processes of this user can look into this one: {error}");
    }
}
