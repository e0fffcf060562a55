//! Files of this machine that a configuration names for `ssh`, which does not say why it goes on
//! without one.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use crate::config::SshSettings;

/// Sees that `ssh` can read the files that are configured.
///
/// # Errors
/// What follows the name of the machine in an error: which file cannot be read, and what to do.
pub(crate) fn check_readable(settings: &SshSettings) -> Result<(), String> {
    let files = [
        ("identity_file", &settings.identity_file),
        ("config_file", &settings.config_file),
    ];
    for (name, path) in files {
        let Some(path) = path else {
            continue;
        };
        let Err(error) = read(path) else {
            continue;
        };
        // The private half may be in ssh-agent alone.
        let is_gone = error.kind() == ErrorKind::NotFound;
        if is_gone && name == "identity_file" && read(&public_half(path)).is_ok() {
            continue;
        }
        let remedy = match error.kind() {
            ErrorKind::PermissionDenied if in_worker() => {
                "This plugin runs in a process of its own, which reads ~/.ssh and the system's \
                 configuration of ssh only: put the file below ~/.ssh, or let the plugin run in \
                 the host's process with `conjure plugin trust`"
            }
            ErrorKind::NotFound => "Correct the path, or put the file there",
            _ => "Let the host's user read it, or name another file",
        };
        return Err(format!(
            "cannot be reached, since its `{name}` {} cannot be read: {error}. {remedy}",
            path.display()
        ));
    }
    Ok(())
}

/// Opens a file, and nothing that would wait for somebody who writes to it.
fn read(path: &Path) -> io::Result<()> {
    match path.metadata()?.is_file() {
        true => File::open(path).map(drop),
        false => Ok(()),
    }
}

fn public_half(path: &Path) -> std::path::PathBuf {
    let mut public = path.as_os_str().to_owned();
    public.push(".pub");
    public.into()
}

/// Whether this process is a worker of the host's: the kernel refuses it every socket of this
/// machine, so that of ssh-agent too.
pub(crate) fn in_worker() -> bool {
    let socket = UnixDatagram::unbound();
    socket.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_missing_is_named_and_half_a_key_is_enough() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key");
        let settings = SshSettings {
            identity_file: Some(key.clone()),
            config_file: Some("/dev/null".into()),
            ..SshSettings::default()
        };
        let why = check_readable(&settings).unwrap_err();
        assert!(
            why.contains("`identity_file`") && why.contains(&key.display().to_string()),
            "{why}"
        );
        std::fs::write(dir.path().join("key.pub"), "").unwrap();
        assert_eq!(check_readable(&settings), Ok(()));
        let settings = SshSettings {
            config_file: Some(dir.path().join("config")),
            ..SshSettings::default()
        };
        let why = check_readable(&settings).unwrap_err();
        assert!(why.contains("`config_file`"), "{why}");
    }
}
