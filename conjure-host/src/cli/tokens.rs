//! Tokens of the environment, for the verbs that serve others over HTTP. Never from the arguments,
//! which every user of the machine may read.

use conjure_host::env;
use secrecy::SecretString;

use super::exit::Failure;

/// The tokens in the variables of these names (`--token-env`).
pub(super) fn of_env(names: &[String]) -> Result<Vec<SecretString>, Failure> {
    let token = |name: &String| {
        let token = env::var(name).map(SecretString::from);
        token.ok_or_else(|| {
            Failure::usage(format!(
                "`--token-env {name}`: there is no variable {name} in the environment, or it is \
                 empty"
            ))
        })
    };
    names.iter().map(token).collect()
}
