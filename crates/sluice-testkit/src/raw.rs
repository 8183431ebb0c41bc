//! A client that sends exactly the messages it is told to send, and reads all that comes.
//!
//! Messages are compared as a transcript: one word a message, for example `1 2 T(a) D(1) C(SELECT 1) Z(I)`. It knows
//! no rule of the protocol but where a message ends.

use std::{
    fmt,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};
use sluice_tls::ClientTls;
use sluice_wire::{
    ErrorFields,
    message::{self, backend, framed, frontend, put_cstr, read_parameter_status},
    startup::{self, ProtocolVersion},
};

use crate::PATIENCE;

/// A message from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its type byte.
    pub tag: u8,
    /// The part behind the length.
    pub body: Vec<u8>,
}

impl Message {
    /// A field of an ErrorResponse or NoticeResponse.
    pub fn field(&self, field: u8) -> String {
        ErrorFields(&self.body).get(field).map_or_else(String::new, text)
    }

    /// The values of a DataRow, NULL as `None`.
    pub fn values(&self) -> Vec<Option<Vec<u8>>> {
        let mut values = Vec::new();
        let mut rest = &self.body[2..];
        while let Some((length, tail)) = rest.split_first_chunk::<4>() {
            let length = i32::from_be_bytes(*length);
            let Ok(length) = usize::try_from(length) else {
                values.push(None);
                rest = tail;
                continue;
            };
            values.push(Some(tail[..length].to_vec()));
            rest = &tail[length..];
        }
        values
    }

