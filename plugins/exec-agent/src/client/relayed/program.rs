//! The program that is copied to where a relay is to be.

use std::borrow::Cow;
use std::sync::OnceLock;

use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex as AsyncMutex;

use super::scripts::AgentPath;

/// The agent as bytes, with what it is known by over there.
#[derive(Debug)]
pub struct AgentProgram {
    /// The program.
    pub bytes: Cow<'static, [u8]>,
    /// Whether it is for this plugin's own system and processor.
    pub is_native: bool,
    digest: OnceLock<String>,
    /// Lock that allows one copy at a time.
    pub copy_lock: AsyncMutex<()>,
}

impl AgentProgram {
    /// A program that was copied nowhere yet.
    #[must_use]
    pub fn new(bytes: Cow<'static, [u8]>, own: bool) -> Self {
        Self {
            bytes,
            is_native: own,
            digest: OnceLock::new(),
            copy_lock: AsyncMutex::default(),
        }
    }

    fn digest(&self) -> &str {
        self.digest.get_or_init(|| {
            let digest = Sha256::digest(&self.bytes);
            digest.iter().map(|byte| format!("{byte:02x}")).collect()
        })
    }

    /// Path of the program below a directory of the remote machine.
    #[must_use]
    pub fn path(&self, agent_dir: &str) -> String {
        format!("{agent_dir}/agent-{}", self.digest())
    }

    /// The program at a path over there, with the digest and the size to check.
    #[must_use]
    pub fn at_path<'p>(&'p self, path: &'p str) -> AgentPath<'p> {
        AgentPath {
            path,
            digest: self.digest(),
            size: self.bytes.len(),
        }
    }

    /// The system and the processor of this program, if `system` is another one.
    #[must_use]
    pub fn is_not_for(&self, system: &str) -> Option<String> {
        let own = format!("Linux {}", std::env::consts::ARCH);
        (self.is_native && system != own).then_some(own)
    }
}
