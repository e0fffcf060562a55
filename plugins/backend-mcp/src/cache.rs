//! What servers listed at an earlier time, so that a session need not wait for them, and a lazy
//! server has tools before it runs. Nothing depends on it.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::connection::Era;
use crate::listing::Listing;
use crate::server::Server;

/// The most bytes of what is kept of a server.
const MOST: usize = 4 * 1024 * 1024;

/// A directory with a file a server.
#[derive(Debug)]
pub(crate) struct Cache(Option<PathBuf>);

#[derive(Serialize, Deserialize)]
struct Kept {
    modern: bool,
    tools: Vec<Value>,
    #[serde(default)]
    instructions: Option<String>,
}

impl Cache {
    /// Below the plugin's own directory; without one nothing is kept.
    pub(crate) fn new(data_dir: Option<&str>) -> Self {
        Self(data_dir.map(|dir| Path::new(dir).join("servers")))
    }

    /// What a server listed. Which era it speaks is asked again: it may be a newer one now. What
    /// cannot be read is not there.
    pub(crate) fn load(&self, server: &Server) -> Option<Listing> {
        let bytes = std::fs::read(self.path(server)?).ok()?;
        let kept: Kept = serde_json::from_slice(&bytes).ok()?;
        let era = if kept.modern {
            Era::Modern
        } else {
            Era::Legacy
        };
        Some(Listing::of_tools(
            kept.tools,
            kept.instructions,
            server,
            era,
        ))
    }

    /// Keeps what a server listed.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn save(&self, server: &Server, era: Era, listing: &Listing) -> io::Result<()> {
        let Some(path) = self.path(server) else {
            return Ok(());
        };
        let raw = |tool: &crate::listing::Tool| tool.decl.meta.as_ref()?.get("mcp").cloned();
        let kept = Kept {
            modern: era == Era::Modern,
            tools: listing.tools.iter().filter_map(raw).collect(),
            instructions: listing.instructions.clone(),
        };
        let bytes = serde_json::to_vec(&kept)?;
        if bytes.len() > MOST {
            return Ok(());
        }
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let new = path.with_extension(format!("new-{}", std::process::id()));
        std::fs::write(&new, bytes)?;
        std::fs::rename(&new, &path)
    }

    fn path(&self, server: &Server) -> Option<PathBuf> {
        // The hash has the names of secrets and nothing that was made of the secrets themselves.
        Some(self.0.as_ref()?.join(format!("{}.json", server.hash)))
    }
}
