//! Tests of the mock itself: a bare TCP client reads what is really on the socket.
//!
//! One program, so that it links once.

#[cfg(test)]
mod binary;
#[cfg(test)]
mod bulk;
#[cfg(test)]
mod cassettes;
#[cfg(test)]
mod client;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod framing;
#[cfg(test)]
mod gates;
#[cfg(test)]
mod hosted;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod models;
#[cfg(test)]
mod script;
#[cfg(test)]
mod sidecars;
#[cfg(test)]
mod switching;
#[cfg(test)]
mod validator;
#[cfg(test)]
mod wires;
