//! A certificate authority of its own for one test, and a server certificate it has signed.
//!
//! Invariant: nothing of it outlives the test.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

/// PEM texts for a server on loopback.
#[derive(Debug)]
pub struct Certificates {
    /// What a client has to trust.
    pub authority: String,
    /// The server's certificate, for 127.0.0.1 and localhost.
    pub certificate: String,
    /// The server's private key.
    pub key: String,
}

impl Certificates {
    /// Fresh keys and certificates.
    pub fn generate() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "Legion test authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"))
            .expect("a certificate signed by itself");
        let key = KeyPair::generate().expect("a key");
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let mut params = CertificateParams::new(names).expect("valid names");
        params.distinguished_name.push(DnType::CommonName, "Legion test server");
        let certificate = params.signed_by(&key, &authority).expect("a signed certificate");
        Self { authority: authority.pem(), certificate: certificate.pem(), key: key.serialize_pem() }
    }
}
