//! `conjure plugin key`, `sign`, `verify`, `publish` and `search`: packages, and who signs them.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use conjure_config::{env, fs};
use conjure_packages::{
    IndexEntry, Package, PackageDescription, PackageError, PackageSource, PluginIndex, SignerKey,
    SigningKey, publish, redacted_location,
};
use conjure_runtime::PluginDifference;
use serde_json::json;

use super::args::{Global, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, GREEN, RESET, Table, YELLOW};
use super::plugin_args::signers;
use super::plugin_skill_contents::SkillContents;
use super::shorten::shorten;
use super::{plugin_fetch, plugin_pack, plugin_upgrade, secret};

/// The most characters of what an index says of a package, and of what a package says of itself, that are
/// shown.
const CELL: usize = 200;
const ROW: usize = 2_000;

#[derive(Subcommand)]
pub(crate) enum PackageVerb {
    /// Make a package of a plugin: its libraries, manifest, licence and SBOM in one file
    ///
    /// Loads the library that is for this machine, in a process of its own, and asks it for its
    /// manifest. Licence and SBOM come from the crate that the library was built in, where it is found.
    Pack(plugin_pack::PackArgs),
    /// Make a key that signs packages
    ///
    /// The files are those of minisign: FILE with the secret key and FILE.pub with the public one. At a
    /// terminal it asks for a password, elsewhere it takes CONJURE_SIGNING_PASSWORD.
    Key {
        /// The file to write the secret key to
        file: PathBuf,
        /// Seal the secret key with no password
        #[arg(long)]
        no_password: bool,
    },
    /// Sign a package with a key; who has its public key can tell that the package is yours
    Sign {
        /// The package
        package: PathBuf,
        /// The file of the secret key
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
    /// Say whether a package is whole and whose it is, and what is in it
    ///
    /// Runs nothing of it. Exit code 0: it is whole and signed, by the given key if there is one.
    Verify {
        /// A file, an address, `oci://HOST/NAME:VERSION`, or a name in an index
        package: String,
        /// The public key, or the file of it, that it has to be signed with
        #[arg(long, value_name = "KEY|FILE")]
        signer: Option<String>,
        #[command(flatten)]
        indexes: IndexArgs,
    },
    /// Put a package where others find it: a folder with an index, or a registry (`oci://HOST/NAME`)
    ///
    /// A folder gets the package and a line in its `index.jsonl`; any web server can show it.
    Publish {
        /// The package
        package: PathBuf,
        /// The folder, or `oci://HOST/NAME`; the tag is the version where none is said
        place: String,
    },
    /// Search indexes for plugins by words of their names and descriptions
    Search {
        /// Words that all have to be there; without any it lists all
        words: Vec<String>,
        #[command(flatten)]
        indexes: IndexArgs,
    },
    /// Install plugins out of packages, or upgrade those that are there
    ///
    /// The package is judged as a whole, with its signature, before any of it is used. A signer that
    /// nobody here has accepted yet has to be named with `--signer`. What the plugin asks to be allowed,
    /// and tools that are new or look otherwise, are shown first: at a terminal it asks, elsewhere
    /// `--yes` says that they may. It then runs in a process of its own, unless `conjure plugin trust`
    /// says otherwise.
    ///
    /// `conjure.lock` in the data directory says what is installed, by digest and signer. Without a
    /// package it installs what a lock names: that of `--lock`, `./conjure.lock`, or the data
    /// directory's own.
    Install(plugin_fetch::InstallArgs),
    /// Upgrade plugins that came in packages to the newest versions of where they came from
    Upgrade(plugin_upgrade::UpgradeArgs),
}

/// Where names are looked up.
#[derive(Args, Default)]
pub(crate) struct IndexArgs {
    /// Look names up in this index: a file, a folder or an address [default:
    /// $CONJURE_PLUGIN_INDEX, which can name several]
    #[arg(long, value_name = "PLACE")]
    index: Vec<String>,
}

impl IndexArgs {
    /// Indexes that the command itself names.
    pub(crate) fn explicit_indexes(&self) -> &[String] {
        &self.index
    }

