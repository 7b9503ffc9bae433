//! Reads facts of an X.509 certificate (RFC 5280 4.1). Nothing of it is verified here. Pure.
use crate::{
    ber::{INTEGER, OBJECT_ID, OCTET_STRING, Reader, SEQUENCE, SET},
    facts::Facts,
};
use sha2::{Digest as _, Sha256};

const COMMON_NAME: [u8; 3] = [0x55, 4, 3];
const SERIAL_NUMBER: [u8; 3] = [0x55, 4, 5];
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1D, 0x11];
const VERSION: u8 = 0xA0;
const EXTENSIONS: u8 = 0xA3;
const DNS_NAME: u8 = 0x82;

/// Returns the fingerprint of a certificate, and as far as it can be read: the common names of subject and issuer, the names of hosts, and
/// the serial number of the device that the subject has (IEEE 802.1AR).
pub fn certificate(der: &[u8]) -> Facts {
    let mut facts = Facts::default();
    let digest = Sha256::digest(der);
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    facts.set("CERTIFICATE_SHA256", &digits);
    read(der, &mut facts);
    facts
}

fn read(der: &[u8], facts: &mut Facts) -> Option<()> {
    let mut fields = Reader(der).open(SEQUENCE)?.open(SEQUENCE)?;
    let mut after_version = fields;
    if after_version.open(VERSION).is_some() {
        fields = after_version;
    }
    fields.open(INTEGER)?;
    fields.open(SEQUENCE)?; // the algorithm of the signature
    let issuer = fields.open(SEQUENCE)?;
    fields.open(SEQUENCE)?; // its validity
    let subject = fields.open(SEQUENCE)?;
    for (name, of, kind) in [
        ("CERTIFICATE_ISSUER", issuer, COMMON_NAME),
        ("CERTIFICATE_SUBJECT", subject, COMMON_NAME),
        ("SERIAL_NUMBER", subject, SERIAL_NUMBER),
    ] {
        facts.set_bytes(name, attribute(of, kind).unwrap_or_default());
    }
    let extensions = fields.find(|field| field.tag == EXTENSIONS)?;
    for extension in Reader(extensions.content).open(SEQUENCE)? {
        let mut extension = Reader(extension.content);
        if extension.open(OBJECT_ID)?.0 == ALTERNATIVE_NAMES {
            let names = extension.find(|field| field.tag == OCTET_STRING)?.content;
            let names = Reader(names)
                .open(SEQUENCE)?
                .filter(|name| name.tag == DNS_NAME);
            let names: Vec<_> = names
                .map(|name| String::from_utf8_lossy(name.content))
                .collect();
            facts.set("CERTIFICATE_NAMES", &names.join(","));
        }
    }
    Some(())
}

/// Returns the first value of an attribute of a name.
fn attribute(name: Reader<'_>, kind: [u8; 3]) -> Option<&[u8]> {
    let sets = name.filter(|part| part.tag == SET);
    let mut attributes = sets.flat_map(|set| Reader(set.content));
    attributes.find_map(|attribute| {
        let mut attribute = Reader(attribute.content);
        let is_it = attribute.open(OBJECT_ID)?.0 == kind;
        is_it.then(|| attribute.next())?.map(|value| value.content)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=press-4/serialNumber=P4-0007" -days 36500 \
    ///   -addext subjectAltName=DNS:press-4.plant,DNS:press,IP:10.1.2.3 -outform der`
    const DER: &[u8] = include_bytes!("../tests/press.der");

    #[test]
    fn the_fingerprint_is_that_of_openssl_and_names_are_those_of_the_subject() {
        let facts = certificate(DER);
        let fingerprint = include_str!("../tests/press.sha256").trim();
        assert_eq!(facts.get("CERTIFICATE_SHA256"), Some(fingerprint));
        assert_eq!(facts.get("CERTIFICATE_SUBJECT"), Some("press-4"));
        assert_eq!(facts.get("CERTIFICATE_ISSUER"), Some("press-4"));
        assert_eq!(facts.get("CERTIFICATE_NAMES"), Some("press-4.plant,press"));
        assert_eq!(facts.get("SERIAL_NUMBER"), Some("P4-0007"));
    }

    #[test]
    fn a_part_of_a_certificate_has_a_fingerprint_and_perhaps_more() {
        for end in 0..DER.len() {
            assert!(certificate(&DER[..end]).get("CERTIFICATE_SHA256").is_some());
        }
    }
}
