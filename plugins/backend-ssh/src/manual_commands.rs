//! The commands that an error tells a person to type, with all that the configuration says: they
//! reach the same machine, with the same files.

use conjure_exec_agent::executor::quoted_word;

use crate::config::SshSettings;
use crate::ssh_command::{escape_percent, known_hosts_option};

/// The port that names of known hosts leave out.
const DEFAULT_PORT: u16 = 22;

/// The command that logs in.
pub(crate) fn login(settings: &SshSettings) -> String {
    let mut words = vec!["ssh".to_owned()];
    if let Some(file) = &settings.config_file {
        words.extend(["-F".to_owned(), file.display().to_string()]);
    }
    if let Some(file) = &settings.known_hosts {
        words.extend(["-o".to_owned(), known_hosts_option(file)]);
    }
    if let Some(file) = &settings.identity_file {
        words.extend(["-i".to_owned(), escape_percent(file)]);
        // As the session does: else keys of ssh-agent go first.
        words.extend(["-o".to_owned(), "IdentitiesOnly=yes".to_owned()]);
    }
    if let Some(port) = settings.port {
        words.extend(["-p".to_owned(), port.to_string()]);
    }
    if let Some(user) = &settings.user {
        words.extend(["-l".to_owned(), user.clone()]);
    }
    words.push(settings.host.clone());
    line(&words)
}

/// The command that removes a host's old key: out of this file, and of this host, where `ssh` names
/// them, since an alias or a jump host hides them from the configuration.
pub(crate) fn forget_key(settings: &SshSettings, file: Option<&str>, host: Option<&str>) -> String {
    let configured = || Some(settings.known_hosts.as_ref()?.display().to_string());
    let file = file.map(str::to_owned).or_else(configured);
    let host = host.map_or_else(|| known_name(settings), str::to_owned);
    let mut words = vec!["ssh-keygen".to_owned()];
    if let Some(file) = file {
        words.extend(["-f".to_owned(), file]);
    }
    words.extend(["-R".to_owned(), host]);
    line(&words)
}

/// The host's name in files of known hosts.
fn known_name(settings: &SshSettings) -> String {
    let host = settings.host.rsplit_once('@');
    let host = host.map_or(settings.host.as_str(), |(_, host)| host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match settings.port {
        Some(port) if port != DEFAULT_PORT => format!("[{bare}]:{port}"),
        _ => bare.to_owned(),
    }
}

/// The words as a shell reads them.
fn line(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quoted_word(word)).collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_by_hand_has_all_that_is_configured_and_a_shell_reads_it() {
        let settings = SshSettings {
            host: "me@build".to_owned(),
            port: Some(2222),
            user: Some("you".to_owned()),
            identity_file: Some("/k/it's mine".into()),
            known_hosts: Some("/k/known".into()),
            config_file: Some("/k/config".into()),
            ..SshSettings::default()
        };
        assert_eq!(
            login(&settings),
            "ssh -F /k/config -o 'UserKnownHostsFile=\"/k/known\"' -i '/k/it'\\''s mine' \
             -o IdentitiesOnly=yes -p 2222 -l you me@build"
        );
        assert_eq!(
            forget_key(&settings, None, None),
            "ssh-keygen -f /k/known -R '[build]:2222'"
        );
        let plain = SshSettings {
            host: "build".to_owned(),
            port: Some(DEFAULT_PORT),
            ..SshSettings::default()
        };
        assert_eq!(login(&plain), "ssh -p 22 build");
        assert_eq!(forget_key(&plain, None, None), "ssh-keygen -R build");
        assert_eq!(
            forget_key(&settings, Some("/k/known hosts"), Some("[10.0.0.7]:2222")),
            "ssh-keygen -f '/k/known hosts' -R '[10.0.0.7]:2222'"
        );
    }
}
