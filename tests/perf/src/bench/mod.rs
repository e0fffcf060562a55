//! The benchmarks, one a file.
//!
//! Each prepares what it needs, measures, and returns its figures. It runs alone in its process.

mod boundary;
mod docker_command;
mod executor_session;
mod file_live;
mod history;
mod hot_add_load;
mod in_place;
mod load;
mod loaded;
mod local_command;
mod mcp_call;
mod mcp_gateway;
mod mcp_hot_add;
mod mcp_overlap;
mod oci_live;
mod one_shot;
mod ordinary;
mod overlap;
mod routing_build;
mod routing_lookup;
mod serve;
mod source_live;
mod ssh_command;
mod streams;
mod template;
mod terminal;
mod version;
mod wire_decode;
mod wire_encode;
mod worker;

use anyhow::Result;

use crate::figure::Figure;
use crate::shipped::{BenchArtifacts, Need};

/// A benchmark.
pub(crate) struct Benchmark {
    pub(crate) name: &'static str,
    /// The names of its figures.
    pub(crate) figures: &'static [&'static str],
    pub(crate) needs: &'static [Need],
    /// Whether it takes minutes, so that it runs by name only.
    pub(crate) slow: bool,
    pub(crate) run: fn(&BenchArtifacts) -> Result<Vec<Figure>>,
}

