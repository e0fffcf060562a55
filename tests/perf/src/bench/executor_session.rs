//! A session of an executor, as a host has one: warm commands in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use conjure_host::plugin::{CallOptions, Instance, emit_channel};
use conjure_skill_sdk::protocol::{Bash, BashOutput, Empty, ExecutorInit, Request, op};
use serde::Serialize;

use crate::measured::PluginFixture;
use crate::samples::{Samples, us};

/// How often a command is measured, and how often it is not before that.
pub(super) const ROUNDS: usize = 600;
const WARM_UP: usize = 50;

/// A session of an executor.
pub(super) struct Session {
    instance: Arc<Instance>,
    working_dir: String,
    exchange_dir: String,
}

impl Session {
    pub(super) async fn new(place: &PluginFixture, instance: Arc<Instance>) -> Result<Self> {
        let made = |name: &str| -> Result<String> {
            let dir = place.root.path().join(name);
            conjure_host::fs::create_private_dir(&dir)?;
            Ok(dir.canonicalize()?.display().to_string())
        };
        let session = Self {
            instance,
            working_dir: made("work")?,
            exchange_dir: made("exchange")?,
        };
        let init = session.request(ExecutorInit::default())?;
        session
            .instance
            .request(op::EXECUTOR_INIT, init, CallOptions::default())
            .await?;
        Ok(session)
    }

    /// Ends it.
    pub(super) async fn end(&self) -> Result<()> {
        let request = self.request(Empty {})?;
        let ended = self
            .instance
            .request(op::EXECUTOR_CLEANUP, request, CallOptions::default());
        ended.await?;
        Ok(())
    }

    /// Milliseconds of a command, called again and again with so much time between.
    pub(super) async fn timed(&self, command: &str, rest: Option<Duration>) -> Result<Samples> {
        let mut samples = Samples::default();
        for round in 0..WARM_UP + ROUNDS {
            if let Some(rest) = rest {
                tokio::time::sleep(rest).await;
            }
            let begun = Instant::now();
            self.bash(command).await?;
            if round >= WARM_UP {
                samples.push(us(begun.elapsed()) / 1_000.0);
            }
        }
        Ok(samples)
    }

    pub(super) async fn bash(&self, command: &str) -> Result<BashOutput> {
        let json = self.request(Bash {
            command: command.to_owned(),
            keep_bytes: Some(16 * 1024),
            ..Bash::default()
        })?;
        let (sink, mut stream) = emit_channel();
        let options = CallOptions {
            sink: Some(sink),
            ..CallOptions::default()
        };
        let answer = self.instance.request(op::EXECUTOR_BASH, json, options);
        tokio::pin!(answer);
        let reply = loop {
            tokio::select! {
                biased;
                Some(_) = stream.next() => {}
                answer = &mut answer => break answer?,
            }
        };
        let output: BashOutput = serde_json::from_slice(&reply)?;
        ensure!(
            output.exit_code == Some(0),
            "the command failed: {output:?}"
        );
        Ok(output)
    }

    fn request<B: Serialize>(&self, body: B) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(&Request {
            session: Some("perf".to_owned()),
            working_dir: Some(self.working_dir.clone()),
            exchange_dir: Some(self.exchange_dir.clone()),
            deadline_ms: 30_000,
            ..Request::new(body)
        })?)
    }
}
