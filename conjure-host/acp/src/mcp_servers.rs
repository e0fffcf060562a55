//! MCP servers that a client wants a session to have, as the session's settings say it.

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::McpServer;
use serde_json::{Map, Value, json};

use super::error::invalid;

/// The servers by name.
pub(crate) fn settings(servers: &[McpServer]) -> Result<Map<String, Value>, Error> {
    let mut settings = Map::new();
    for server in servers {
        let (name, value) = match server {
            McpServer::Stdio(stdio) => {
                let env = stdio.env.iter();
                let env: Map<String, Value> = env
                    .map(|variable| (variable.name.clone(), variable.value.clone().into()))
                    .collect();
                let value = json!({
                    "command": stdio.command.display().to_string(),
                    "args": stdio.args,
                    "env": env,
                });
                (&stdio.name, value)
            }
            McpServer::Http(http) => {
                let headers = http.headers.iter();
                let headers: Map<String, Value> = headers
                    .map(|header| (header.name.clone(), header.value.clone().into()))
                    .collect();
                (&http.name, json!({ "url": http.url, "headers": headers }))
            }
            McpServer::Sse(sse) => {
                return Err(invalid(format!(
                    "the MCP server `{}` speaks over SSE, which is not supported; give its \
                     streamable HTTP endpoint",
                    sse.name
                )));
            }
            _ => {
                return Err(invalid(
                    "an MCP server has a transport that is not supported; there are stdio and http",
                ));
            }
        };
        if settings.insert(name.clone(), value).is_some() {
            return Err(invalid(format!("two MCP servers are named `{name}`")));
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{
        EnvVariable, HttpHeader, McpServerHttp, McpServerSse, McpServerStdio,
    };

    use super::*;

    #[test]
    fn servers_of_both_transports_become_settings() {
        let stdio = McpServerStdio::new("notes", "/bin/notes")
            .args(vec!["--quiet".to_owned()])
            .env(vec![EnvVariable::new("MODE", "small")]);
        let http = McpServerHttp::new("tracker", "https://tracker.example/mcp")
            .headers(vec![HttpHeader::new("x-team", "a")]);
        let servers = [McpServer::Stdio(stdio), McpServer::Http(http)];
        assert_eq!(
            Value::Object(settings(&servers).unwrap()),
            json!({
                "notes": { "command": "/bin/notes", "args": ["--quiet"], "env": { "MODE": "small" } },
                "tracker": { "url": "https://tracker.example/mcp", "headers": { "x-team": "a" } },
            })
        );
    }

    #[test]
    fn what_cannot_be_is_said() {
        let sse = McpServer::Sse(McpServerSse::new("old", "https://old.example/sse"));
        let error = settings(&[sse]).unwrap_err();
        assert!(error.message.contains("`old` speaks over SSE"), "{error:?}");
        let twice = [
            McpServer::Stdio(McpServerStdio::new("a", "/bin/a")),
            McpServer::Http(McpServerHttp::new("a", "https://a.example")),
        ];
        let error = settings(&twice).unwrap_err();
        assert_eq!(error.message, "two MCP servers are named `a`");
    }
}