    pub(crate) fn locations(&self) -> Vec<String> {
        if !self.index.is_empty() {
            return self.index.clone();
        }
        let named = env::var(env::PLUGIN_INDEX).unwrap_or_default();
        named.split_whitespace().map(str::to_owned).collect()
    }
}

pub(crate) async fn run(global: &Global, verb: &PackageVerb) -> Result<Exit, CliError> {
    match verb {
        PackageVerb::Pack(args) => plugin_pack::pack(global, args).await,
        PackageVerb::Key { file, no_password } => key(global, file, *no_password).await,
        PackageVerb::Sign { package, key } => sign(global, package, key).await,
        PackageVerb::Verify {
            package,
            signer,
            indexes,
        } => verify(global, package, signer.as_deref(), indexes).await,
        PackageVerb::Publish { package, place } => publish_package(global, package, place).await,
        PackageVerb::Search { words, indexes } => search(global, words, indexes).await,
        PackageVerb::Install(args) => Box::pin(plugin_fetch::install(global, args)).await,
        PackageVerb::Upgrade(args) => Box::pin(plugin_upgrade::upgrade(global, args)).await,
    }
}

async fn key(global: &Global, file: &Path, no_password: bool) -> Result<Exit, CliError> {
    let password = match no_password {
        true => None,
        false => Some(new_password().await?),
    };
    let (key, text) = SigningKey::create(password.as_deref())?;
    let public = key.public()?;
    let mut beside = file.as_os_str().to_owned();
    beside.push(".pub");
    let write = |path: &Path, text: &str, is_secret: bool| {
        let written = match is_secret {
            true => fs::write_new_private(path, text.as_bytes()),
            false => fs::write_new(path, text.as_bytes()),
        };
        written.map_err(|error| CliError::usage_from(error).context(display_path(path)))
    };
    if Path::new(&beside).exists() {
        let message = format!("{} is there already", display_path(Path::new(&beside)));
        return Err(CliError::usage(message));
    }
    write(file, &text, true)?;
    let pub_text = format!("untrusted comment: a key that signs plugins\n{public}\n");
    write(Path::new(&beside), &pub_text, false)?;
    if global.json {
        output::json(&json!({ "key": file, "public": public }));
    } else {
        output::line(format_args!("Secret key: {}", display_path(file)));
        output::line(format_args!("Public key: {public}"));
        output::line(
            "Tell the public key to those who install what you sign, where they can be sure that it is \
             you; keep the secret one.",
        );
    }
    Ok(Exit::Success)
}

async fn new_password() -> Result<String, CliError> {
    if let Some(password) = env::var(env::SIGNING_PASSWORD) {
        return Ok(password);
    }
    let first = secret::password("Password (it is not shown): ").await?;
    let again = match &first {
        Some(_) => secret::password("Password, once more: ").await?,
        None => None,
    };
    match first {
        Some(first) if first.is_empty() => Err(CliError::usage("no password was given")
            .hint("`--no-password` makes a key that whoever has the file can use")),
        Some(first) if again.as_ref() == Some(&first) => Ok(first),
        Some(_) => Err(CliError::usage("the passwords differ; nothing was made")),
        None => Err(
            CliError::usage("nobody is here to be asked for a password").hint(format!(
                "set {}, or say `--no-password`",
                env::SIGNING_PASSWORD
            )),
        ),
    }
}

/// Opens the file of a secret key.
pub(crate) async fn signing_key(file: &Path) -> Result<SigningKey, CliError> {
    let text = fs::read_to_string(file)
        .map_err(|error| CliError::usage_from(error).context(display_path(file)))?;
    if SignerKey::read(&text).is_ok() {
        let message = format!(
            "{} is the public key, which verifies what the secret one signed",
            display_path(file)
        );
        return Err(CliError::usage(message).hint("name the file of the secret key"));
    }
    let password = match SigningKey::is_sealed(&text) {
        false => None,
        true => match env::var(env::SIGNING_PASSWORD) {
            Some(password) => Some(password),
            None => secret::password("Password of the key (it is not shown): ").await?,
        },
    };
    if password.is_none() && SigningKey::is_sealed(&text) {
        let hint = format!("set {}", env::SIGNING_PASSWORD);
        let message = format!("the key in {} needs its password", display_path(file));
        return Err(CliError::usage(message).hint(hint));
    }
    SigningKey::open(&text, password.as_deref())
        .map_err(|error| CliError::from(error).context(display_path(file)))
}

async fn sign(global: &Global, path: &Path, key: &Path) -> Result<Exit, CliError> {
    let package = Package::open(path)?;
    let key = signing_key(key).await?;
    let signed = package.signed(&key)?;
    // Read again as whoever gets it will.
    let package = Package::read(&display_path(path), signed)?;
    fs::write_atomic_for_all(path, package.bytes())
        .map_err(|error| CliError::host_from(error).context(display_path(path)))?;
    let signer = package.signer()?;
    if global.json {
        output::json(&json!({ "package": path, "signer": signer, "sha256": package.sha256() }));
    } else {
        output::line(format_args!(
            "{BOLD}{}{RESET} is signed by {signer}",
            output::clean(&package.description().id())
        ));
    }
    Ok(Exit::Success)
}

/// A public key as it was given, or out of the file that was named.
pub(crate) fn public_key(text: &str) -> Result<SignerKey, CliError> {
    // A file of that very name says nothing about who it is.
    let key = SignerKey::read(text).or_else(|error| match fs::read_to_string(text) {
        Ok(file) => SignerKey::read(&file),
        Err(_) => Err(error),
    });
    key.map_err(CliError::from)
}

async fn verify(
    global: &Global,
    place: &str,
    signer: Option<&str>,
    indexes: &IndexArgs,
) -> Result<Exit, CliError> {
    let wanted = signer.map(public_key).transpose()?;
    let source = PackageSource::read(place)?;
    let fetched = match Box::pin(source.fetch(&indexes.locations())).await {
        Ok(fetched) => fetched,
        Err(error) if is_refusal(&error) => return Ok(report_refusal(global, place, &error)),
        Err(error) => return Err(error.into()),
    };
    report_unread(global, &fetched.index_errors);
    report_unread(global, fetched.left_out.as_slice());
    let package = &fetched.package;
    let signed = package.signer().and_then(|found| match &wanted {
        Some(wanted) if wanted != found => Err(PackageError::Signer {
            location: redacted_location(place),
            found: found.to_string(),
            why: format!("{wanted} was asked for"),
        }),
        _ => Ok(found),
    });
    if let Err(error) = &signed
        && (global.json || wanted.is_some())
    {
        return Ok(report_refusal(global, place, error));
    }
    let description = package.description();
    let skill = package.skill()?;
    let skill = skill.map(|archive| SkillContents::read(&archive));
    let skill = skill.transpose().map_err(CliError::usage)?;
    if global.json {
        output::json(&json!({
            "ok": true,
            "source": fetched.source,
            "sha256": package.sha256(),
            "package": description,
            "skill": skill.as_ref().map(SkillContents::json),
        }));
        return Ok(Exit::Success);
    }
    describe(global, description);
    for line in skill.iter().flat_map(SkillContents::lines) {
        output::line(format_args!("  {}", output::clean_line(&line)));
    }
    let digest = package.sha256();
    output::line(format_args!("  {:<10} {digest}", "SHA-256"));
    match signed {
        Ok(_) => {
            output::line(format_args!(
                "\n{GREEN}ok{RESET} it is whole, and what its signer signed"
            ));
            Ok(Exit::Success)
        }
        Err(error) => Ok(report_refusal(global, place, &error)),
    }
}

/// Shows what a package says of itself.
fn describe(global: &Global, description: &PackageDescription) {
    output::line(format_args!(
        "{BOLD}{}{RESET}  {}",
        output::clean_line(&description.id()),
        output::clean_line(&shorten(&description.manifest.description, ROW))
    ));
    let row = |name: &str, value: &str| {
        let value = shorten(value, ROW);
        output::line(format_args!("  {name:<10} {}", output::clean_line(&value)));
    };
    row("kind", &description.manifest.kind);
    if let Some(license) = &description.license {
        row("licence", license);
    }
    for library in &description.libraries {
        let size = output::size(library.file.size);
        // A bundle of a program was compiled by nobody.
        let about = match library.compiler.is_empty() {
            true => size,
            false => format!("{size}, {}", library.compiler),
        };
        row("for", &format!("{} ({about})", library.target));
    }
    let files: Vec<&str> = description
        .files
        .iter()
        .map(|file| file.path.as_str())
        .collect();
    if !files.is_empty() {
        row("with", &files.join(", "));
    }
    for line in PluginDifference::of(None, &description.manifest).lines() {
        output::line(format_args!("  {}", output::clean_line(&line)));
    }
    for tool in &description.manifest.tools {
        row("tool", &format!("{}: {}", tool.name, tool.description));
    }
    match &description.signer {
        Some(signer) => row("signed by", &signer_name(global, signer)),
        None => row("signed by", "nobody"),
    }
}

/// A signer as the user knows it.
pub(crate) fn signer_name(global: &Global, signer: &SignerKey) -> String {
    let listed = signers(global).entries().unwrap_or_default();
    let known = listed
        .into_iter()
        .find(|known| known.key == signer.as_str());
    match known {
        Some(known) if known.name.is_empty() => format!("{signer}, trusted"),
        Some(known) => format!("{signer}, trusted as {}", known.name),
        None => signer.to_string(),
    }
}

async fn publish_package(global: &Global, path: &Path, place: &str) -> Result<Exit, CliError> {
    let package = Package::open(path)?;
    let there = publish(&package, place).await?;
    if global.json {
        output::json(&json!({ "published": there, "sha256": package.sha256() }));
        return Ok(Exit::Success);
    }
    output::line(format_args!(
        "{BOLD}{}{RESET} is at {}",
        output::clean(&package.description().id()),
        output::clean(&there)
    ));
    if package.signer().is_err() {
        output::line(format_args!(
            "{YELLOW}It is not signed{RESET}, so nobody can install it without `--unsigned`; `conjure \
             plugin sign` signs it"
        ));
    }
    Ok(Exit::Success)
}

async fn search(global: &Global, words: &[String], indexes: &IndexArgs) -> Result<Exit, CliError> {
    let places = indexes.locations();
    if places.is_empty() {
        return Err(CliError::usage("no index is known").hint(format!(
            "name one with `--index`, or set {}; `conjure plugin publish PACKAGE FOLDER` makes one",
            env::PLUGIN_INDEX
        )));
    }
    let mut found: Vec<IndexEntry> = Vec::new();
    let (mut looked, mut unread) = (Vec::new(), Vec::new());
    for place in &places {
        let index = match PluginIndex::read(place).await {
            Ok(index) => index,
            // One that is down or none holds up no other, where there is another.
            Err(error) if places.len() > 1 && error.is_of_index() => {
                unread.push(error);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        unread.extend(index.left_out());
        looked.push(index.location());
        for entry in index.search(words) {
            // An index that comes first is the one that is installed from.
            if found.iter().all(|known| known.name != entry.name) {
                found.push(entry.clone());
            }
        }
    }
    if looked.is_empty() && !unread.is_empty() {
        return Err(unread.swap_remove(0).into());
    }
    report_unread(global, &unread);
    if global.json {
        let unread: Vec<String> = unread.iter().map(ToString::to_string).collect();
        output::json(&json!({ "plugins": found, "unread": unread }));
        return Ok(match found.is_empty() {
            true => Exit::No,
            false => Exit::Success,
        });
    }
    if found.is_empty() {
        output::line(format_args!(
            "No plugin has these words; looked in {}",
            looked.join(", ")
        ));
        return Ok(Exit::No);
    }
    let mut rows = Table::new(["PLUGIN", "VERSION", "KIND", "SIGNED", "DESCRIPTION"]);
    for entry in &found {
        let cell = |text: &str| shorten(text, CELL);
        rows.row([
            cell(&entry.name),
            cell(&entry.version),
            cell(&entry.kind),
            match &entry.signer {
                Some(signer) => signer.as_str().chars().take(12).collect(),
                None => "no".to_owned(),
            },
            cell(&entry.description),
        ]);
    }
    rows.print();
    Ok(Exit::Success)
}

/// Says which indexes could not be read, or not as a whole: what they name is not among what was found.
pub(crate) fn report_unread(global: &Global, unread: &[PackageError]) {
    for error in unread.iter().filter(|_| !global.json) {
        output::print_note(format_args!(
            "{YELLOW}note:{RESET} an index was left out, or a part of it: {}",
            output::clean_line(&error.to_string())
        ));
    }
}

/// Whether a package was there and is not taken; else it could not be had.
pub(crate) fn is_refusal(error: &PackageError) -> bool {
    !matches!(
        error,
        PackageError::Fetch { .. }
            | PackageError::Unknown { .. }
            | PackageError::Publish { .. }
            | PackageError::Key(_)
    )
}

/// Says why a package is not taken.
pub(crate) fn report_refusal(global: &Global, place: &str, error: &PackageError) -> Exit {
    let place = redacted_location(place);
    super::plugin::report_refusal(global, Path::new(&place), &error.to_string())
}

impl From<PackageError> for CliError {
    fn from(error: PackageError) -> Self {
        Self::usage_from(error)
    }
}