    /// The names of a RowDescription's columns.
    pub fn columns(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut rest = &self.body[2..];
        while let Some(end) = rest.iter().position(|b| *b == 0) {
            names.push(text(&rest[..end]));
            // Table, column, type, its size and modifier, format.
            rest = &rest[end + 1 + 18..];
        }
        names
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tag = char::from(self.tag);
        let body = self.body.strip_suffix(b"\0").unwrap_or(&self.body);
        match self.tag {
            backend::ERROR_RESPONSE if self.field(b'V') == "ERROR" => write!(f, "E({})", self.field(b'C')),
            backend::ERROR_RESPONSE => write!(f, "E({} {})", self.field(b'V'), self.field(b'C')),
            backend::NOTICE_RESPONSE => write!(f, "N({})", self.field(b'M')),
            backend::DATA_ROW => {
                let show = |v: &Option<Vec<u8>>| v.as_deref().map_or_else(|| "NULL".to_owned(), short);
                write!(f, "D({})", self.values().iter().map(show).collect::<Vec<_>>().join(","))
            }
            backend::ROW_DESCRIPTION => write!(f, "T({})", self.columns().join(",")),
            backend::PARAMETER_DESCRIPTION => write!(f, "t({})", (self.body.len() - 2) / 4),
            backend::PARAMETER_STATUS => {
                let (name, value) = read_parameter_status(&self.body).unwrap_or(("?", "?"));
                write!(f, "S({name}={value})")
            }
            backend::NOTIFICATION_RESPONSE => write!(f, "A({})", short(&body[4..]).replace('\0', ",")),
            backend::COMMAND_COMPLETE | backend::READY_FOR_QUERY => write!(f, "{tag}({})", text(body)),
            // CopyData; CopyDone has no body.
            backend::COPY_DATA => write!(f, "d({})", short(&self.body).replace('\n', "\\n")),
            backend::FUNCTION_CALL_RESPONSE => write!(f, "V({})", self.body.len()),
            _ => write!(f, "{tag}"),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn short(bytes: &[u8]) -> String {
    if bytes.len() > 60 { format!("{}..{} bytes", text(&bytes[..20]), bytes.len()) } else { text(bytes) }
}

/// Messages as a transcript.
pub fn transcript(messages: &[Message]) -> String {
    messages.iter().map(Message::to_string).collect::<Vec<_>>().join(" ")
}

/// Messages to send.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script(pub Vec<u8>);

impl Script {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn with(mut self, tag: u8, body: impl FnOnce(&mut Vec<u8>)) -> Self {
        framed(&mut self.0, tag, body);
        self
    }

    /// Query.
    pub fn query(mut self, sql: &str) -> Self {
        message::put_query(&mut self.0, sql);
        self
    }

    /// Parse, without parameter types.
    pub fn parse(self, name: &str, sql: &str) -> Self {
        self.parse_typed(name, sql, &[])
    }

    /// Parse, with parameter types by their OIDs.
    pub fn parse_typed(mut self, name: &str, sql: &str, types: &[u32]) -> Self {
        message::put_parse(&mut self.0, name.as_bytes(), sql, types);
        self
    }

    /// Bind to the unnamed portal, parameters and results as text.
    pub fn bind(self, statement: &str, values: &[Option<&str>]) -> Self {
        let values: Vec<_> = values.iter().map(|value| value.map(str::as_bytes)).collect();
        self.bind_to("", statement, &values)
    }

    /// Bind to a portal, parameters and results as text.
    pub fn bind_to(mut self, portal: &str, statement: &str, values: &[Option<&[u8]>]) -> Self {
        message::put_bind(&mut self.0, portal.as_bytes(), statement.as_bytes(), values);
        self
    }

    /// Describe of a statement.
    pub fn describe(mut self, statement: &str) -> Self {
        message::put_statement_message(&mut self.0, frontend::DESCRIBE, statement.as_bytes());
        self
    }

    /// Describe of a portal.
    pub fn describe_portal(self, portal: &str) -> Self {
        self.with(frontend::DESCRIBE, |out| {
            out.push(b'P');
            put_cstr(out, portal.as_bytes());
        })
    }

    /// Execute of the unnamed portal, all rows.
    pub fn execute(self) -> Self {
        self.execute_some("", 0)
    }

    /// Execute of a portal, as many rows at most; 0 for all.
    pub fn execute_some(mut self, portal: &str, rows_max: u32) -> Self {
        message::put_execute(&mut self.0, portal.as_bytes(), rows_max);
        self
    }

    /// Close of a statement.
    pub fn close(mut self, statement: &str) -> Self {
        message::put_statement_message(&mut self.0, frontend::CLOSE, statement.as_bytes());
        self
    }

    /// Close of a portal.
    pub fn close_portal(self, portal: &str) -> Self {
        self.with(frontend::CLOSE, |out| {
            out.push(b'P');
            put_cstr(out, portal.as_bytes());
        })
    }

    /// Parse, Bind, Describe of the portal and Execute of the unnamed statement.
    pub fn unnamed(self, sql: &str, values: &[Option<&str>]) -> Self {
        self.parse("", sql).bind("", values).describe_portal("").execute()
    }

    /// Sync.
    pub fn sync(self) -> Self {
        self.with(frontend::SYNC, |_| {})
    }

    /// Flush.
    pub fn flush(self) -> Self {
        self.with(frontend::FLUSH, |_| {})
    }

    /// CopyData.
    pub fn copy_data(self, data: &[u8]) -> Self {
        self.with(frontend::COPY_DATA, |out| out.extend_from_slice(data))
    }

    /// CopyDone.
    pub fn copy_done(self) -> Self {
        self.with(frontend::COPY_DONE, |_| {})
    }

    /// CopyFail.
    pub fn copy_fail(self, why: &str) -> Self {
        self.with(frontend::COPY_FAIL, |out| put_cstr(out, why.as_bytes()))
    }

    /// FunctionCall, arguments and result in binary.
    pub fn call(self, function: u32, arguments: &[&[u8]]) -> Self {
        self.with(frontend::FUNCTION_CALL, |out| {
            out.extend_from_slice(&function.to_be_bytes());
            out.extend_from_slice(&[0, 1, 0, 1]);
            out.extend_from_slice(&(arguments.len() as u16).to_be_bytes());
            for argument in arguments {
                out.extend_from_slice(&(argument.len() as u32).to_be_bytes());
                out.extend_from_slice(argument);
            }
            out.extend_from_slice(&[0, 1]);
        })
    }

    /// Terminate.
    pub fn terminate(self) -> Self {
        self.with(frontend::TERMINATE, |_| {})
    }

    /// Bytes as they are.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// The messages of another script.
    pub fn then(self, other: &Script) -> Self {
        self.bytes(&other.0)
    }
}

pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Its socket, if it goes by TCP.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(stream) => Some(stream),
            Self::Tls(stream) => Some(&stream.sock),
            Self::Unix(_) => None,
        }
    }

