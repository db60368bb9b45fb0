//! What pages need beside themselves: all of it is in the binary.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::agents::to_hex;

const FILES: [(&str, &str, &str); 3] = [
    ("style.css", "text/css; charset=utf-8", include_str!("assets/style.css")),
    ("live.js", "text/javascript; charset=utf-8", include_str!("assets/live.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// Their digests, in the same order: another build's files have others.
static TAGS: LazyLock<[String; FILES.len()]> = LazyLock::new(|| {
    FILES.map(|(.., text)| {
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        to_hex(&digest.as_ref()[..8])
    })
});

/// Where a page finds a file. With the digest in it, browsers may keep what they have for as long as they like.
pub(super) fn path(file: &str) -> String {
    let tag = FILES.iter().position(|(name, ..)| *name == file).map_or("", |place| &TAGS[place]);
    format!("/assets/{file}?{tag}")
}

pub(super) async fn send(Path(file): Path<String>, headers: HeaderMap) -> Response {
    let Some(place) = FILES.iter().position(|(name, ..)| *name == file) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let (_, kind, text) = FILES[place];
    let tag = format!("\"{}\"", TAGS[place]);
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let fields = [
        (header::ETAG, tag),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CONTENT_TYPE, kind.to_owned()),
    ];
    if known { (StatusCode::NOT_MODIFIED, fields).into_response() } else { (fields, text).into_response() }
}
