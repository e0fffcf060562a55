//! `conjure plugin trust` and `untrust`: which libraries run in the host's process where others have
//! processes of their own.

use std::path::{Path, PathBuf};

use clap::Args;
use conjure_plugins::{PluginFile, TrustedLibrary, TrustedSigner};
use serde_json::json;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, Table};
use super::plugin::report_refusal;
use super::plugin_args;
use super::plugin_package::public_key;

/// What to trust.
#[derive(Args)]
pub(crate) struct PluginTrustArgs {
    /// The library
    file: Option<PathBuf>,
    /// Trust this signer: the public key, or the file of it
    #[arg(long, value_name = "KEY|FILE", conflicts_with = "file")]
    signer: Option<String>,
    /// What to call the signer
    #[arg(
        long,
        value_name = "NAME",
        requires = "signer",
        conflicts_with = "file"
    )]
    name: Option<String>,
}

/// Lists what is trusted, or trusts a file or a signer.
pub(crate) fn trust(global: &Global, args: &PluginTrustArgs) -> Result<Exit, CliError> {
    let trust = plugin_args::trust(global);
    if let Some(signer) = &args.signer {
        return trust_signer(global, signer, args.name.as_deref());
    }
    let Some(path) = args.file.as_deref() else {
        let listed = trust.entries().map_err(CliError::host_from)?;
        let signers = plugin_args::signers(global).entries();
        let signers = signers.map_err(CliError::host_from)?;
        if global.json {
            output::json(&json!({ "trusted": listed, "signers": signers }));
            return Ok(Exit::Success);
        }
        if listed.is_empty() {
            output::line("No plugin is trusted beside those that come with the program.");
        } else {
            let mut rows = Table::new(["PLUGIN", "SHA-256"]);
            for library in listed {
                rows.row([
                    output::clean_line(&library.name).into_owned(),
                    library.sha256.to_string(),
                ]);
            }
            rows.print();
        }
        for signer in signers {
            let whose = match signer.name.as_str() {
                "" => "this key",
                name => name,
            };
            output::line(format_args!(
                "What {} signed is trusted: {}",
                output::clean_line(whose),
                signer.key
            ));
        }
        return Ok(Exit::Success);
    };
    plugin_args::check_exists(path)?;
    let file = match PluginFile::read(path, true) {
        Ok(file) => file,
        Err(error) => return Ok(report_refusal(global, path, &error.to_string())),
    };
    if file.program.is_some() {
        let reason = format!(
            "{} is a program, which always runs in a process of its own",
            file.header.name
        );
        return Ok(report_refusal(global, path, &reason));
    }
    let library = TrustedLibrary {
        sha256: file.sha256,
        name: format!("{} {}", file.header.name, file.header.version),
    };
    let is_new = trust.add(library.clone()).map_err(CliError::host_from)?;
    if global.json {
        output::json(&json!({ "trusted": library, "new": is_new }));
    } else {
        output::line(format_args!(
            "{} ({}): {}",
            output::clean_line(&library.name),
            library.sha256.short(),
            match is_new {
                true => "runs in the host's process from when it is loaded next",
                false => "was trusted already",
            }
        ));
    }
    Ok(Exit::Success)
}

fn trust_signer(global: &Global, key: &str, name: Option<&str>) -> Result<Exit, CliError> {
    let signer = TrustedSigner {
        key: public_key(key)?.to_string(),
        name: name.unwrap_or_default().to_owned(),
    };
    let signers = plugin_args::signers(global);
    let is_new = signers.add(signer.clone()).map_err(CliError::host_from)?;
    if global.json {
        output::json(&json!({ "trusted": signer, "new": is_new }));
    } else {
        output::line(match is_new {
            true => {
                "What this key signed is installed without asking whose it is, and runs in the host's \
                     process from when it is loaded next."
            }
            false => "This key was trusted already.",
        });
    }
    Ok(Exit::Success)
}

/// Trusts a library or a signer no more.
pub(crate) fn untrust(global: &Global, library: &str) -> Result<Exit, CliError> {
    let signers = plugin_args::signers(global);
    if let Ok(key) = public_key(library)
        && signers.remove(key.as_str()).map_err(CliError::host_from)?
    {
        if global.json {
            output::json(&json!({ "removed": { "key": key } }));
        } else {
            output::line(format_args!("{key}: is trusted no more"));
        }
        return Ok(Exit::Success);
    }
    let trust = plugin_args::trust(global);
    let digest = match PluginFile::read(Path::new(library), true) {
        Ok(file) => file.sha256.to_string(),
        Err(_) => library.to_ascii_lowercase(),
    };
    let listed = trust.entries().map_err(CliError::host_from)?;
    let mut meant = listed
        .into_iter()
        .filter(|trusted| !digest.is_empty() && trusted.sha256.to_string().starts_with(&digest));
    let (Some(found), None) = (meant.next(), meant.next()) else {
        return Err(CliError::usage(format!(
            "`{library}` is not one of the trusted plugins; `conjure plugin trust` lists them, and the \
             first digits of a SHA-256 that no other begins with are enough"
        )));
    };
    trust.remove(&found.sha256).map_err(CliError::host_from)?;
    if global.json {
        output::json(&json!({ "removed": found }));
    } else {
        output::line(format_args!(
            "{} ({}): is trusted no more",
            output::clean_line(&found.name),
            found.sha256.short()
        ));
    }
    Ok(Exit::Success)
}
