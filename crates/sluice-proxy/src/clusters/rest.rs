//! One question by HTTP or HTTPS, and its answer.

use std::{sync::Arc, time::Duration};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::{
    Request, StatusCode,
    body::Bytes,
    client::conn::http1,
    header::{CONNECTION, HOST},
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use sluice_control::cluster::Rest;
use sluice_tls::ClientTls;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// The time that an answer may take, with the connection.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// The size of an answer, in bytes, at most.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Asks for what stands at a path; the error is in words.
pub(super) async fn get(rest: &Rest, tls: Option<&ClientTls>, path: &str) -> Result<(StatusCode, Bytes), String> {
    let answer = timeout(ANSWER_TIME, ask(rest, tls, path)).await;
    answer.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER_TIME.as_secs())))
}

async fn ask(rest: &Rest, tls: Option<&ClientTls>, path: &str) -> Result<(StatusCode, Bytes), String> {
    let stream = TcpStream::connect((rest.host.as_str(), rest.port)).await.map_err(|error| error.to_string())?;
    if !rest.is_encrypted {
        return ask_by(stream, rest, path).await;
    }
    let Some(tls) = tls else { return Err("it wants HTTPS, and patroni lists members by HTTP only".to_owned()) };
    let mut config = (**tls.config()).clone();
    // That protocol is PostgreSQL's.
    config.alpn_protocols.clear();
    let name = ServerName::try_from(rest.host.clone()).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| error.to_string())?;
    ask_by(stream, rest, path).await
}

async fn ask_by(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    rest: &Rest,
    path: &str,
) -> Result<(StatusCode, Bytes), String> {
    let (mut asks, connection) =
        http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let host = rest.to_string();
    let host = host.split("://").last().unwrap_or_default();
    let request = Request::get(path).header(HOST, host).header(CONNECTION, "close").body(Empty::new());
    let request = request.map_err(|error| error.to_string())?;
    let exchange = async {
        let answer = asks.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    };
    let carried = async {
        // The exchange says what is wrong.
        let _ = connection.await;
        std::future::pending().await
    };
    tokio::select! {
        answer = exchange => answer,
        () = carried => Err("the connection has ended".to_owned()),
    }
}
