//! Sessions: one conversation each, run by one actor. That of a session which is not saved is here,
//! those of saved sessions are the manager's; both drive an open thread.

mod actor;
mod after_log;
mod answer_wrapper;
mod approvals;
mod backend_conditions;
mod budget;
mod calls;
mod catalog_follower;
mod compaction;
mod current_settings;
mod deadline;
mod decisions;
mod derived;
mod ending;
mod error;
mod exchange_dir;
mod gather_window;
mod handle;
mod history;
mod host_state;
mod hub;
mod loaded_thread;
mod mailbox;
mod model;
mod model_requests;
mod open_thread;
mod opening;
mod outgoing_request;
mod output_form;
mod preview;
mod questions;
mod record_queue;
mod record_weight;
mod recorder;
mod repeated_name;
mod routed_call;
mod running_calls;
mod server_states;
mod session_dirs;
mod settings;
mod showing;
mod skill_lists;
mod switch_check;
mod table_notices;
mod table_updates;
mod thread_event;
mod thread_files;
mod thread_handle;
mod thread_name;
mod thread_resources;
mod tool_preview;
mod tools;
mod turn_summary;
mod turns;
mod unfinished_turn;
mod user_files;

pub(crate) use budget::PriorUsage;
pub use calls::ToolCallOptions;
pub use catalog_follower::Revision;
pub(crate) use compaction::{CompactionResult, check_unfold};
pub(crate) use deadline::wait_until;
pub(crate) use derived::{
    check_compact_at, compile_settings, room, turn_settings, visible_instructions,
};
pub(crate) use ending::end as end_thread;
pub(crate) use exchange_dir::sweep;
pub(crate) use history::recorded_working_dir;
pub(crate) use host_state::{HostParts, HostState};
pub(crate) use loaded_thread::LoadedThread;
pub(crate) use open_thread::OpenThread;
pub(crate) use opening::{SavedSessionState, open as open_thread};
pub(crate) use preview::Preview;
pub use preview::ServerTool;
pub(crate) use questions::{AnswerRefusal, Questions};
pub use questions::{PendingQuestion, QuestionReply};
pub(crate) use recorder::Recorder;
pub use server_states::BackendServers;
pub(crate) use session_dirs::{SessionDirs, sessions_dir};
pub(crate) use switch_check::check;
pub(crate) use thread_files::{
    fetch as fetch_files, fetch_backend, files as thread_files, find_cached,
};
pub(crate) use thread_handle::ThreadHandle;

pub use approvals::{ApprovalMode, PendingApproval};
pub use backend_conditions::BackendCondition;
pub use calls::ToolSession;
pub use compaction::{CompactError, UnfoldError};
pub use conjure_config::{
    BackendSpec, BudgetSpec, CompactAt, HttpSpec, LimitSpec, PermissionsSpec, PluginSpec,
    PolicySpec, ProviderSpec, SandboxMode, SandboxSpec, SessionSpec, SpecError, TimeoutSpec,
    WorkingDirAccess,
};
pub use error::{ChatError, SessionError};
pub use handle::Session;
pub use hub::{Stamped, Subscription};
pub use output_form::{BadOutputSchema, OutputForm};
pub use settings::SessionSettings;
pub use tool_preview::ToolPreview;
pub use turn_summary::TurnSummary;
pub(crate) use turns::TurnResult;
