//! A session's way to the remote machine: the agent is copied there once, its relay is started,
//! and every connection says who comes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use conjure_exec_agent::executor::SessionCalls;
use conjure_exec_agent::relay::{RELAY_VERSION, RelayFrame};
use conjure_process_tree::frame::Frames;
use conjure_skill_sdk::Cx;
use conjure_skill_sdk::abi::LogLevel;
use conjure_skill_sdk::protocol::SkillMount;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

use crate::config::SshSettings;
use crate::explain::{Explained, explained, is_crowded};
use crate::session::BackendState;
use crate::skills;
use crate::ssh::SshProcess;
use crate::ssh_command::{AgentPath, attach_script, copy_script, open_script};
use crate::stream::KeptStream;

/// How many connections to a machine are made at once: a server begins to refuse some when ten log in
/// together (`MaxStartups`), and others log in there too.
const LOGINS: u32 = 6;
/// How often one is tried that such a server has refused, and how long the first wait is.
const CROWDED: u32 = 6;
const CROWDED_WAIT: Duration = Duration::from_millis(150);
/// How long a relay may take to answer, the end of an agent before included.
const ANSWERS: Duration = Duration::from_secs(40);

/// The agent that is copied to remote machines.
#[derive(Debug)]
pub(crate) struct AgentProgram {
    pub(crate) bytes: Cow<'static, [u8]>,
    /// Whether it is of this plugin's own system and processor.
    pub(crate) own: bool,
    digest: OnceLock<String>,
    /// One copy at a time.
    pub(crate) copying: AsyncMutex<()>,
}

impl AgentProgram {
    pub(crate) fn new(bytes: Cow<'static, [u8]>, own: bool) -> Self {
        Self {
            bytes,
            own,
            digest: OnceLock::new(),
            copying: AsyncMutex::default(),
        }
    }

    fn digest(&self) -> &str {
        self.digest.get_or_init(|| {
            let digest = Sha256::digest(&self.bytes);
            digest.iter().map(|byte| format!("{byte:02x}")).collect()
        })
    }

    fn path(&self, settings: &SshSettings) -> String {
        format!("{}/agent-{}", settings.agent_dir, self.digest())
    }

    fn at<'p>(&'p self, path: &'p str) -> AgentPath<'p> {
        AgentPath {
            path,
            digest: self.digest(),
            size: self.bytes.len(),
        }
    }
}

/// The remote machine, as one session has it.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) settings: Arc<SshSettings>,
    pub(crate) agent: Arc<AgentProgram>,
    /// The session's directory there.
    pub(crate) dir: String,
    /// What only this session says.
    token: String,
    pub(crate) skills: Vec<SkillMount>,
    pub(crate) calls: Arc<SessionCalls>,
    /// Of the instance: logs what no call is there for.
    cx: Cx,
}

/// A connection over which a stream goes on.
#[derive(Debug)]
pub(crate) struct Relayed {
    pub(crate) process: SshProcess,
    pub(crate) frames: Frames,
}

impl Machine {
    pub(crate) fn new(
        world: &BackendState,
        dir: String,
        skills: Vec<SkillMount>,
        calls: Arc<SessionCalls>,
    ) -> Self {
        Self {
            settings: Arc::clone(&world.settings),
            agent: Arc::clone(&world.agent),
            cx: world.cx.clone(),
            dir,
            token: uuid::Uuid::new_v4().simple().to_string(),
            skills,
            calls,
        }
    }

    /// Tells whoever waits for a call of the session, and the log.
    pub(crate) fn tell(&self, text: &str) {
        self.cx.log(LogLevel::Warn, text);
        self.calls.tell(text);
    }

    /// Begins a stream, with an agent of its own.
    pub(crate) async fn open(&self, stream: &KeptStream) -> Result<Relayed, Explained> {
        let process = self.with_agent(&self.open_script()).await?;
        let mut connection = Relayed::new(process);
        let answered = self.greet(&mut connection, stream).await;
        let answered = match answered {
            Some(RelayFrame::Vacant) => self.begin(&mut connection).await?,
            answered => answered,
        };
        match answered {
            Some(RelayFrame::Welcome(0)) => Ok(connection),
            other => Err(self.unwelcome(connection, other).await),
        }
    }

