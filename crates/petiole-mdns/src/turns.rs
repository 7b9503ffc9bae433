//! Decides in which order sockets are read. Pure.
use super::link::Family;

/// The interface and the address family of a socket.
pub(super) type SocketKey = (u32, Family);

/// Returns the sockets in the order in which they are read: those after `last` first, `last` at the end.
pub(super) fn in_turn<'a>(
    keys: impl Iterator<Item = &'a SocketKey>,
    last: Option<SocketKey>,
) -> Vec<SocketKey> {
    let (before, mut after): (Vec<SocketKey>, Vec<SocketKey>) = keys
        .copied()
        .partition(|key| last.is_some_and(|last| *key <= last));
    after.extend(before);
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_has_its_turn_after_the_one_that_was_read_last() {
        let keys = [
            (1, Family::V4),
            (1, Family::V6),
            (2, Family::V4),
            (7, Family::V6),
        ];
        for (last, first) in [
            (None, 0),
            (Some((1, Family::V4)), 1),
            (Some((1, Family::V6)), 2),
            (Some((2, Family::V4)), 3),
            (Some((7, Family::V6)), 0),
            // It was closed meanwhile.
            (Some((3, Family::V4)), 3),
        ] {
            let expected: Vec<SocketKey> = [&keys[first..], &keys[..first]].concat();
            assert_eq!(in_turn(keys.iter(), last), expected, "{last:?}");
        }
    }
}
