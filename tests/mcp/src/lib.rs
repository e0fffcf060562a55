//! Conjure against other people's MCP programs: see the tests.
