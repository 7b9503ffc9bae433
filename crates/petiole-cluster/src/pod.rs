//! The connection of a process in a Pod to the API server: the token of its ServiceAccount and the CA are files, which the
//! kubelet renews.
//!
//! The stack that kube makes of any `Config` also has what kubeconfigs may name: commands that return tokens, JSONPath and
//! regular expressions. A Pod has none of them, and they are a tenth of the image.
use axum::http::{HeaderValue, Request, Response, Uri, header::AUTHORIZATION};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Config,
    client::{Body, ConfigExt as _},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceBuilder, service_fn};
use tracing::warn;

/// A token is read again after this time. The kubelet renews it when a fifth of its lifetime is left, which is two minutes
/// at least (`token_manager.go`).
const TOKEN_AGE: Duration = Duration::from_secs(60);
/// The silence after which the machine of a connection is asked whether it is there, the time between two questions, and their number.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_TRIES: u32 = 3;

/// Returns the service that sends requests with the token in `token` to the server of `config`. The server's certificate
/// must be of a CA in the file `ca`.
pub(super) fn service(
    config: &Config,
    token: &Path,
    ca: &Path,
) -> io::Result<
    impl Service<
        Request<Body>,
        Response = Response<hyper::body::Incoming>,
        Error = BoxError,
        Future: Send,
    > + Clone
    + Send
    + 'static,
> {
    // Files that are wrong are an error of the start, not of the first request.
    let token = Token::read(token)?;
    let authorities = Arc::new(Authorities {
        file: ca.to_owned(),
        last: Mutex::new(roots(ca)?),
    });
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    // A machine that is gone says nothing, and a watch on it would be silent for minutes.
    http.set_keepalive(Some(KEEPALIVE_AFTER));
    http.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    http.set_keepalive_retries(Some(KEEPALIVE_TRIES));
    let connector = service_fn(move |server: Uri| {
        let (http, authorities) = (http.clone(), authorities.clone());
        async move {
            let tls = ClientConfig::builder()
                .with_root_certificates(authorities.now())
                .with_no_client_auth();
            let https = HttpsConnectorBuilder::new()
                .with_tls_config(tls)
                .https_only()
                .enable_http1();
            https.wrap_connector(http).call(server).await
        }
    });
    let mut connector = TimeoutConnector::new(connector);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let client = HttpClient::builder(TokioExecutor::new()).build(connector);
    Ok(ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .map_request(move |mut request: Request<Body>| {
            let header = token.header(Instant::now());
            request.headers_mut().insert(AUTHORIZATION, header);
            request
        })
        .map_err(BoxError::from)
        .service(client))
}

/// The CAs of a file. Each connection trusts those that the file has at that time.
struct Authorities {
    file: PathBuf,
    last: Mutex<Arc<RootCertStore>>,
}

impl Authorities {
    /// Returns the CAs. A file that cannot be read leaves those that are known.
    fn now(&self) -> Arc<RootCertStore> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match roots(&self.file) {
            Ok(fresh) => *last = fresh,
            Err(why) => warn!("{why}; those that were read before count on"),
        }
        last.clone()
    }
}

/// Returns the CAs of a file.
fn roots(file: &Path) -> io::Result<Arc<RootCertStore>> {
    let wrong = |e: &dyn std::fmt::Display| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the CA of the API server, {}: {e}", file.display()),
        )
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|e| wrong(&e))? {
        let certificate = certificate.map_err(|e| wrong(&e))?;
        roots.add(certificate).map_err(|e| wrong(&e))?;
    }
    if roots.is_empty() {
        Err(wrong(&"there is no certificate in it"))
    } else {
        Ok(Arc::new(roots))
    }
}

/// The token of a file, which changes.
#[derive(Clone)]
struct Token {
    file: PathBuf,
    last: Arc<Mutex<(HeaderValue, Instant)>>,
}

impl Token {
    fn read(file: &Path) -> io::Result<Self> {
        let header = read_header(file)?;
        Ok(Self {
            file: file.to_owned(),
            last: Arc::new(Mutex::new((header, Instant::now()))),
        })
    }

    /// Returns the header of a request. A file that cannot be read leaves the token that is known.
    fn header(&self, now: Instant) -> HeaderValue {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (header, read) = &mut *last;
        if now.duration_since(*read) >= TOKEN_AGE {
            if let Ok(fresh) = read_header(&self.file) {
                *header = fresh;
            }
            *read = now;
        }
        header.clone()
    }
}

