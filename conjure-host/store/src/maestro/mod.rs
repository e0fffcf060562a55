//! What another application keeps: sessions, chats and saved authentications of the-maestro, read
//! out of its PostgreSQL database and written into this one.
//!
//! There a row of the history is a snapshot: it holds every message of its thread up to then. So a
//! thread is the newest snapshot that can be read, with the turns counted anew. Nothing is ever
//! written there. What cannot be carried over is counted.

mod chat;
mod plan;
mod report;
mod settings;
mod source;
mod threads;
mod write;

use std::collections::BTreeMap;

use async_recursion::async_recursion as boxed;
use secrecy::SecretString;

use crate::StoreError;

pub use report::{Left, LeftOut, MaestroReport};
pub use write::MaestroChoices;

use source::{Fields, MaestroSource};
use threads::MaestroThread;

/// Content of the-maestro's database at one moment.
pub struct Maestro {
    auths: Vec<MaestroAuth>,
    sessions: Vec<Fields>,
    agents: BTreeMap<String, Fields>,
    /// Texts of base prompts, by their ids.
    prompts: BTreeMap<String, String>,
    personas: Vec<MaestroPersona>,
    /// Prompts of other kinds, which nothing here stands for.
    other_prompts: u64,
    servers: BTreeMap<String, Fields>,
    /// Ids of servers, by the ids of sessions that they are attached to.
    attached_servers: BTreeMap<String, Vec<String>>,
    threads: Vec<MaestroThread>,
}

/// A persona of Maestro, with the id that agents refer to.
struct MaestroPersona {
    id: String,
    name: String,
    version: String,
    text: String,
}

/// A saved authentication there.
pub struct MaestroAuth {
    /// Id in the-maestro.
    pub id: String,
    /// The provider, such as `openai`.
    pub provider: String,
    /// Name of the authentication there.
    pub name: String,
    /// What is sent.
    pub secret: MaestroSecret,
    /// When it ends, in milliseconds since 1970.
    pub expires_at_ms: Option<i64>,
}

/// A credential there.
pub enum MaestroSecret {
    /// A key.
    ApiKey(SecretString),
    /// A token of an OAuth login; nothing here renews it.
    Token(SecretString),
    /// A credential that cannot be read, and why.
    Unreadable(&'static str),
}

impl Maestro {
    /// Reads all of it in one transaction that may not write.
    ///
    /// # Errors
    /// [`StoreError::BadLocation`] when the URL is none of PostgreSQL, or what is there is not the
    /// database of that application; what the database says.
    #[boxed]
    pub async fn read(url: &SecretString) -> Result<Self, StoreError> {
        let source = MaestroSource::open(url).await?;
        let read = Self::read_from(&source).await;
        source.close().await;
        read
    }

    async fn read_from(source: &MaestroSource) -> Result<Self, StoreError> {
        let sessions = source.table(settings::SESSIONS).await?;
        let agents = source.table(settings::AGENTS).await?;
        let prompts = source.table(settings::PROMPTS).await?;
        let servers = source.table(settings::SERVERS).await?;
        let mut attached: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in source.table(settings::ATTACHED).await? {
            if let (Some(session), Some(server)) =
                (row.text("session_id"), row.text("mcp_server_id"))
            {
                let of_session = attached.entry(session.to_owned()).or_default();
                of_session.push(server.to_owned());
            }
        }
        let (personas, other_prompts) = settings::personas(source).await?;
        let text = |row: &Fields| Some((row.text("id")?.into(), row.text("prompt_text")?.into()));
        Ok(Self {
            auths: settings::auths(&source.table(settings::AUTHS).await?),
            personas,
            other_prompts,
            sessions,
            agents: by_id(agents),
            prompts: prompts.iter().filter_map(text).collect(),
            servers: by_id(servers),
            attached_servers: attached,
            threads: threads::read(source).await?,
        })
    }

    /// The saved authentications there.
    pub fn auths(&self) -> &[MaestroAuth] {
        &self.auths
    }
}

fn by_id(rows: Vec<Fields>) -> BTreeMap<String, Fields> {
    let id = |row: &Fields| row.text("id").map(str::to_owned);
    rows.into_iter()
        .filter_map(|row| Some((id(&row)?, row)))
        .collect()
}
