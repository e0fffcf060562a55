//! Styles and script: in the program, under names that change with what is in them, so that a
//! browser keeps them for good.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use sha2::{Digest as _, Sha256};

/// The style sheets, in their order.
const STYLES: [&str; 3] = [
    include_str!("styles/base.css"),
    include_str!("styles/conversation.css"),
    include_str!("styles/manage.css"),
];
const SCRIPT: &str = include_str!("page.js");
const ICON: &str = include_str!("icon.svg");

/// A file with its name.
struct Asset {
    name: String,
    media_type: &'static str,
    text: String,
}

static ASSETS: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    [
        Asset::new("page", "css", "text/css; charset=utf-8", STYLES.concat()),
        Asset::new(
            "page",
            "js",
            "text/javascript; charset=utf-8",
            SCRIPT.to_owned(),
        ),
        Asset::new("icon", "svg", "image/svg+xml", ICON.to_owned()),
    ]
});

impl Asset {
    fn new(stem: &str, ending: &str, media_type: &'static str, text: String) -> Self {
        let hash = Sha256::digest(text.as_bytes());
        let hash: String = hash.iter().take(8).map(|b| format!("{b:02x}")).collect();
        Self {
            name: format!("{stem}-{hash}.{ending}"),
            media_type,
            text,
        }
    }
}

/// The styles themselves.
pub(crate) fn styles() -> String {
    STYLES.concat()
}

/// Where the styles are.
pub(crate) fn style_url() -> String {
    let [style, _, _] = &*ASSETS;
    format!("/assets/{}", style.name)
}

/// Where the script is.
pub(crate) fn script_url() -> String {
    let [_, script, _] = &*ASSETS;
    format!("/assets/{}", script.name)
}

/// Where the icon is.
pub(crate) fn icon_url() -> String {
    let [_, _, icon] = &*ASSETS;
    format!("/assets/{}", icon.name)
}

/// Serves them.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/assets/{name}", get(show))
}

async fn show(Path(name): Path<String>) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, asset.media_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    (headers, asset.text.as_str()).into_response()
}
