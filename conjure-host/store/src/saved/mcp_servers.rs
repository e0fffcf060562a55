//! MCP servers: settings that sessions choose from.

use async_recursion::async_recursion as boxed;

use crate::{Store, StoreError};

use super::{JsonText, after_ms, new_id, now_ms, table_row};

/// An MCP server. Unique by name.
#[derive(Debug, Clone, PartialEq)]
pub struct McpServer {
    /// Id of the server.
    pub id: String,
    /// Name of the server.
    pub name: String,
    /// Settings of the server, in the shape of the session file; a JSON object.
    pub settings: JsonText,
    /// Whether sessions may choose the server.
    pub enabled: bool,
    /// When it was made, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When it was last changed, in milliseconds since 1970.
    pub updated_at_ms: i64,
}

table_row!(McpServer: "MCP server", "mcp_servers", [
    id,
    name,
    settings,
    enabled,
    created_at_ms,
    updated_at_ms,
]);

impl McpServer {
    /// A new MCP server, not saved yet.
    pub fn new(name: impl Into<String>, settings: serde_json::Value, enabled: bool) -> Self {
        let now = now_ms();
        Self {
            id: new_id(),
            name: name.into(),
            settings: JsonText(settings),
            enabled,
            created_at_ms: now,
            updated_at_ms: now,
        }
    }
}

impl Store {
    /// Saves a new MCP server.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`], and what the database says.
    #[boxed]
    pub async fn create_mcp_server(&self, server: McpServer) -> Result<McpServer, StoreError> {
        let name = server.name.clone();
        self.insert(server, &name).await
    }

    /// An MCP server.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    #[boxed]
    pub async fn mcp_server(&self, id: &str) -> Result<McpServer, StoreError> {
        self.get(id).await
    }

    /// At most `limit` MCP servers behind the id `after`, the oldest first.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn mcp_servers(
        &self,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<McpServer>, StoreError> {
        self.list(after, limit).await
    }

    /// Saves an MCP server over the one with its id, as it was read.
    ///
    /// # Errors
    /// [`StoreError::Changed`] when it was changed since, [`StoreError::NotFound`],
    /// [`StoreError::NameTaken`], and what the database says.
    #[boxed]
    pub async fn update_mcp_server(&self, server: McpServer) -> Result<McpServer, StoreError> {
        let name = server.name.clone();
        let seen_ms = server.updated_at_ms;
        let server = McpServer {
            updated_at_ms: after_ms(seen_ms),
            ..server
        };
        self.update_if_unchanged(server, &name, seen_ms).await
    }

    /// Removes an MCP server. Sessions that chose it have a copy of their own.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    #[boxed]
    pub async fn delete_mcp_server(&self, id: &str) -> Result<(), StoreError> {
        self.delete::<McpServer>(id).await
    }
}
