//! The settings of TLS with hosts that are found by their address: a certificate is a fact, and only a given authority is trusted.
use super::super::certificates::{self, roots};
use crate::discovery::interface::DetailsError;
use std::sync::Arc;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{self, WebPkiSupportedAlgorithms, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// Returns settings that take every certificate, or only those that the authority in this PEM has signed.
pub(super) fn config(ca: Option<&str>) -> Result<Arc<ClientConfig>, DetailsError> {
    let provider = Arc::new(ring::default_provider());
    let authority = match ca {
        None => None,
        Some(pem) => {
            let roots = Arc::new(roots("ca", pem)?);
            let verifier =
                WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
            Some(verifier.expect("there are roots, and no revocations"))
        }
    };
    let verifier = Verifier {
        authority,
        algorithms: provider.signature_verification_algorithms,
    };
    let mut config = certificates::tls()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Takes every certificate whose key the host has.
#[derive(Debug)]
struct Verifier {
    authority: Option<Arc<WebPkiServerVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified = authority.verify_server_cert(certificate, others, name, ocsp, now);
        // The name is looked at last. It is not compared: hosts are named by their addresses.
        match verified {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            // With times, a problem would be another one in each round.
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext { .. })) => {
                Err(CertificateError::Expired.into())
            }
            Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { .. })) => {
                Err(CertificateError::NotValidYet.into())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
