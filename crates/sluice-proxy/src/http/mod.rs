//! Metrics and health by HTTP, by the control thread: what is told here costs workers nothing.

mod metrics;

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use sluice_core::{hub::Hub, time::Time};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet, time::timeout};

use crate::accepted::accepted;

/// Connections at once, at most: others wait until one of them ends.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// The time that a connection has for its request and the answer.
const CONNECTION_TIME: Duration = Duration::from_secs(5);

/// The things that are told.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) hub: Arc<Hub>,
    pub(crate) epoch: Instant,
    /// Whether the service is ending.
    pub(crate) is_stopping: Arc<AtomicBool>,
}

/// Listens at an address.
pub(crate) fn listen(address: SocketAddr) -> io::Result<StdListener> {
    let listener = StdListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers at these sockets, for ever.
pub(crate) async fn serve(told: Told, listeners: Vec<StdListener>) {
    let (told, room) = (Arc::new(told), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    let mut tasks = JoinSet::new();
    for listener in listeners {
        tasks.spawn(serve_at(listener, told.clone(), room.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        if let Ok(Err(error)) = ended {
            tracing::error!("the HTTP endpoint has stopped: {error}");
        }
    }
    std::future::pending().await
}

async fn serve_at(listener: StdListener, told: Arc<Told>, room: Arc<Semaphore>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return Ok(()) };
        let (stream, _) = accepted(|| listener.accept()).await;
        let told = told.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request: Request<Incoming>| {
                let answer = told.answer(request.method(), request.uri().path());
                async { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), answer);
            // What goes wrong there is its client's to see.
            let _ = timeout(CONNECTION_TIME, connection).await;
            drop(permit);
        });
    }
}

impl Told {
    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match path {
            "/metrics" => self.metrics(),
            "/healthz" => plain(StatusCode::OK, "ok\n"),
            "/readyz" if self.is_stopping.load(Ordering::Relaxed) => {
                plain(StatusCode::SERVICE_UNAVAILABLE, "the service is ending\n")
            }
            "/readyz" if self.hub.is_draining() => {
                plain(StatusCode::SERVICE_UNAVAILABLE, "the pool is being drained\n")
            }
            "/readyz" => plain(StatusCode::OK, "ready\n"),
            _ => plain(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n"),
        }
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
        let now = Time(self.epoch.elapsed().as_micros() as u64);
        match metrics::text(self.hub.figures(now), |database| self.hub.is_paused(database)) {
            Ok(text) => of_type(StatusCode::OK, metrics::CONTENT_TYPE, text),
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    of_type(status, "text/plain; charset=utf-8", text)
}

fn of_type(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
