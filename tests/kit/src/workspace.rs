//! A directory for one test: a home, a place to work, a place for plugins. Gone with its last clone.
//!
//! Knows nothing of what is put into it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::KitError;

/// The packages of the plugins that come with the program, which the program trusts.
pub const SHIPPED_PLUGINS: [&str; 7] = [
    "conjure-backend-anthropic",
    "conjure-backend-docker",
    "conjure-backend-kubernetes",
    "conjure-backend-local",
    "conjure-backend-mcp",
    "conjure-backend-ssh",
    "conjure-skill-log-fetcher",
];

/// A temporary directory with what a program needs around it. Clones share it.
#[derive(Clone, Debug)]
pub struct Workspace {
    root: PathBuf,
    _owner: Arc<TempDir>,
}

impl Workspace {
    /// Makes the directory and its parts.
    ///
    /// # Errors
    /// When the system's temporary directory cannot be written.
    pub fn new() -> Result<Self, KitError> {
        let owner = tempfile::Builder::new()
            .prefix("conjure-")
            .tempdir()
            .map_err(KitError::file(std::env::temp_dir()))?;
        // Programs print resolved paths; on macOS the temporary directory is behind a link.
        let root = owner
            .path()
            .canonicalize()
            .map_err(KitError::file(owner.path()))?;
        for part in ["home", "work", "plugins", "run", "tmp"] {
            let path = root.join(part);
            private_dir(&path).map_err(KitError::file(path))?;
        }
        Ok(Self {
            root,
            _owner: Arc::new(owner),
        })
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `HOME` of the programs that run here.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// The working directory of the programs that run here.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// The plugin directory of the programs that run here.
    #[must_use]
    pub fn plugins(&self) -> PathBuf {
        self.root.join("plugins")
    }

    /// Puts a plugin of the workspace, built when it is needed, into [`Workspace::plugins`]. One that comes
    /// with the program is trusted, as where the program is installed.
    ///
    /// # Errors
    /// As [`crate::build_plugin`], or when it cannot be copied.
    pub fn add_plugin(&self, package: &str) -> Result<PathBuf, KitError> {
        let library = crate::build_plugin(package)?;
        if SHIPPED_PLUGINS.contains(&package) {
            self.trust(&self.data_dir(), &library)?;
        }
        self.add_library(&library)
    }

    /// The data directory of programs that run here without another one.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.home().join(".local/share/conjure")
    }

    /// Lists a library as trusted, for hosts with this data directory.
    ///
    /// # Errors
    /// When it cannot be read, or the list not be written.
    pub fn trust(&self, data_dir: &Path, library: &Path) -> Result<(), KitError> {
        let bytes = fs::read(library).map_err(KitError::file(library))?;
        let digest: String = Sha256::digest(&bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        fs::DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(data_dir)
            .map_err(KitError::file(data_dir))?;
        let list = data_dir.join("trusted-plugins");
        let file = fs::File::options().create(true).append(true).open(&list);
        file.and_then(|mut file| writeln!(file, "{digest}"))
            .map_err(KitError::file(&list))
    }

    /// Puts a library into [`Workspace::plugins`], at once: it is never there in part.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn add_library(&self, library: &Path) -> Result<PathBuf, KitError> {
        let path = self.plugins().join(library.file_name().unwrap_or_default());
        let part = self.root.join("tmp").join("library.part");
        fs::copy(library, &part).map_err(KitError::file(&part))?;
        fs::rename(&part, &path).map_err(KitError::file(&path))?;
        Ok(path)
    }

    /// Writes a skill folder under [`Workspace::work`], its name and description being the front
    /// matter.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_skill(
        &self,
        dir: &str,
        name: &str,
        description: &str,
        body: &str,
    ) -> Result<PathBuf, KitError> {
        let text = format!("---\nname: {name}\ndescription: {description}\n---\n\n{body}\n");
        self.write(Path::new(dir).join("SKILL.md"), text)?;
        Ok(self.work().join(dir))
    }

    /// Writes a file under [`Workspace::work`], with the directories on its way.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(
        &self,
        path: impl AsRef<Path>,
        content: impl AsRef<[u8]>,
    ) -> Result<PathBuf, KitError> {
        let path = self.work().join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(KitError::file(parent))?;
        }
        fs::write(&path, content).map_err(KitError::file(&path))?;
        Ok(path)
    }

    /// The token of servers in this workspace, once one was started.
    ///
    /// # Errors
    /// [`KitError`] when there is none yet.
    pub fn http_token(&self) -> Result<String, KitError> {
        let token = self.read(self.home().join(".local/share/conjure/http-token"))?;
        Ok(token.trim().to_owned())
    }

    /// Reads a text file under [`Workspace::work`].
    ///
    /// # Errors
    /// When it is not there or is not UTF-8.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<String, KitError> {
        let path = self.work().join(path);
        fs::read_to_string(&path).map_err(KitError::file(path))
    }

    /// Every file under [`Workspace::work`], relative to it, sorted.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn files(&self) -> Result<Vec<PathBuf>, KitError> {
        let base = self.work();
        let mut found = Vec::new();
        let mut open = vec![base.clone()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(&directory).map_err(KitError::file(&directory))? {
                let entry = entry.map_err(KitError::file(&directory))?;
                let kind = entry.file_type().map_err(KitError::file(entry.path()))?;
                if kind.is_dir() {
                    open.push(entry.path());
                } else {
                    found.extend(entry.path().strip_prefix(&base).map(Path::to_owned));
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Only for its owner: what runs here refuses directories that others can write.
fn private_dir(path: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}