    /// Another connection to a stream, and how far that was read over there.
    pub(crate) async fn attach(&self, stream: &KeptStream) -> Result<(Relayed, u64), Explained> {
        let agent = self.agent.path(&self.settings);
        let script = attach_script(&self.agent.at(&agent), &self.dir);
        let process = self.with_agent(&script).await?;
        let mut connection = Relayed::new(process);
        match self.greet(&mut connection, stream).await {
            Some(RelayFrame::Welcome(received)) => Ok((connection, received)),
            Some(RelayFrame::Vacant) => Err(Explained::gone(&self.settings)),
            other => Err(self.unwelcome(connection, other).await),
        }
    }

    /// Ends and removes everything over there, where no stream goes on. False when nobody says so.
    pub(crate) async fn close(&self) -> bool {
        let Ok(process) = self.with_agent(&self.open_script()).await else {
            return false;
        };
        let mut connection = Relayed::new(process);
        let hello = self.greet(&mut connection, &KeptStream::new()).await;
        if !matches!(hello, Some(RelayFrame::Vacant)) {
            return false;
        }
        connection.say(&RelayFrame::Close).await;
        matches!(connection.hear().await, Some(RelayFrame::Closed))
    }

    fn open_script(&self) -> String {
        let agent = self.agent.path(&self.settings);
        let waits = self.settings.waits_seconds();
        open_script(&self.agent.at(&agent), &self.dir, waits)
    }

    /// Runs a script over there that needs the agent, which is copied where it is not there, or is
    /// not what it was.
    async fn with_agent(&self, script: &str) -> Result<SshProcess, Explained> {
        let mut process = self.run(script, None).await?;
        if process.mark.starts_with("wanted") {
            drop(process);
            let _copying = self.agent.copying.lock().await;
            // Another session may have copied it meanwhile.
            process = self.run(script, None).await?;
            if let Some(system) = process.mark.strip_prefix("wanted") {
                self.check(system.trim())?;
                drop(process);
                self.copy().await?;
                process = self.run(script, None).await?;
            }
        }
        if process.mark != "there" {
            let text = "removes or changes the agent as soon as it is copied there; see what \
                        cleans up in `agent_dir`, or name another one";
            return Err(Explained::lasting(&self.settings, text));
        }
        Ok(process)
    }

    /// Runs a script over there. A server that has too many logins at once is asked again.
    async fn run(&self, script: &str, first: Option<&[u8]>) -> Result<SshProcess, Explained> {
        let mut tries = 1;
        loop {
            let run = {
                let logins = self.logins();
                // Whoever was refused comes again without company of ours.
                let alone = if tries > 1 { LOGINS } else { 1 };
                let _login = logins.acquire_many(alone).await;
                SshProcess::run(&self.settings, script, first).await
            };
            match run {
                Ok(process) => return Ok(process),
                Err(failure) if tries < CROWDED && is_crowded(&failure) => {
                    tokio::time::sleep(jittered(CROWDED_WAIT * tries)).await;
                    tries += 1;
                }
                Err(failure) => return Err(explained(&self.settings, &failure)),
            }
        }
    }

    /// Those who may log in there at once, from all sessions of this process.
    fn logins(&self) -> Arc<Semaphore> {
        static LOGINS_OF: LazyLock<Mutex<HashMap<String, Arc<Semaphore>>>> =
            LazyLock::new(Mutex::default);
        let mut all = LOGINS_OF.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("{} {:?}", self.settings.host, self.settings.port);
        let made = || Arc::new(Semaphore::new(LOGINS as usize));
        Arc::clone(all.entry(name).or_insert_with(made))
    }

