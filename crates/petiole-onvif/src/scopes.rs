//! Reads the values of ONVIF scopes, such as `onvif://www.onvif.org/name/Front%20Door`. Pure.
use percent_encoding::percent_decode_str;

const PREFIX: &str = "onvif://www.onvif.org/";
/// The longest value, in bytes. Beyond it: the scope has no value.
const VALUE_MAX: usize = 256;

/// Returns the values of the scopes of a kind, such as `name`, `hardware` or `location`, decoded.
pub fn scope_values(scopes: &[String], kind: &str) -> Vec<String> {
    let value = |scope: &String| {
        let own = scope.get(..PREFIX.len())?;
        let rest = scope.get(PREFIX.len()..)?;
        let (found, value) = rest.split_once('/')?;
        let is_it = own.eq_ignore_ascii_case(PREFIX) && found.eq_ignore_ascii_case(kind);
        let value = is_it.then(|| percent_decode_str(value).decode_utf8().ok())??;
        let is_plain = !value.is_empty() && value.len() <= VALUE_MAX;
        (is_plain && !value.chars().any(char::is_control)).then(|| value.into_owned())
    };
    scopes.iter().filter_map(value).collect()
}

/// Returns whether a scope is one of ONVIF.
pub(crate) fn is_onvif(scope: &str) -> bool {
    let own = scope.get(..PREFIX.len());
    own.is_some_and(|own| own.eq_ignore_ascii_case(PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_a_kind_are_decoded() {
        let scopes = [
            "onvif://www.onvif.org/name/Front%20Door",
            "onvif://www.onvif.org/location/country/china",
            "ONVIF://www.onvif.org/Location/city/x%2",
            "onvif://www.onvif.org/Profile/Streaming",
            "onvif://www.onvif.org/hardware/%00",
            "http://a/name/b",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
        ]
        .map(str::to_owned);
        assert_eq!(scope_values(&scopes, "name"), ["Front Door"]);
        assert_eq!(
            scope_values(&scopes, "location"),
            ["country/china", "city/x%2"]
        );
        assert_eq!(scope_values(&scopes, "hardware"), [""; 0]);
    }
}
