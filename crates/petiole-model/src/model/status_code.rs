//! Tells the answers of the API server that refuse a request from those that do not. Pure.

/// Returns whether an answer with this code refuses nothing: the API server has too many requests at a time or an error of its
/// own, or does not accept the token, and may accept the next one.
pub fn is_busy(code: u16) -> bool {
    matches!(code, 401 | 408 | 429 | 500..)
}