/// All of them, in the order in which they run.
pub(crate) const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "boundary",
        figures: &["boundary"],
        needs: &[Need::Skill],
        slow: false,
        run: boundary::run,
    },
    Benchmark {
        name: "in_place",
        figures: &["in_place"],
        needs: &[Need::Skill],
        slow: false,
        run: in_place::run,
    },
    Benchmark {
        name: "ordinary",
        figures: &["ordinary"],
        needs: &[Need::Skill],
        slow: false,
        run: ordinary::run,
    },
    Benchmark {
        name: "worker",
        figures: &["worker_call", "worker_call_p99", "worker_start"],
        needs: &[Need::Skill, Need::Program],
        slow: false,
        run: worker::run,
    },
    Benchmark {
        name: "load",
        figures: &["load", "load_executor", "load_memory"],
        needs: &[Need::Skill, Need::Local],
        slow: false,
        run: load::run,
    },
    Benchmark {
        name: "hot_add_load",
        figures: &["hot_add_load", "hot_add_load_time"],
        needs: &[Need::Skill],
        slow: false,
        run: hot_add_load::run,
    },
    Benchmark {
        name: "local_command",
        figures: &["local_command", "local_command_program"],
        needs: &[Need::Local],
        slow: false,
        run: local_command::run,
    },
    Benchmark {
        name: "docker_command",
        figures: &["docker_command", "docker_command_ratio"],
        needs: &[Need::Docker],
        slow: false,
        run: docker_command::run,
    },
    Benchmark {
        name: "ssh_command",
        figures: &["ssh_command"],
        needs: &[Need::Ssh],
        slow: false,
        run: ssh_command::run,
    },
    Benchmark {
        name: "routing_build",
        figures: &["routing_build"],
        needs: &[],
        slow: false,
        run: routing_build::run,
    },
    Benchmark {
        name: "routing_lookup",
        figures: &["routing_lookup"],
        needs: &[],
        slow: false,
        run: routing_lookup::run,
    },
    Benchmark {
        name: "version",
        figures: &["version", "version_memory", "version_size"],
        needs: &[Need::Program],
        slow: false,
        run: version::run,
    },
    Benchmark {
        name: "one_shot",
        figures: &[
            "one_shot_anthropic",
            "one_shot_anthropic_memory",
            "one_shot_openai",
            "one_shot_openai_memory",
            "one_shot_executor",
            "one_shot_executor_memory",
        ],
        needs: &[Need::Program, Need::Local],
        slow: false,
        run: one_shot::run,
    },
    Benchmark {
        name: "one_shot_plugins",
        figures: &["one_shot_plugins", "one_shot_plugins_memory"],
        needs: &[Need::Program, Need::Bundled],
        slow: false,
        run: one_shot::run_beside_plugins,
    },
    Benchmark {
        name: "overlap",
        figures: &["overlap", "overlap_memory_log"],
        needs: &[Need::Skill, Need::Local],
        slow: false,
        run: overlap::run,
    },
    Benchmark {
        name: "mcp_call",
        figures: &["mcp_call"],
        needs: &[Need::Mcp],
        slow: false,
        run: mcp_call::run,
    },
    Benchmark {
        name: "mcp_gateway",
        figures: &["mcp_gateway", "mcp_gateway_ratio"],
        needs: &[Need::Program, Need::Mcp],
        slow: false,
        run: mcp_gateway::run,
    },
    Benchmark {
        name: "mcp_hot_add",
        figures: &["mcp_hot_add"],
        needs: &[Need::Skill],
        slow: false,
        run: mcp_hot_add::run,
    },
    Benchmark {
        name: "mcp_overlap",
        figures: &["mcp_overlap"],
        needs: &[Need::Skill, Need::Local, Need::Mcp],
        slow: false,
        run: mcp_overlap::run,
    },
    Benchmark {
        name: "template",
        figures: &[
            "template_clean",
            "template_clean_cpu",
            "template_incremental",
            "template_size",
        ],
        needs: &[Need::Program],
        slow: true,
        run: template::run,
    },
    Benchmark {
        name: "source_live",
        figures: &["source_live"],
        needs: &[Need::Program],
        slow: true,
        run: source_live::run,
    },
    Benchmark {
        name: "file_live",
        figures: &["file_live"],
        needs: &[Need::Program, Need::Skill],
        slow: false,
        run: file_live::run,
    },
    Benchmark {
        name: "oci_live",
        figures: &["oci_live"],
        needs: &[Need::Program, Need::Skill],
        slow: false,
        run: oci_live::run,
    },
    Benchmark {
        name: "serve",
        figures: &["serve_ready", "serve_idle"],
        needs: &[Need::Program],
        slow: false,
        run: serve::run,
    },
    Benchmark {
        name: "loaded",
        figures: &["session_idle"],
        needs: &[],
        slow: false,
        run: loaded::run,
    },
    Benchmark {
        name: "delta",
        figures: &["delta_cpu", "delta_cpu_paced"],
        needs: &[],
        slow: false,
        run: streams::run_cpu,
    },
    Benchmark {
        name: "terminal",
        figures: &[
            "terminal_first_frame",
            "terminal_resume",
            "terminal_stream",
            "terminal_echo",
            "terminal_memory",
        ],
        needs: &[Need::Program],
        slow: false,
        run: terminal::run,
    },
    Benchmark {
        name: "history",
        figures: &["last_page", "last_page_again", "fork", "fork_size"],
        needs: &[],
        slow: false,
        run: history::run,
    },
    Benchmark {
        name: "streams",
        figures: &["streams_lag", "streams_cores"],
        needs: &[],
        slow: false,
        run: streams::run_lag,
    },
    Benchmark {
        name: "wire_decode",
        figures: &[
            "wire_decode_anthropic",
            "wire_decode_openai_responses",
            "wire_decode_openai_chat",
            "wire_decode_gemini",
            "wire_decode_all",
            "wire_allocations_anthropic",
            "wire_allocations_openai_responses",
            "wire_allocations_openai_chat",
            "wire_allocations_gemini",
            "wire_allocations_all",
        ],
        needs: &[Need::Allocations],
        slow: false,
        run: wire_decode::run,
    },
    Benchmark {
        name: "wire_encode",
        figures: &[
            "wire_encode_anthropic",
            "wire_encode_openai_responses",
            "wire_encode_openai_chat",
            "wire_encode_gemini",
        ],
        needs: &[],
        slow: false,
        run: wire_encode::run,
    },
];

/// Runs a benchmark on a runtime like the program's.
fn on_runtime(
    work: impl Future<Output = Result<Vec<Figure>>> + Send + 'static,
) -> Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    // A task of the runtime's, as the host's calls are.
    let done = runtime.block_on(runtime.spawn(work))?;
    runtime.shutdown_background();
    done
}