    /// Whether the agent is one for that system and that processor.
    fn check(&self, system: &str) -> Result<(), Explained> {
        let own = format!("Linux {}", std::env::consts::ARCH);
        if !self.agent.own || system == own {
            return Ok(());
        }
        let text = format!(
            "is {system}, and this plugin brings an agent for {own} only: name one for it with \
             `agent` in the configuration of this backend"
        );
        Err(Explained::lasting(&self.settings, &text))
    }

    /// Copies the agent there.
    async fn copy(&self) -> Result<(), Explained> {
        let path = self.agent.path(&self.settings);
        let bytes = &self.agent.bytes;
        self.tell(&format!(
            "copying the agent to {} ({:.1} MB, once)",
            self.settings.host,
            bytes.len() as f64 / 1e6
        ));
        let script = copy_script(&self.settings.agent_dir, &self.agent.at(&path));
        self.run(&script, Some(bytes)).await.map(drop)
    }

    async fn greet(&self, connection: &mut Relayed, stream: &KeptStream) -> Option<RelayFrame> {
        let hello = RelayFrame::Hello {
            version: RELAY_VERSION,
            token: self.token.clone(),
            stream: stream.number,
            received: stream.received(),
        };
        connection.say(&hello).await;
        connection.hear().await
    }

    /// Sends what a session needs over there.
    async fn begin(&self, connection: &mut Relayed) -> Result<Option<RelayFrame>, Explained> {
        let sent = skills::send(&self.skills, connection).await;
        if let Err(error) = sent {
            // Whoever refuses what comes says why.
            if let Some(refused @ RelayFrame::Refused(_)) = connection.hear().await {
                return Ok(Some(refused));
            }
            let text = format!("cannot get the session's skills: {error}");
            return Err(Explained::refused(&self.settings, &text));
        }
        let begin = RelayFrame::Begin(self.settings.working_dir.clone());
        connection.say(&begin).await;
        Ok(connection.hear().await)
    }

    /// Why somebody who came is not let in.
    async fn unwelcome(&self, connection: Relayed, said: Option<RelayFrame>) -> Explained {
        match said {
            Some(RelayFrame::Refused(why)) => {
                let hint = match why.as_str() {
                    why if why.contains("to work in") => {
                        ": make it there, let the user in, or name another `working_dir`"
                    }
                    why if why.contains("No space left") => {
                        ": make room, or name another directory with `scratch_dir`"
                    }
                    _ => "",
                };
                let text = format!("does not take the session: {why}{hint}");
                Explained::refused(&self.settings, &text)
            }
            _ => explained(&self.settings, &connection.process.end().await),
        }
    }
}

/// About so long, so that many who wait do not come back together.
pub(crate) fn jittered(time: Duration) -> Duration {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    let thousandths = u32::try_from(random % 1_000).unwrap_or_default();
    time / 2 + time * thousandths / 1_000
}

impl Relayed {
    fn new(mut process: SshProcess) -> Self {
        let mut frames = Frames::default();
        frames.push(&std::mem::take(&mut process.rest));
        Self { process, frames }
    }

    async fn say(&mut self, frame: &RelayFrame) {
        // Where nobody hears it, nothing comes back.
        let _ = self.send(&frame.encode()).await;
    }

    /// Sends what was encoded.
    pub(crate) async fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        match self.process.ends().0 {
            Some(input) => input.write_all(frame).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// What the relay answers; nothing when the connection is over or nothing comes.
    async fn hear(&mut self) -> Option<RelayFrame> {
        let hearing = async {
            loop {
                if let Some(frame) = self.frames.next_frame().ok()? {
                    return RelayFrame::decode(frame).ok();
                }
                let mut buffer = Vec::with_capacity(1024);
                match self.process.ends().1.read_buf(&mut buffer).await {
                    Ok(1..) => self.frames.push(&buffer),
                    Ok(0) | Err(_) => return None,
                }
            }
        };
        tokio::time::timeout(ANSWERS, hearing).await.ok().flatten()
    }
}
