//! What an error of the transport means for the request and its connection.

use std::error::Error as StdError;

use rmcp::transport::streamable_http_client::{InsufficientScopeError, StreamableHttpError};

use super::HttpTransportError;
use super::post::ForbiddenAnswer;
use crate::failure::{Failure, chain};
use crate::request_failure::RequestFailure;

/// What it means. A request that failed says nothing of the others on its connection; only a
/// session that the server has forgotten ends that.
pub(crate) fn judge(server: &str, error: &(dyn StdError + 'static)) -> RequestFailure {
    let failed = |why: String| {
        RequestFailure::Failed(Failure::BadAnswer {
            server: server.to_owned(),
            why,
        })
    };
    let needs_auth = |why: &str| {
        RequestFailure::Failed(Failure::NeedsAuth {
            server: server.to_owned(),
            why: why.to_owned(),
        })
    };
    let Some(error) = error.downcast_ref::<HttpTransportError>() else {
        return RequestFailure::ConnectionLost(chain(error));
    };
    match error {
        StreamableHttpError::AuthRequired(_) => needs_auth("it answered with HTTP 401"),
        StreamableHttpError::InsufficientScope(challenge) if lacks_scope(challenge) => {
            RequestFailure::Failed(Failure::MissingScope {
                server: server.to_owned(),
                scope: challenge.get_required_scope().map(str::to_owned),
                why: "it answered with HTTP 403".to_owned(),
            })
        }
        StreamableHttpError::InsufficientScope(_) => needs_auth("it answered with HTTP 403"),
        StreamableHttpError::Auth(why) => RequestFailure::Unsent(chain(why)),
        StreamableHttpError::Client(why) if why.is_connect() => RequestFailure::Unsent(chain(why)),
        StreamableHttpError::Client(why) => RequestFailure::NoAnswer(chain(why)),
        StreamableHttpError::HttpStatus(status) if status.status == 429 => {
            let wait = status.retry_after.as_deref();
            let wait = wait.map(|wait| format!(", and wants to be left alone for {wait} s"));
            RequestFailure::Failed(Failure::NotReady {
                server: server.to_owned(),
                why: format!("it has too many requests{}", wait.unwrap_or_default()),
            })
        }
        StreamableHttpError::HttpStatus(_)
        | StreamableHttpError::UnexpectedServerResponse(_)
        | StreamableHttpError::UnexpectedContentType(_)
        | StreamableHttpError::ResponseBodyTooLarge { .. }
        | StreamableHttpError::Deserialize(_)
        | StreamableHttpError::ReservedHeaderConflict(_) => failed(error.to_string()),
        StreamableHttpError::Io(io) => match ForbiddenAnswer::from_error(io) {
            Some(forbidden) => needs_auth(&forbidden.to_string()),
            None => RequestFailure::NoAnswer(chain(error)),
        },
        StreamableHttpError::Sse(_)
        | StreamableHttpError::UnexpectedEndOfStream
        | StreamableHttpError::ControlRequestTimeout => RequestFailure::NoAnswer(chain(error)),
        _ => RequestFailure::ConnectionLost(chain(error)),
    }
}

/// Whether a refusal is for want of a right. Some refuse bad credentials in the same way.
fn lacks_scope(challenge: &InsufficientScopeError) -> bool {
    let said = &challenge.www_authenticate_header;
    challenge.can_upgrade() || said.contains("insufficient_scope")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_refusal_is_known_by_its_status_and_not_by_what_the_server_says() {
        let told = "ask the owner".to_owned();
        let forbidden = io::Error::other(ForbiddenAnswer { body_start: told });
        let RequestFailure::Failed(Failure::NeedsAuth { why, .. }) =
            judge("docs", &HttpTransportError::from(forbidden))
        else {
            panic!("a server that forbids wants somebody to log in");
        };
        assert!(why.contains("HTTP 403 Forbidden: ask the owner"), "{why}");
        let other = "HTTP 400 Bad Request: response: HTTP 403";
        let other = HttpTransportError::UnexpectedServerResponse(other.into());
        assert!(matches!(
            judge("docs", &other),
            RequestFailure::Failed(Failure::BadAnswer { .. })
        ));
    }
}
