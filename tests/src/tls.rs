//! TLS for the tests: a client configuration that trusts one authority, and a front that puts TLS before a plain
//! server.
//!
//! Invariant: the ring provider, named in every configuration; no process-wide default is installed.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::certificate::Certificates;

/// Trusts only `authority` (PEM).
pub fn client_config(authority: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).expect("PEM")).expect("a trust anchor");
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

fn server_config(certificates: &Certificates) -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_slice(certificates.certificate.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(certificates.key.as_bytes()).expect("PEM");
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("the key fits");
    Arc::new(config)
}

/// Ends TLS on a free loopback port and relays to a plain server. It ends when dropped.
#[derive(Debug)]
pub struct TlsFront {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl TlsFront {
    /// Starts it.
    pub async fn start(certificates: &Certificates, upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let acceptor = TlsAcceptor::from(server_config(certificates));
        let server = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(acceptor.clone(), client, upstream));
            }
        });
        Self { address, server }
    }

    /// `wss://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("wss://{}", self.address)
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn relay(acceptor: TlsAcceptor, client: TcpStream, upstream: SocketAddr) {
    // A client that does not trust the certificate ends the handshake; that shows in the test's own assertions.
    let Ok(mut client) = acceptor.accept(client).await else { return };
    let Ok(mut server) = TcpStream::connect(upstream).await else { return };
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}
