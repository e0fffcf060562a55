//! What a browser remembers of how the page is to look.

use axum::Router;
use axum::extract::Form;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use axum::routing::post;
use serde::Deserialize;

use crate::request::{PageRequest, THEME_COOKIE, Theme};
use crate::respond::go_to;

#[derive(Deserialize)]
struct ThemeChoice {
    theme: String,
    /// Where the person was.
    #[serde(default)]
    back: String,
}

pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/preferences/theme", post(choose))
}

async fn choose(request: PageRequest, Form(choice): Form<ThemeChoice>) -> Response {
    // A path of this server and nothing that could be read as another one.
    let is_path = choice.back.starts_with('/') && !choice.back.starts_with("//");
    let back = match is_path && !choice.back.contains('\\') {
        true => choice.back.as_str(),
        false => "/",
    };
    let mut response = go_to(&request, back);
    let theme = Theme::of(&choice.theme).unwrap_or_default();
    let cookie = format!(
        "{THEME_COOKIE}={}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict",
        theme.as_str()
    );
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
