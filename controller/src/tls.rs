//! TLS for `wss://`: TLS 1.3 with the ring provider, certificate and key from PEM files.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;
use crate::failure::{Failure, Outcome};

/// Reads the files and checks that the key belongs to the certificate.
pub fn acceptor(files: &TlsFiles) -> Outcome<TlsAcceptor> {
    let fail = |path: &std::path::Path, error: &dyn std::fmt::Display| {
        Failure::config(format_args!("cannot use {} for TLS: {error}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| fail(&files.cert, &error))?;
    if chain.is_empty() {
        return Err(fail(&files.cert, &"it holds no PEM certificate"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| fail(&files.key, &error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| fail(&files.cert, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| fail(&files.cert, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
