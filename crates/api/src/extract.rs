//! What a request asks for, read as axum reads it; what cannot be read is a no as all others are.

use std::error::Error;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::objects::Failure;

/// The variables of the path. What is no UTF-8 behind its percent signs is none.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let read = axum::extract::Path::from_request_parts(parts, state).await;
        let bad = |error| Failure::new(StatusCode::BAD_REQUEST, "BadPath", reason(&error));
        read.map(|axum::extract::Path(read)| Self(read)).map_err(bad)
    }
}

/// What stands behind `?`. A parameter that nobody knows is a mistake of whoever typed it: `T` denies unknown fields.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let read = axum::extract::Query::from_request_parts(parts, state).await;
        let bad = |error| Failure::new(StatusCode::BAD_REQUEST, "BadQuery", reason(&error));
        read.map(|axum::extract::Query(read)| Self(read)).map_err(bad)
    }
}

/// Of a request that takes no parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// JSON.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let bad = |error: JsonRejection| {
            let (status, code) = match error.status() {
                StatusCode::PAYLOAD_TOO_LARGE => (StatusCode::PAYLOAD_TOO_LARGE, "TooLarge"),
                StatusCode::UNSUPPORTED_MEDIA_TYPE => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "NotJson"),
                _ => (StatusCode::BAD_REQUEST, "Malformed"),
            };
            Failure::new(status, code, reason(&error))
        };
        Json::from_request(request, state).await.map(|Json(read)| Self(read)).map_err(bad)
    }
}

/// The innermost says what is wrong; those around it, which part of axum was reading.
fn reason(mut error: &dyn Error) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
