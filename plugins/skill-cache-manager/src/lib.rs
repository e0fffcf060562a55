//! A native skill that keeps a cache for a session.

use conjure_skill_sdk::protocol::Execute;
use conjure_skill_sdk::{Skill, export_skill};

fn skill() -> Skill {
    Skill::new("cache-manager", "Manages the application cache")
        .execute("get K", |_cx, c: Execute| c.command)
}

export_skill!(skill, name = "cache-manager");
