//! Reads certificates in PEM from `discoveryProperties`. Pure. No message has a value: it may be of a Secret.
use crate::discovery::interface::DetailsError;
use std::sync::Arc;
use tokio_rustls::rustls::{
    ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// Begins settings of TLS.
pub(super) fn tls() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    builder.expect("the provider has all of them")
}

/// Returns the certificate authorities of a property.
pub(super) fn roots(name: &str, pem: &str) -> Result<RootCertStore, DetailsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(name, pem)? {
        let added = roots.add(certificate);
        added.map_err(|_| unfit(name, "it has a certificate that no authority can have"))?;
    }
    Ok(roots)
}

/// Returns the certificates of a property.
pub(super) fn certificates(
    name: &str,
    pem: &str,
) -> Result<Vec<CertificateDer<'static>>, DetailsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| unfit(name, "it has no certificates in PEM"))
}

/// Returns the refusal of a property.
pub(super) fn unfit(property: &str, why: &str) -> DetailsError {
    DetailsError(format!(
        "the discoveryProperty {property:?} cannot be used: {why}"
    ))
}
