//! A server over standard input and output.
//!
//! The two streams are taken away before any plugin is loaded, so what a plugin reads or prints is
//! not the client's.

use std::sync::Arc;

use rmcp::service::QuitReason;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::clients::ClientSessions;
use super::handler::McpHandler;
use super::passthrough::PassthroughTransport;
use super::{McpHost, ServeError};

impl McpHost {
    /// Serves the one client at the other end of two streams, until it closes its end or the token
    /// is cancelled. Everything that its session started is ended then.
    ///
    /// # Errors
    /// [`ServeError::Stream`] when the streams break.
    pub async fn serve_streams<R, W>(
        self,
        read: R,
        write: W,
        end: CancellationToken,
    ) -> Result<(), ServeError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let clients = ClientSessions::new(self.common, 1);
        let handler = McpHandler::new(Arc::clone(&clients), false);
        let longest = clients.common.options.max_message_bytes;
        let transport = AsyncRwTransport::new_server(read, write).with_max_line_length(longest);
        let transport = PassthroughTransport(transport);
        let served = rmcp::service::serve_server_with_ct(handler, transport, end.clone()).await;
        let ended = match served {
            Ok(running) => match running.waiting().await {
                Ok(QuitReason::JoinError(error)) => Err(ServeError::Stream {
                    reason: error.to_string(),
                }),
                Ok(_) => Ok(()),
                Err(error) => Err(ServeError::Stream {
                    reason: error.to_string(),
                }),
            },
            // A client that goes without a word is no failure.
            Err(
                rmcp::service::ServerInitializeError::ConnectionClosed(_)
                | rmcp::service::ServerInitializeError::Cancelled,
            ) => Ok(()),
            Err(error) => Err(ServeError::Stream {
                reason: error.to_string(),
            }),
        };
        clients.close().await;
        ended
    }
}
