//! Gives `fuzz/` access to the private parts of the adapter. Nothing else uses this file.
pub use super::rewriter::MOST_HELD;
use super::{header_block, rewriter::Rewriter};

/// The output of the adapter for one connection.
#[derive(Debug)]
pub struct Rewritten {
    /// The bytes that the server reads.
    pub bytes: Vec<u8>,
    /// The most bytes that were held back at one time.
    pub held: usize,
}

/// Returns the bytes that the server reads if the connection arrives in these pieces.
pub fn rewritten<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Rewritten {
    let mut rewriter = Rewriter::new();
    let mut rewritten = Rewritten {
        bytes: vec![],
        held: 0,
    };
    for piece in pieces {
        rewriter.push(piece);
        rewritten.held = rewritten.held.max(rewriter.held_len());
        drain(&mut rewriter, &mut rewritten.bytes);
    }
    rewriter.finish();
    drain(&mut rewriter, &mut rewritten.bytes);
    rewritten
}

/// Returns the header block with a legal authority, or `None` if it had no illegal one.
pub fn with_legal_authority(block: &[u8]) -> Option<Vec<u8>> {
    header_block::with_legal_authority(block)
}

fn drain(rewriter: &mut Rewriter, out: &mut Vec<u8>) {
    while !rewriter.readable().is_empty() {
        let readable = rewriter.readable();
        out.extend(readable);
        rewriter.consume(readable.len());
    }
}
