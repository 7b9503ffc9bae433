//! Bounds TXT records. Pure.

/// The most bytes of a TXT record. The variables that a container gets fit. Beyond it: its further strings are left out.
const TXT_MAX: usize = 4352;

/// Returns the strings that fit into [`TXT_MAX`] bytes.
pub(super) fn first_strings(bytes: &[u8]) -> &[u8] {
    let mut end = bytes.len();
    if end > TXT_MAX {
        end = 0;
        while let Some(next) = bytes.get(end).map(|length| end + 1 + usize::from(*length))
            && next <= TXT_MAX
        {
            end = next;
        }
    }
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_txt_record_the_strings_that_fit_are_read() {
        let long = [&[200][..], &[b'x'; 200]].concat();
        let whole = [long.repeat(21), vec![3], b"a=b".to_vec()].concat();
        assert!(whole.len() <= TXT_MAX && whole.len() + long.len() > TXT_MAX);
        for rest in [0, 1, 20] {
            let data = [whole.clone(), long.repeat(rest)].concat();
            assert_eq!(first_strings(&data), whole);
        }
    }
}
