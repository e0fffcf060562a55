//! The SDK from a plugin author's and from a host's side, through the real ABI object and
//! through frames, with equal results. No library is loaded here: that is the host's test.

#[cfg(test)]
mod arguments;
#[cfg(test)]
mod attribute;
#[cfg(test)]
mod docker_like;
#[cfg(test)]
mod every_operation;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod frames;
#[cfg(test)]
mod frozen;
#[cfg(test)]
mod hosted_like;
#[cfg(test)]
mod lifetimes;
#[cfg(test)]
mod mcp_like;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod schemas;
#[cfg(test)]
mod skill_lists;
