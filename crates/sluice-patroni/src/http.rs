//! One question by HTTP or HTTPS, and its answer. HTTP/1.0: one question a connection, and the answer ends with it.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs},
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};
use sluice_control::cluster::Rest;
use sluice_tls::ClientTls;

/// The size of an answer, in bytes, at most.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The shortest time for which the system is asked to wait: none would be for ever.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// The method of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Asks for something.
    Get,
    /// Has something done.
    Post,
    /// Changes a part of something.
    Patch,
}

/// A name and a password, which Patroni wants from whoever changes something.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

/// Without the password.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// A question.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Whom it is for.
    pub rest: &'a Rest,
    /// Where that is, if it is known already; of none, its name is looked up.
    pub addresses: &'a [IpAddr],
    /// The authorities and the certificate for a member by HTTPS.
    pub tls: Option<&'a ClientTls>,
    /// The name and the password to show.
    pub credentials: Option<&'a Credentials>,
    /// The time for all of it, but for the look-up of a name.
    pub time_max: Duration,
}

/// An answer, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Its name or its port can't be reached, or the connection breaks.
    #[error("{0}")]
    Io(io::Error),
    /// It takes too long.
    #[error("no answer within {:.1} s", .0.as_secs_f64())]
    Silent(Duration),
    /// There is nothing to check its certificate by.
    #[error("it wants HTTPS, and there are no authorities for that")]
    NoAuthorities,
    /// TLS can't be had.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// The answer is no HTTP, or not all of it has come.
    #[error("the answer is not HTTP")]
    NotHttp,
    /// The answer ends too early.
    #[error("the answer ends in its midst")]
    Cut,
    /// The answer is of another program.
    #[error("the answer is not Patroni's: {0}")]
    NotPatroni(serde_json::Error),
    /// The member says that it can't, or may not.
    #[error("it answers {status}{}", said(.body))]
    Status {
        /// The status code.
        status: u16,
        /// Its words.
        body: String,
    },
}

fn said(body: &str) -> String {
    match body.trim() {
        "" => String::new(),
        body => format!(": {body}"),
    }
}

impl Answer {
    /// The body as text. Of a page that Python's web server has made by itself, its message only.
    pub fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let message = text.split_once("<p>Message: ").and_then(|(_, rest)| rest.split_once("</p>"));
        message.map_or(&*text, |(message, _)| message).trim().to_owned()
    }

    /// The answer, if it is one that says so (200 to 299).
    ///
    /// # Errors
    ///
    /// [`AskError::Status`].
    pub fn good(self) -> Result<Self, AskError> {
        match self.status {
            200..300 => Ok(self),
            status => Err(AskError::Status { status, body: self.text() }),
        }
    }
}

impl Question<'_> {
    /// Asks for what stands at a path.
    ///
    /// # Errors
    ///
    /// Why there is no answer; any status is one.
    pub fn get(&self, path: &str) -> Result<Answer, AskError> {
        self.ask(Method::Get, path, "")
    }

    /// Asks, with a body in JSON where something is changed.
    ///
    /// # Errors
    ///
    /// As [`Self::get`].
    pub fn ask(&self, method: Method, path: &str, body: &str) -> Result<Answer, AskError> {
        let deadline = Instant::now() + self.time_max;
        let request = self.request(method, path, body);
        let answer = self.connect(deadline).and_then(|stream| {
            if !self.rest.is_encrypted {
                return exchange(Timed { stream, deadline }, &request);
            }
            let tls = self.tls.ok_or(AskError::NoAuthorities)?;
            let mut config = (**tls.config()).clone();
            // That protocol is PostgreSQL's.
            config.alpn_protocols.clear();
            let name = ServerName::try_from(self.rest.host.clone());
            let name = name.map_err(|error| AskError::Io(io::Error::other(error)))?;
            let session = ClientConnection::new(Arc::new(config), name)?;
            exchange(StreamOwned::new(session, Timed { stream, deadline }), &request)
        });
        match answer {
            Err(AskError::Io(error)) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
                Err(AskError::Silent(self.time_max))
            }
            answer => answer,
        }
    }

    fn request(&self, method: Method, path: &str, body: &str) -> Vec<u8> {
        let method = match method {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Patch => "PATCH",
        };
        let host = self.rest.to_string();
        let host = host.split("://").last().unwrap_or_default();
        let mut head = format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n");
        if let Some(Credentials { user, password }) = self.credentials {
            head += &format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")));
        }
        if method != "GET" {
            head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        format!("{head}\r\n{body}").into_bytes()
    }

    /// Connects to the first of its addresses that answers, in their order. Each has its part of the time: behind one that
    /// is silent there is some left for the others, and for the answer.
    fn connect(&self, deadline: Instant) -> Result<TcpStream, AskError> {
        let Rest { host, port, .. } = self.rest;
        let addresses: Vec<SocketAddr> = match self.addresses {
            [] => (host.as_str(), *port).to_socket_addrs().map_err(AskError::Io)?.collect(),
            known => known.iter().map(|ip| SocketAddr::new(*ip, *port)).collect(),
        };
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for (address, behind) in addresses.iter().zip((0..addresses.len() as u32).rev()) {
            match TcpStream::connect_timeout(address, part(left(deadline)?, behind)) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(AskError::Io(last))
    }
}

/// The time that is left.
fn left(deadline: Instant) -> Result<Duration, AskError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(AskError::Io(ErrorKind::TimedOut.into())) } else { Ok(left.max(WAIT_MIN)) }
}

/// The time of an address behind which there are others.
fn part(left: Duration, behind: u32) -> Duration {
    if behind == 0 { left } else { (left / (behind + 2)).max(WAIT_MIN) }
}

