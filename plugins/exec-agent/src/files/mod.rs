//! Files of a session: which paths it may touch, showing, writing and replacing, and what a
//! command changed.
//!
//! Used by the agent inside a container and by the executor of this machine, so that both say and
//! refuse the same. Knows no stream and no plugin.

mod beneath;
mod changes;
mod directory;
mod edit;
mod inline;
mod location;
mod paths;
mod resolved_skill_dirs;
mod view;

pub use beneath::{OpenFile, open, open_file};
pub use changes::{DirectorySnapshot, FileChange, FileChanges, file_state};
pub use edit::{WrittenFile, create_file, str_replace};
pub use inline::{TEXT_BUDGET, drop_start, json_len};
pub use location::DirectoryLocation;
pub use paths::{CallRoots, RootKind, RootedPath};
pub use resolved_skill_dirs::ResolvedSkillDirs;
pub use view::{PathView, view};
