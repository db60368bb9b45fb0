//! Numbers as they are sent and taken.

use model::overflow::UNLIMITED;

/// To a millionth, which is more than is measured, so that a line is no longer than it has to be. JSON has no others than finite ones.
pub(super) fn rounded(value: f64) -> f64 {
    if !value.is_finite() {
        return 0.0;
    }
    let rounded = (value * 1e6).round() / 1e6;
    if rounded.is_finite() { rounded } else { value }
}

/// The same for requests per second, within what is taken.
pub(super) fn sent_rate(value: f64) -> f64 {
    rounded(value).clamp(0.0, UNLIMITED)
}

/// The same for parts of a whole.
pub(super) fn sent_share(value: f64) -> f64 {
    rounded(value).clamp(0.0, 1.0)
}

/// Requests per second.
pub(super) fn rate(value: f64) -> Result<f64, String> {
    within(value, UNLIMITED)
}

pub(super) fn within(value: f64, most: f64) -> Result<f64, String> {
    if (0.0..=most).contains(&value) { Ok(value) } else { Err(format!("a number is not between 0 and {most}")) }
}