    fn set_read_timeout(&self, time: Duration) {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(Some(time)),
            Self::Tcp(stream) => stream.set_read_timeout(Some(time)),
            Self::Tls(stream) => stream.sock.set_read_timeout(Some(time)),
        }
        .unwrap();
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Unix(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// A connection.
pub struct Raw {
    pub(crate) stream: Stream,
    /// Bytes that have been read and not been looked at.
    read: Vec<u8>,
    /// The parameters that the server reported at login.
    pub parameters: Vec<(String, String)>,
    /// Process id and key of BackendKeyData.
    pub key: (u32, Vec<u8>),
    /// The stream may end within a message, as that of a backend does that is terminated while it sends.
    pub may_be_cut: bool,
}

impl Raw {
    /// Connects by TCP.
    pub fn tcp(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
        stream.set_nodelay(true).unwrap();
        Self::over(Stream::Tcp(stream))
    }

    /// Encrypts the connection; what the other side is asked for first is `asked`, an SSLRequest or nothing.
    ///
    /// # Errors
    ///
    /// That of the handshake.
    pub fn try_secure(self, tls: &ClientTls, asked: &[u8]) -> std::io::Result<Self> {
        self.try_secure_by((**tls.config()).clone(), asked)
    }

    /// The same by a configuration of the library's.
    pub fn try_secure_by(mut self, tls: ClientConfig, asked: &[u8]) -> std::io::Result<Self> {
        self.try_send(asked)?;
        if !asked.is_empty() {
            let answer = self.byte().ok_or(ErrorKind::UnexpectedEof)?;
            assert_eq!(answer, b'S', "there is TLS");
        }
        let Stream::Tcp(stream) = self.stream else { panic!("only by TCP") };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(tls.into(), name).map_err(std::io::Error::other)?;
        let mut stream = StreamOwned::new(connection, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self::over(Stream::Tls(Box::new(stream))))
    }

    /// Asks for TLS, and encrypts the connection.
    pub fn secure(self, tls: &ClientTls) -> Self {
        self.try_secure(tls, &startup::SSL_REQUEST_PACKET).unwrap_or_else(|error| panic!("TLS: {error}"))
    }

    /// The certificate that the other side has shown.
    pub fn certificate(&self) -> Option<&[u8]> {
        match &self.stream {
            Stream::Tls(stream) => Some(stream.conn.peer_certificates()?.first()?),
            _ => None,
        }
    }

    /// Connects by a Unix socket.
    pub fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::over(Stream::Unix(stream))
    }

    fn over(stream: Stream) -> Self {
        stream.set_read_timeout(PATIENCE);
        Self { stream, read: Vec::new(), parameters: Vec::new(), key: (0, Vec::new()), may_be_cut: false }
    }

    /// The client's own address, as the other side sees it.
    pub fn local_address(&self) -> SocketAddr {
        self.stream.tcp().expect("a Unix socket has no address").local_addr().unwrap()
    }

    /// Logs in where no password is asked for.
    pub fn login(mut self, user: &str, database: &str) -> Self {
        self.login_with(ProtocolVersion::V3_0, &[("user", user), ("database", database)]);
        self
    }

    /// Sends a StartupMessage, and reads up to ReadyForQuery or the end.
    pub fn login_with(&mut self, version: ProtocolVersion, parameters: &[(&str, &str)]) -> Vec<Message> {
        let mut packet = Vec::new();
        startup::put_session(&mut packet, version, parameters.iter().copied());
        self.send_bytes(&packet);
        let mut messages = Vec::new();
        while let Some(message) = self.message() {
            if message.tag == backend::PARAMETER_STATUS {
                let (name, value) = read_parameter_status(&message.body).unwrap();
                self.parameters.push((name.to_owned(), value.to_owned()));
            }
            if message.tag == backend::BACKEND_KEY_DATA {
                let (process_id, key) = message.body.split_first_chunk::<4>().unwrap();
                self.key = (u32::from_be_bytes(*process_id), key.to_vec());
            }
            let ready = message.tag == backend::READY_FOR_QUERY;
            messages.push(message);
            if ready {
                break;
            }
        }
        messages
    }

    /// The value that the server reported at login for a parameter.
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(n, _)| n == name).map_or("none", |(_, value)| value)
    }

    /// Sends a script.
    pub fn send(&mut self, script: &Script) {
        self.send_bytes(&script.0);
    }

    /// Sends bytes.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap_or_else(|error| panic!("sending {} bytes: {error}", bytes.len()));
    }

    /// Sends bytes to a peer that may be gone.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Sends bytes in pieces of that size, each a packet of its own.
    pub fn send_in_pieces(&mut self, bytes: &[u8], piece: usize) {
        for piece in bytes.chunks(piece) {
            self.send_bytes(piece);
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Says that no more will come.
    pub fn end_sending(&mut self) {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write).unwrap(),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write).unwrap(),
            Stream::Tls(stream) => {
                stream.conn.send_close_notify();
                stream.flush().unwrap();
                stream.sock.shutdown(Shutdown::Write).unwrap();
            }
        }
    }

    /// Reads what is there; `false` at the end of the stream.
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 65_536];
        let mut read = || loop {
            match self.stream.read(&mut chunk) {
                // By a signal, which says nothing of the stream.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        };
        match read() {
            Ok(bytes) => {
                self.read.extend_from_slice(&chunk[..bytes]);
                bytes > 0
            }
            // A backend that is terminated does not always say goodbye in TLS.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) => false,
            // By the kernel: a peer that is only silent is `WouldBlock`. And one that was reset behind its end.
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::BrokenPipe) => false,
            Err(error) => panic!("nothing more came ({error}); unread: {} bytes", self.read.len()),
        }
    }

    /// One byte, or why there is none.
    pub fn try_byte(&mut self) -> std::io::Result<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    /// One byte, as SSLRequest is answered; `None` at the end.
    pub fn byte(&mut self) -> Option<u8> {
        while self.read.is_empty() {
            if !self.fill() {
                return None;
            }
        }
        Some(self.read.remove(0))
    }

    /// The next message; `None` at the end of the stream.
    pub fn message(&mut self) -> Option<Message> {
        loop {
            if let Some(header) = self.read.first_chunk::<5>() {
                let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
                if self.read.len() > length {
                    let rest = self.read.split_off(length + 1);
                    let whole = std::mem::replace(&mut self.read, rest);
                    return Some(Message { tag: whole[0], body: whole[5..].to_vec() });
                }
                self.read.reserve(length);
            }
            if !self.fill() {
                assert!(self.may_be_cut || self.read.is_empty(), "the stream ended inside a message: {:?}", self.read);
                return None;
            }
        }
    }

    /// Whether the beginning of a message has come, and no more.
    pub fn is_amid_message(&self) -> bool {
        !self.read.is_empty()
    }

    /// The next `count` messages; fewer if the stream ends.
    pub fn messages(&mut self, count: usize) -> Vec<Message> {
        (0..count).map_while(|_| self.message()).collect()
    }

    /// Messages up to and with a number of ReadyForQuery, or up to the end of the stream.
    pub fn until_ready(&mut self, times: usize) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut seen = 0;
        while seen < times {
            let Some(message) = self.message() else { break };
            seen += usize::from(message.tag == backend::READY_FOR_QUERY);
            messages.push(message);
        }
        messages
    }

    /// Messages up to the end of the stream.
    pub fn until_end(&mut self) -> Vec<Message> {
        std::iter::from_fn(|| self.message()).collect()
    }

    /// Sends a script, and gives the transcript up to one ReadyForQuery.
    pub fn talk(&mut self, script: &Script) -> String {
        self.talk_to(script, 1)
    }

    /// Sends a script, and gives the transcript up to a number of ReadyForQuery.
    pub fn talk_to(&mut self, script: &Script, times: usize) -> String {
        self.send(script);
        transcript(&self.until_ready(times))
    }

    /// Runs a query, and gives the transcript.
    pub fn query(&mut self, sql: &str) -> String {
        self.talk(&Script::new().query(sql))
    }

    /// The first value of a query's first row.
    pub fn value(&mut self, sql: &str) -> String {
        self.send(&Script::new().query(sql));
        let messages = self.until_ready(1);
        let row = messages.iter().find(|message| message.tag == backend::DATA_ROW);
        let row = row.unwrap_or_else(|| panic!("{sql}: {}", transcript(&messages)));
        row.values()[0].as_deref().map_or_else(|| "NULL".to_owned(), text)
    }

    /// The process id of the backend that answers now.
    pub fn backend(&mut self) -> u32 {
        self.value("SELECT pg_backend_pid()").parse().unwrap()
    }

    /// Whether nothing comes for a while.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        if !self.read.is_empty() {
            return false;
        }
        let mut byte = [0];
        self.stream.set_read_timeout(time);
        let got = self.stream.read(&mut byte);
        self.stream.set_read_timeout(PATIENCE);
        match got {
            Ok(bytes) => {
                self.read.extend_from_slice(&byte[..bytes]);
                false
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// Sends a CancelRequest for this connection's key, over another connection made by `connect`.
    pub fn cancel(&self, mut over: Raw) {
        let mut packet = Vec::new();
        startup::put_cancel(&mut packet, self.key.0, &self.key.1);
        // One that is not let in is told nothing, as every one.
        let _ = over.try_send(&packet);
        assert_eq!(over.until_end(), []);
    }
}