/// A connection each of whose steps has to be over by a deadline.
struct Timed {
    stream: TcpStream,
    deadline: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        left(self.deadline).map(Some).map_err(|_| ErrorKind::TimedOut.into())
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn exchange(mut stream: impl Read + Write, request: &[u8]) -> Result<Answer, AskError> {
    stream.write_all(request).and_then(|()| stream.flush()).map_err(AskError::Io)?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    while bytes.len() < ANSWER_BYTES_MAX {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // TLS that ends without a word: whether all is there, the length says.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(AskError::Io(error)),
        }
    }
    read_answer(&bytes)
}

fn read_answer(bytes: &[u8]) -> Result<Answer, AskError> {
    const END: &[u8] = b"\r\n\r\n";
    if bytes.is_empty() {
        return Err(AskError::Cut);
    }
    let end = bytes.windows(END.len()).position(|window| window == END).ok_or(AskError::NotHttp)?;
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| AskError::NotHttp)?;
    let mut lines = head.split("\r\n");
    let first = lines.next().and_then(|line| line.strip_prefix("HTTP/1."));
    let status = first.and_then(|line| line.split(' ').nth(1)?.parse().ok()).ok_or(AskError::NotHttp)?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") { value.trim().parse::<usize>().ok() } else { None }
    });
    let body = &bytes[end + END.len()..];
    match length {
        Some(length) if body.len() < length => Err(AskError::Cut),
        Some(length) => Ok(Answer { status, body: body[..length].to_vec() }),
        None => Ok(Answer { status, body: body.to_vec() }),
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    #[test]
    fn answers() {
        let answer = read_answer(b"HTTP/1.0 503 Service Unavailable\r\nA: b\r\n\r\n{\"a\": 1}").unwrap();
        assert_eq!((answer.status, &*answer.text()), (503, "{\"a\": 1}"));
        assert_eq!(answer.good().unwrap_err().to_string(), "it answers 503: {\"a\": 1}");
        let answer = read_answer(b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 2\r\n\r\nabc").unwrap();
        assert_eq!(answer.text(), "ab");
        for bad in ["HTTP/1.0 200 OK", "HTTP/1.0 x OK\r\n\r\n", "SSH-2.0\r\n\r\n"] {
            assert!(matches!(read_answer(bad.as_bytes()), Err(AskError::NotHttp)), "{bad}");
        }
        for cut in ["", "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nab"] {
            assert!(matches!(read_answer(cut.as_bytes()), Err(AskError::Cut)), "{cut}");
        }
    }

    /// Somebody who hears one question, says something, and leaves or stays.
    fn member(says: &'static str, stays: bool) -> (Rest, thread::JoinHandle<String>) {
        member_at(TcpListener::bind("127.0.0.1:0").unwrap(), says, stays)
    }

    fn member_at(listener: TcpListener, says: &'static str, stays: bool) -> (Rest, thread::JoinHandle<String>) {
        let port = listener.local_addr().unwrap().port();
        let thread = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = vec![0; 4096];
            let count = stream.read(&mut heard).unwrap();
            stream.write_all(says.as_bytes()).unwrap();
            if stays {
                // Until whoever asked has had enough.
                let _ = stream.read(&mut [0]);
            }
            String::from_utf8_lossy(&heard[..count]).into_owned()
        });
        (Rest { is_encrypted: false, host: "127.0.0.1".to_owned(), port }, thread)
    }

    fn ask(rest: &Rest, time_max: Duration) -> Result<Answer, AskError> {
        let credentials = Credentials { user: "a".to_owned(), password: "b".to_owned() };
        let question = Question { rest, addresses: &[], tls: None, credentials: Some(&credentials), time_max };
        question.ask(Method::Patch, "/config", "{}")
    }

    #[test]
    fn a_question_shows_who_asks() {
        let (rest, thread) = member("HTTP/1.0 200 OK\r\n\r\n{}", false);
        assert_eq!(ask(&rest, Duration::from_secs(20)).unwrap().text(), "{}");
        let heard = thread.join().unwrap();
        assert!(heard.starts_with("PATCH /config HTTP/1.0\r\n"), "{heard}");
        assert!(heard.contains("\r\nAuthorization: Basic YTpi\r\n") && heard.ends_with("\r\n\r\n{}"), "{heard}");
    }

    #[test]
    fn whoever_says_nothing_more_is_not_waited_for() {
        let (rest, thread) = member("HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n{", true);
        let error = ask(&rest, Duration::from_millis(300)).unwrap_err();
        assert!(matches!(error, AskError::Silent(_)), "{error}");
        thread.join().unwrap();
    }

    #[test]
    fn a_silent_address_leaves_time_for_the_next_one() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        // Once as many wait as may, the system takes no more.
        let waiting: Vec<_> =
            (0..).map_while(|_| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()).collect();
        let other = TcpListener::bind(("127.0.0.2", address.port())).unwrap();
        let (rest, thread) = member_at(other, "HTTP/1.0 200 OK\r\n\r\n{}", false);
        let addresses = ["127.0.0.1", "127.0.0.2"].map(|address| address.parse().unwrap());
        let time_max = Duration::from_secs(2);
        let question = Question { rest: &rest, addresses: &addresses, tls: None, credentials: None, time_max };
        assert_eq!(question.get("/cluster").unwrap().text(), "{}");
        thread.join().unwrap();
        drop(waiting);
    }

    #[test]
    fn a_member_by_https_needs_authorities() {
        let (rest, thread) = member("", false);
        let rest = Rest { is_encrypted: true, ..rest };
        let time_max = Duration::from_secs(20);
        let question = Question { rest: &rest, addresses: &[], tls: None, credentials: None, time_max };
        assert!(matches!(question.get("/cluster"), Err(AskError::NoAuthorities)));
        assert_eq!(thread.join().unwrap_or_default(), "");
    }
}
