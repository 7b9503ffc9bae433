//! The checkpoint of the device manager, as a Go kubelet writes it.
use petiole::kubelet::fuzzing::{checkpoint_again, with_checksum};

/// An input is a checkpoint; a wrong checksum is set right.
pub fn run(bytes: &[u8]) {
    let corrected = with_checksum(bytes);
    let Some(written) = checkpoint_again(corrected.as_deref().unwrap_or(bytes)) else {
        return;
    };
    let again = checkpoint_again(&written).expect("what we write can be read");
    assert_eq!(written, again, "what was read is not what was written");
}
