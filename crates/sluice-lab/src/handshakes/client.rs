//! Clients that shake hands: SSLRequest, a handshake of TLS 1.3 without resumption, and the connection's end.

use std::{
    error::Error as StdError,
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime},
    version,
};
use sluice_wire::startup::SSL_REQUEST_PACKET;

use super::halves::pin;
use crate::{error::Error, proc::thread_cpu_s};

/// Time for the server to answer anything.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Those who shake hands, one after another in each thread.
pub(super) struct Clients {
    config: Arc<ClientConfig>,
    port: u16,
    done: AtomicU64,
    ends: AtomicBool,
}

impl Clients {
    /// For a server at that port of this host.
    pub(super) fn new(port: u16) -> Result<Self, Error> {
        let config = client_config().map_err(Error::server)?;
        Ok(Self { config, port, done: AtomicU64::new(0), ends: AtomicBool::new(false) })
    }

    /// Handshakes so far.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Has all threads come to their ends.
    pub(super) fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// One thread's part; the processor time that it took, in seconds.
    pub(super) fn shake_hands(&self, processors: &[usize]) -> Result<f64, Error> {
        pin(processors)?;
        let before_s = thread_cpu_s();
        while !self.ends.load(Ordering::Relaxed) {
            // Whoever fails, fails for all: a server that refuses some is not compared.
            if let Err(error) = shake_hands(self.port, &self.config) {
                self.end();
                return Err(Error::Server(format!("a handshake failed: {error}")));
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(thread_cpu_s() - before_s)
    }
}

/// One connection, and both sides' ends. When it returns, the server has done all of its part.
fn shake_hands(port: u16, config: &Arc<ClientConfig>) -> Result<(), Box<dyn StdError + Send + Sync>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_nodelay(true)?;
    stream.write_all(&SSL_REQUEST_PACKET)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer != *b"S" {
        return Err("the server does no TLS".into());
    }
    let mut session = ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost")?)?;
    while session.is_handshaking() || session.wants_write() {
        session.complete_io(&mut stream)?;
    }
    // PostgreSQL before 18 knows one curve, P-256, and asks those for it that begin with another one, as libpq does.
    if !matches!(session.handshake_kind(), Some(HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest)) {
        return Err("the session was resumed".into());
    }
    session.send_close_notify();
    session.write_tls(&mut stream)?;
    stream.shutdown(Shutdown::Write)?;
    let mut rest = [0; 4096];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // It has closed without reading our last words.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// TLS 1.3, whatever the certificate: to verify it is the client's work alone.
fn client_config() -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(schemes)))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Believes everybody, with these signature schemes.
#[derive(Debug)]
struct Anybody(Vec<SignatureScheme>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use rustls::{
        ServerConfig, ServerConnection,
        pki_types::{PrivateKeyDer, pem::PemObject as _},
    };
    use sluice_instance::certificate_in;

    use super::*;

    #[test]
    fn handshakes_are_whole_and_nothing_is_resumed() {
        let dir = tempfile::tempdir().unwrap();
        let files = certificate_in(dir.path(), Ipv4Addr::LOCALHOST.into()).unwrap();
        let config = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_file(&files.cert).unwrap()],
                PrivateKeyDer::from_pem_file(&files.key).unwrap(),
            )
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            for _ in 0..2 {
                let mut stream = listener.accept().unwrap().0;
                stream.read_exact(&mut [0; SSL_REQUEST_PACKET.len()]).unwrap();
                stream.write_all(b"S").unwrap();
                let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
                while session.is_handshaking() || session.wants_write() {
                    session.complete_io(&mut stream).unwrap();
                }
                assert_eq!(session.handshake_kind(), Some(HandshakeKind::Full));
                while session.read_tls(&mut stream).unwrap() > 0 {
                    session.process_new_packets().unwrap();
                }
            }
        });
        let client = client_config().unwrap();
        for _ in 0..2 {
            shake_hands(port, &client).unwrap();
        }
        server.join().unwrap();
        assert!(shake_hands(port, &client).is_err());
    }
}
