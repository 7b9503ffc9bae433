//! HTTP Digest authentication (RFC 7616): reads a challenge, and writes the answer. Pure.
use md5::{Digest as _, Md5};
use sha2::Sha256;

/// The longest challenge, in bytes. Beyond it: it is ignored.
const CHALLENGE_MAX: usize = 2048;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hash {
    Md5,
    Sha256,
}

/// A challenge that can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Challenge {
    hash: Hash,
    is_session: bool,
    realm: String,
    nonce: String,
    opaque: Option<String>,
    /// True if the quality of protection is `auth`; without one the answer is that of RFC 2069.
    has_quality: bool,
    /// The name of the algorithm as the server writes it, if it does.
    algorithm: Option<String>,
    /// The number of answers to it.
    used: u32,
}

/// The request that is authenticated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Authenticated<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) client_nonce: &'a str,
}

impl Challenge {
    /// Returns the strongest challenge of these `WWW-Authenticate` headers.
    pub(crate) fn of(headers: &[String]) -> Option<Self> {
        let fit = headers
            .iter()
            .filter(|header| header.len() <= CHALLENGE_MAX);
        let all = fit.flat_map(|header| challenges(header));
        all.max_by_key(|challenge| challenge.hash)
    }

    fn new(parameters: &[(String, String)]) -> Option<Self> {
        let value = |name: &str| {
            let found = parameters.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.clone())
        };
        let algorithm = value("algorithm");
        let name = algorithm.as_deref().unwrap_or("MD5").to_ascii_lowercase();
        let (name, is_session) = match name.strip_suffix("-sess") {
            Some(name) => (name.to_owned(), true),
            None => (name, false),
        };
        let hash = match name.as_str() {
            "md5" => Hash::Md5,
            "sha-256" => Hash::Sha256,
            _ => return None,
        };
        let quality = value("qop");
        let has_auth = |quality: &String| {
            let mut names = quality.split([',', ' ']);
            names.any(|name| name.eq_ignore_ascii_case("auth"))
        };
        // Of `auth-int` alone there is nothing that we could answer.
        let has_quality = match &quality {
            Some(quality) if !quality.is_empty() => has_auth(quality).then_some(true)?,
            Some(_) | None => false,
        };
        Some(Self {
            hash,
            is_session,
            realm: value("realm").unwrap_or_default(),
            nonce: value("nonce")?,
            opaque: value("opaque"),
            has_quality,
            algorithm,
            used: 0,
        })
    }

    /// Writes the header `Authorization`.
    pub(crate) fn answer(&mut self, request: &Authenticated<'_>) -> String {
        let Authenticated {
            user,
            password,
            method,
            path,
            client_nonce,
        } = *request;
        self.used += 1;
        let count = format!("{:08x}", self.used);
        let (realm, nonce) = (&self.realm, &self.nonce);
        let secret = self.hex(&format!("{user}:{realm}:{password}"));
        let secret = if self.is_session {
            self.hex(&format!("{secret}:{nonce}:{client_nonce}"))
        } else {
            secret
        };
        let what = self.hex(&format!("{method}:{path}"));
        let response = if self.has_quality {
            self.hex(&format!(
                "{secret}:{nonce}:{count}:{client_nonce}:auth:{what}"
            ))
        } else {
            self.hex(&format!("{secret}:{nonce}:{what}"))
        };
        let mut header = format!(
            "Digest username={}, realm={}, nonce={}, uri={}, response=\"{response}\"",
            quoted(user),
            quoted(realm),
            quoted(nonce),
            quoted(path),
        );
        let mut add = |text: String| header.push_str(&text);
        if let Some(algorithm) = &self.algorithm {
            add(format!(", algorithm={algorithm}"));
        }
        if let Some(opaque) = &self.opaque {
            add(format!(", opaque={}", quoted(opaque)));
        }
        if self.has_quality {
            add(format!(
                ", qop=auth, nc={count}, cnonce={}",
                quoted(client_nonce)
            ));
        } else if self.is_session {
            add(format!(", cnonce={}", quoted(client_nonce)));
        }
        header
    }

    fn hex(&self, text: &str) -> String {
        let bytes = match self.hash {
            Hash::Md5 => Md5::digest(text.as_bytes()).to_vec(),
            Hash::Sha256 => Sha256::digest(text.as_bytes()).to_vec(),
        };
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn quoted(text: &str) -> String {
    let plain = text.chars().filter(|c| !c.is_control());
    let escaped: String = plain
        .flat_map(|c| ['\\', c].into_iter().skip(usize::from(!"\"\\".contains(c))))
        .collect();
    format!("\"{escaped}\"")
}

/// Returns the Digest challenges of a header. It may have several, of other schemes too.
fn challenges(header: &str) -> Vec<Challenge> {
    let mut found = vec![];
    let mut parameters: Option<Vec<(String, String)>> = None;
    let mut rest = header.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c == ',' || c.is_whitespace());
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        let after = after.trim_start();
        match after.strip_prefix('=') {
            Some(value) => {
                let (value, after) = value_of(value.trim_start());
                if let Some(parameters) = &mut parameters {
                    parameters.push((word.to_ascii_lowercase(), value));
                }
                rest = after;
            }
            None => {
                if !word.is_empty() {
                    found.extend(parameters.take().and_then(|p| Challenge::new(&p)));
                    parameters = word.eq_ignore_ascii_case("Digest").then(Vec::new);
                }
                rest = after;
            }
        }
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
    }
    found.extend(parameters.and_then(|p| Challenge::new(&p)));
    found
}

