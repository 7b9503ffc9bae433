//! Computes digests for names. Pure.
use blake2::{Blake2b, Digest as _, digest::consts::U8};

/// Returns 16 hexadecimal digits of these words. Words that are joined differently have different digests.
pub(crate) fn digest(words: &[&str]) -> String {
    let mut hash = Blake2b::<U8>::new();
    for word in words {
        hash.update((word.len() as u64).to_be_bytes());
        hash.update(word);
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}
