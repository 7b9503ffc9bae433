//! Reads who we are for a broker from `discoveryProperties`. Pure. No message has a value: it may be of a Secret.
use super::super::certificates::{self, certificates, roots, unfit};
use crate::{discovery::interface::DetailsError, model::hidden::Hidden};
use std::{collections::BTreeMap, sync::Arc};
use tokio_rustls::rustls::{
    ClientConfig,
    pki_types::{PrivateKeyDer, pem::PemObject as _},
};

/// The names of the properties that are read.
pub(super) const NAMES: &[&str] = &["user", "password", "ca", "certificate", "privateKey"];

/// The longest user and password, in bytes. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const TEXT_MAX: usize = 1024;

/// Who we are, and whom we trust.
#[derive(Clone, Default)]
pub(super) struct Credentials {
    pub(super) user: Option<String>,
    pub(super) password: Hidden<Option<String>>,
    /// The settings of TLS, if there is a certificate authority to trust.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Credentials {
    /// Reads the properties for a broker that is reached with TLS, or without.
    pub(super) fn read(
        properties: &BTreeMap<String, String>,
        is_tls: bool,
    ) -> Result<Self, DetailsError> {
        let value = |name: &str| properties.get(name).filter(|value| !value.is_empty());
        for name in ["user", "password"] {
            let is_fit = |v: &String| v.len() <= TEXT_MAX && !v.contains(char::is_control);
            if !value(name).is_none_or(is_fit) {
                return Err(unfit(
                    name,
                    "it has a control character, such as a line break at its end, or more than 1024 bytes",
                ));
            }
        }
        if value("password").is_some() && value("user").is_none() {
            return Err(unfit("password", "user is missing"));
        }
        for name in ["ca", "certificate"] {
            if !is_tls && value(name).is_some() {
                return Err(unfit(name, "`broker` has no TLS: write mqtts://"));
            }
        }
        let own = match (value("certificate"), value("privateKey")) {
            (Some(certificate), Some(key)) => Some(Own { certificate, key }),
            (None, None) => None,
            (Some(_), None) => {
                return Err(unfit(
                    "privateKey",
                    "certificate is there, and it is missing",
                ));
            }
            (None, Some(_)) => {
                return Err(unfit(
                    "certificate",
                    "privateKey is there, and it is missing",
                ));
            }
        };
        let tls = match (value("ca"), &own) {
            (Some(ca), own) => Some(Arc::new(tls(ca, own.as_ref())?)),
            (None, Some(_)) => return Err(unfit("ca", "certificate is there, and it is missing")),
            (None, None) => None,
        };
        Ok(Self {
            user: value("user").cloned(),
            password: Hidden::new(value("password").cloned()),
            tls,
        })
    }
}

/// The certificate of a client, and its key, as PEM.
struct Own<'a> {
    certificate: &'a str,
    key: &'a str,
}

fn tls(ca: &str, own: Option<&Own<'_>>) -> Result<ClientConfig, DetailsError> {
    let builder = certificates::tls().with_root_certificates(roots("ca", ca)?);
    let Some(Own { certificate, key }) = own else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates("certificate", certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
    let key = key.map_err(|_| unfit("privateKey", "it is no private key in PEM"))?;
    let config = builder.with_client_auth_cert(chain, key);
    config.map_err(|_| unfit("privateKey", "it is not the key of certificate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_named_without_its_value() {
        for (properties, is_tls, named) in [
            (&[("ca", "hunter2")][..], true, "\"ca\""),
            (&[("certificate", "hunter2")], true, "\"privateKey\""),
            (&[("privateKey", "hunter2")], true, "\"certificate\""),
            (
                &[("certificate", "hunter2"), ("privateKey", "hunter2")],
                true,
                "\"ca\"",
            ),
            (&[("ca", "hunter2")], false, "write mqtts://"),
            (&[("certificate", "hunter2")], false, "write mqtts://"),
            (&[("password", "hunter2")], false, "user is missing"),
            (
                &[("user", "u"), ("password", "hunter2\r\n")],
                false,
                "\"password\" cannot be used: it has a control character",
            ),
            (&[("user", "hunter2\n")], false, "\"user\""),
        ] {
            let properties = properties
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
            let refused = Credentials::read(&properties.collect(), is_tls)
                .err()
                .unwrap()
                .to_string();
            assert!(
                refused.contains(named) && !refused.contains("hunter2"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_user_and_a_password_need_nothing_else_and_are_not_shown() {
        let properties = [("user", "petiole"), ("password", "hunter2")];
        let properties = properties.map(|(n, v)| (n.to_owned(), v.to_owned()));
        let read = Credentials::read(&properties.into(), false).unwrap();
        assert_eq!(
            (read.user.as_deref(), read.password.as_deref()),
            (Some("petiole"), Some("hunter2"))
        );
        assert!(read.tls.is_none() && !format!("{:?}", read.password).contains("hunter2"));
    }
}
