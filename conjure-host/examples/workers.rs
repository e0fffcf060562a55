//! Plugins in processes of their own: what ends a plugin's process ends no call of anybody else, and not this
//! program.
//!
//! `cargo run -p conjure-host --example workers -- PLUGIN_FILE TOOL COMMAND…`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use conjure_core::chat::FunctionCall;
use conjure_host::Host;
use conjure_host::plugin::{Isolation, WorkerOptions, worker_main};
use conjure_host::session::SessionSpec;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// What tells this program that it is to be a worker.
const WORKER: &str = "plugin-host";

/// First of all, while there is one thread: a worker is this very program.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|first| first == WORKER) {
        worker_main(args);
    }
    tokio::runtime::Runtime::new()?.block_on(host())
}

async fn host() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(file), Some(tool)) = (args.next(), args.next()) else {
        return Err("usage: workers PLUGIN_FILE TOOL COMMAND…".into());
    };
    let data = tempfile::tempdir()?;
    let host = Host::builder()
        .data_dir(data.path())
        .plugin_file(file)
        .workers(WorkerOptions::new(std::env::current_exe()?, &[WORKER]))
        .build()
        .await?;
    for plugin in host.registry().snapshot().plugins() {
        let isolated = plugin.isolation() == Isolation::Process;
        println!("{} in a process of its own: {isolated}", plugin.id());
    }
    let calls = host.calls(SessionSpec::calls(&[], None)).await?;
    for command in args {
        let call = FunctionCall {
            call_id: format!("call-{command}"),
            name: tool.clone(),
            arguments: json!({ "command": command }),
            arguments_text: None,
        };
        let report = calls.call(&call, &CancellationToken::new()).await?;
        println!("{command}: {}", report.output.joined_text());
    }
    calls.close().await;
    Ok(())
}