/// Splits a value, which may be quoted, from the rest.
fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c: char| c == ',' || c.is_whitespace());
        let (value, rest) = text.split_at(end.unwrap_or(text.len()));
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            character => value.push(character),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REQUEST: Authenticated<'static> = Authenticated {
        user: "Mufasa",
        password: "Circle of Life",
        method: "GET",
        path: "/dir/index.html",
        client_nonce: "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
    };
    const RFC: &str = r#"qop="auth, auth-int", nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS""#;

    fn of(headers: &[&str]) -> Option<Challenge> {
        let headers: Vec<String> = headers.iter().map(|h| (*h).to_owned()).collect();
        Challenge::of(&headers)
    }

    #[test]
    fn the_answers_are_those_of_rfc_7616_3_9_1() {
        for (algorithm, expected) in [
            ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
            (
                "SHA-256",
                "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1",
            ),
        ] {
            let header =
                format!(r#"Digest realm="http-auth@example.org", {RFC}, algorithm={algorithm}"#);
            let mut challenge = of(&[&header]).unwrap();
            let answer = challenge.answer(&REQUEST);
            assert!(
                answer.contains(&format!("response=\"{expected}\"")),
                "{answer}"
            );
            assert!(answer.contains("nc=00000001") && answer.contains("qop=auth"));
            assert!(challenge.answer(&REQUEST).contains("nc=00000002"));
        }
    }

    #[test]
    fn the_answer_without_a_quality_is_that_of_rfc_2069() {
        let request = Authenticated {
            password: "CircleOfLife",
            ..REQUEST
        };
        let header = r#"Digest realm="testrealm@host.com", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", opaque="5ccc069c403ebaf9f0171e9517f40e41""#;
        let answer = of(&[header]).unwrap().answer(&request);
        assert!(
            answer.contains(r#"response="1949323746fe6a43ef61f9606e7febea""#),
            "{answer}"
        );
        assert!(!answer.contains("qop") && !answer.contains("cnonce"));
    }

    #[test]
    fn the_strongest_challenge_is_answered_and_no_other_scheme() {
        let md5 = r#"Digest realm="a", nonce="1", algorithm=MD5"#;
        let sha = r#"digest realm="a", nonce="2", algorithm=SHA-256, qop="auth""#;
        assert_eq!(of(&[md5, sha]).unwrap().nonce, "2");
        let joined = format!("Basic realm=\"b, Digest c\", {md5}, {sha}");
        assert_eq!(of(&[&joined]).unwrap().nonce, "2");
        for other in [
            "Basic realm=\"a\"",
            "Digest realm=\"a\"",
            "Digest nonce=1, algorithm=SHA-512-256",
            "Digest nonce=1, qop=\"auth-int\"",
            "",
            "Digest",
        ] {
            assert_eq!(of(&[other]), None, "{other}");
        }
    }

    #[test]
    fn quotes_stay_inside_their_values() {
        let mut challenge = of(&[r#"Digest realm="a \"b\" \\", nonce="1, x=2""#]).unwrap();
        assert_eq!(
            (challenge.realm.as_str(), challenge.nonce.as_str()),
            ("a \"b\" \\", "1, x=2")
        );
        let answer = challenge.answer(&Authenticated {
            user: "u\"\r\nX: y",
            ..REQUEST
        });
        assert!(answer.contains(r#"username="u\"X: y""#), "{answer}");
        assert!(answer.contains(r#"realm="a \"b\" \\""#), "{answer}");
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(header in "(Digest )?[ -~\u{e9}]{0,80}") {
            if let Some(mut challenge) = of(&[&header]) {
                prop_assert!(!challenge.answer(&REQUEST).contains('\n'));
            }
        }
    }
}
