//! What a plugin must be and do, checked for its author before anybody else has it.
//!
//! [`Contract`] runs a plugin and holds it to what its kind promises: through the host's own loader, in
//! the host's process or in a worker. [`Judgement`] looks at its file and at what it says about its
//! tools, and runs nothing. Prints nothing and decides no exit code; whoever runs a contract does so in
//! a process that may end. Begin at `contract/mod.rs`.

mod contract;
mod judgement;

pub use contract::{
    CheckOutcome, Contract, ContractError, ContractOptions, DiscoveredTools, Verdict,
    check_hand_over, tools_of,
};
pub use judgement::{Finding, FindingLevel, Judgement, Licence};