fn read_header(file: &Path) -> io::Result<HeaderValue> {
    let wrong = |kind: io::ErrorKind, e: &dyn std::fmt::Display| {
        let file = file.display();
        io::Error::new(
            kind,
            format!("the token of the ServiceAccount, {file}: {e}"),
        )
    };
    let token = std::fs::read_to_string(file).map_err(|e| wrong(e.kind(), &e))?;
    let header = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    let mut header = header.map_err(|e| wrong(io::ErrorKind::InvalidData, &e))?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Two CAs whose names are "first" and "second".
    const FIRST: &str = "-----BEGIN CERTIFICATE-----
MIIBNjCB6aADAgECAhQd7mHcm1Vq+RCfrHhugWQavbauLzAFBgMrZXAwEDEOMAwG
A1UEAwwFZmlyc3QwIBcNMjYxMTIzMTUxNTE1WhgPMjEyNjEwMzAxNTE1MTVaMBAx
DjAMBgNVBAMMBWZpcnN0MCowBQYDK2VwAyEA4SQZUnBla4ZsirpVvXbubBpk86+7
F7kzGOYbbchP0p2jUzBRMB0GA1UdDgQWBBTKdU2888SwjkgY5LJIrEILIzEa0TAf
BgNVHSMEGDAWgBTKdU2888SwjkgY5LJIrEILIzEa0TAPBgNVHRMBAf8EBTADAQH/
MAUGAytlcANBAI5JXAW45v7Y0gC2C8Gvi+IRm6yys4EEUrzRp6xDLz5wqRdkAyE4
1gzgIogVoVAvcaSX15eIP3Jt046zJO/Yjg4=
-----END CERTIFICATE-----
";
    const SECOND: &str = "-----BEGIN CERTIFICATE-----
MIIBODCB66ADAgECAhQcWBv9d6YYHrE4Kp+Zrj4N4728gDAFBgMrZXAwETEPMA0G
A1UEAwwGc2Vjb25kMCAXDTI2MTEyMzE1MTUxNVoYDzIxMjYxMDMwMTUxNTE1WjAR
MQ8wDQYDVQQDDAZzZWNvbmQwKjAFBgMrZXADIQCUb7p7kZZur/RvQqqS9eFJAOkB
oZqQajFUNjCA0KfsfqNTMFEwHQYDVR0OBBYEFLDHQtRafuXs6GaVdQMSmbmg0pjK
MB8GA1UdIwQYMBaAFLDHQtRafuXs6GaVdQMSmbmg0pjKMA8GA1UdEwEB/wQFMAMB
Af8wBQYDK2VwA0EAYSZSmP8Aga6MSwGknp9+7oWtuHRma6Uy/tCDfJp8XWtZo9V5
5H4VIyaTAuSiXQeihHrlAC3zhH08ssizjb+yBw==
-----END CERTIFICATE-----
";

    #[test]
    fn a_renewed_token_is_used_within_a_minute_and_a_lost_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        fs::write(&file, "first\n").unwrap();
        let token = Token::read(&file).unwrap();
        let begin = Instant::now();
        let at = |seconds: u64| {
            let header = token.header(begin + Duration::from_secs(seconds));
            assert!(header.is_sensitive());
            header.to_str().unwrap().to_owned()
        };
        fs::write(&file, "second").unwrap();
        assert_eq!(at(30), "Bearer first");
        assert_eq!(at(70), "Bearer second");
        fs::remove_file(&file).unwrap();
        assert_eq!(at(140), "Bearer second");
        fs::write(&file, "two\nlines").unwrap();
        assert_eq!(at(210), "Bearer second");
        fs::write(&file, "third").unwrap();
        assert_eq!(at(280), "Bearer third");
    }

    #[test]
    fn a_renewed_authority_is_trusted_at_once_and_a_lost_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.crt");
        fs::write(&file, FIRST).unwrap();
        let authorities = Authorities {
            file: file.clone(),
            last: Mutex::new(roots(&file).unwrap()),
        };
        let trusted = || {
            let trusted = authorities.now();
            let names = trusted.roots.iter().map(|root| root.subject.to_vec());
            let names = names.map(|name| String::from_utf8_lossy(&name).into_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        assert!(trusted().ends_with("first"));
        fs::write(&file, SECOND).unwrap();
        assert!(trusted().ends_with("second"));
        fs::remove_file(&file).unwrap();
        assert!(trusted().ends_with("second"));
        let cut = &FIRST[..FIRST.len() / 2];
        for wrong in ["", "this is no PEM", cut] {
            fs::write(&file, wrong).unwrap();
            assert!(trusted().ends_with("second"), "{wrong}");
        }
        fs::write(&file, FIRST).unwrap();
        assert!(trusted().ends_with("first"));
    }

    #[test]
    fn files_that_are_missing_or_wrong_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.crt");
        let path = file.display().to_string();
        assert!(roots(&file).unwrap_err().to_string().contains(&path));
        assert!(read_header(&file).unwrap_err().to_string().contains(&path));
        fs::write(&file, "").unwrap();
        let why = roots(&file).unwrap_err().to_string();
        assert!(why.contains("no certificate"), "{why}");
        fs::write(
            &file,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        )
        .unwrap();
        assert!(roots(&file).unwrap_err().to_string().contains(&path));
    }
}
