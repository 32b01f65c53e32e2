//! TLS of `http/request`: the certificate authorities of the system, as inside the sandbox.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::fs::file;
use crate::limits::MAX_CERTIFICATE_BYTES;

/// Where distributions keep all authorities in one file.
const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
];

/// A configuration that trusts the authorities of the file that `SSL_CERT_FILE` names, or of the first bundle that is
/// there.
///
/// # Errors
/// One line, when no authority can be read.
pub(super) fn config(named: Option<&OsStr>) -> Result<Arc<ClientConfig>, String> {
    let path = match named {
        Some(named) => Path::new(named),
        None => BUNDLES.map(Path::new).into_iter().find(|path| path.is_file()).ok_or_else(|| {
            "no certificate authorities are installed; name a PEM file in SSL_CERT_FILE".to_owned()
        })?,
    };
    let cannot = |why: &dyn std::fmt::Display| {
        format!("cannot read certificate authorities from {}: {why}", path.display())
    };
    let opened = file::open(path, true).map_err(|error| cannot(&error.message))?;
    let text = opened.read_up_to(MAX_CERTIFICATE_BYTES).map_err(|error| cannot(&error.message))?;
    let text = text.ok_or_else(|| cannot(&format_args!("it has more than {MAX_CERTIFICATE_BYTES} bytes")))?;
    let mut roots = RootCertStore::empty();
    // One that is damaged or of a kind this library does not take is not trusted; the others are.
    let (added, _) = roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&text).flatten());
    if added == 0 {
        return Err(cannot(&"it holds no certificate"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| cannot(&error))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(path: &Path) -> Result<Arc<ClientConfig>, String> {
        config(Some(path.as_os_str()))
    }

    #[test]
    fn a_named_file_is_the_only_source() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let error = with(&at("none")).unwrap_err();
        assert!(error.ends_with("none: No such file or directory (os error 2)"), "{error}");
        std::fs::write(at("empty"), "# no certificate here\n").unwrap();
        assert!(with(&at("empty")).unwrap_err().ends_with("it holds no certificate"));
        if let Some(bundle) = BUNDLES.map(Path::new).into_iter().find(|path| path.is_file()) {
            assert!(with(bundle).is_ok());
            assert!(config(None).is_ok());
        }
    }
}
