//! Writes the WS-UsernameToken of a SOAP request: a digest of the password, a nonce and the time of the device. Pure.
use crate::xml::escaped;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha1::{Digest as _, Sha1};

/// Writes the header element (OASIS Web Services Security UsernameToken Profile 1.0, 3.1).
pub(crate) fn security(user: &str, password: &str, nonce: &[u8], created: &str) -> String {
    let digest = digest(password, nonce, created);
    format!(
        r#"<wsse:Security s:mustUnderstand="1" xmlns:wsse="http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd" xmlns:wsu="http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd"><wsse:UsernameToken><wsse:Username>{}</wsse:Username><wsse:Password Type="http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-username-token-profile-1.0#PasswordDigest">{digest}</wsse:Password><wsse:Nonce EncodingType="http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-soap-message-security-1.0#Base64Binary">{}</wsse:Nonce><wsu:Created>{created}</wsu:Created></wsse:UsernameToken></wsse:Security>"#,
        escaped(user),
        STANDARD.encode(nonce),
    )
}

fn digest(password: &str, nonce: &[u8], created: &str) -> String {
    let mut sha1 = Sha1::new();
    sha1.update(nonce);
    sha1.update(created.as_bytes());
    sha1.update(password.as_bytes());
    STANDARD.encode(sha1.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_onvifs_programmers_guide() {
        let nonce = STANDARD.decode("LKqI6G/AikKCQrN0zqZFlg==").unwrap();
        let digest = digest("userpassword", &nonce, "2010-09-16T07:50:45Z");
        assert_eq!(digest, "tuOSpGlFlIXsozq4HFNeeGeFLEI=");
    }

    #[test]
    fn a_name_cannot_end_its_element() {
        let text = security("a</wsse:Username>", "p", b"n", "t");
        assert!(
            text.contains("a&lt;/wsse:Username&gt;</wsse:Username>"),
            "{text}"
        );
        assert!(!text.contains(">p<"));
    }
}
