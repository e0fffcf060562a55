//! The demo's third backend: a container where an engine runs, a hosted skill where there is a key,
//! or none.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::repo;

/// The image that `conjure docker build` makes.
const IMAGE: &str = "conjure-workspace";
/// What has the key for hosted skills.
const KEY: &str = "ANTHROPIC_API_KEY";

/// The backend that makes something to pass on of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Wish {
    /// A container where an engine runs, else a hosted skill where there is a key, else nobody
    Auto,
    /// A container
    Docker,
    /// A hosted skill of Anthropic's, which costs a little money
    Hosted,
    /// Nobody
    None,
}

/// A third backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ThirdBackend {
    /// A container with this image.
    Docker { image: String },
    /// A hosted skill.
    Hosted,
}

impl ThirdBackend {
    /// The package of its plugin.
    pub(crate) fn package(&self) -> &'static str {
        match self {
            Self::Docker { .. } => "conjure-backend-docker",
            Self::Hosted => "conjure-backend-anthropic",
        }
    }

    /// What it adds to the session.
    pub(crate) fn fragment(&self, demo: &Path) -> Result<String> {
        let (name, more) = match self {
            Self::Docker { image } => ("docker.toml", format!("config.image = {image:?}\n")),
            Self::Hosted => ("hosted.toml", String::new()),
        };
        let path = demo.join("third").join(name);
        let text = std::fs::read_to_string(&path);
        let text = text.with_context(|| format!("`{}` cannot be read", path.display()))?;
        Ok(text + &more)
    }

    /// The one that was wished for and is there; of one that is not there it is said why.
    pub(crate) fn choose(wish: Wish, image: Option<&str>) -> Result<Option<Self>> {
        let has_key = std::env::var_os(KEY).is_some_and(|key| !key.is_empty());
        let hosted = || has_key.then_some(Self::Hosted);
        Ok(match wish {
            Wish::None => None,
            Wish::Docker => Some(Self::Docker {
                image: image.unwrap_or(IMAGE).to_owned(),
            }),
            Wish::Hosted => Some(hosted().with_context(|| format!("`{KEY}` is not set"))?),
            Wish::Auto if answers(&["version"]) => Some(Self::Docker {
                image: image.unwrap_or(IMAGE).to_owned(),
            }),
            Wish::Auto => {
                let third = hosted();
                if third.is_none() {
                    eprintln!(
                        "No third backend: no container engine answers, and `{KEY}` is not set."
                    );
                }
                third
            }
        })
    }

    /// Makes it usable: builds the image where it is missing. False where that cannot be done.
    pub(crate) fn is_ready(&self, host: &Path) -> bool {
        let Self::Docker { image } = self else {
            return true;
        };
        if answers(&["image", "inspect", image]) {
            return true;
        }
        if image == IMAGE && repo::run(Command::new(host).args(["docker", "build"])).is_ok() {
            return true;
        }
        eprintln!(
            "No third backend: the engine has no image `{image}` and it could not be made; name \
             another one, any with a shell, by `--image NAME`."
        );
        false
    }
}

/// Whether the engine's own command line succeeds.
fn answers(arguments: &[&str]) -> bool {
    let program = PathBuf::from("docker");
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
