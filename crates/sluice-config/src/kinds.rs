//! The kinds of values that keys take: how each is described in the reference, and how it is read.
//!
//! A kind looks at one value only; what values may stand together is in `rules`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use sluice_control::{address::Network, cluster::Rest};
use toml_edit::{Item, Value};

use crate::{Secret, report::Fault, units};

/// PostgreSQL's limit for names (`NAMEDATALEN - 1`), in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 63;

/// The longest password that is accepted, in bytes: PgBouncer's, so that its files of users are read.
pub(crate) const PASSWORD_BYTES_MAX: usize = 2047;

/// A kind of value.
pub(crate) trait Kind: Sync {
    /// The value that the program gets.
    type Value;

    /// The reference's words about it, in Markdown.
    fn describe(&self) -> String;

    /// Reads a value, or says what is wrong with it.
    fn read(&self, value: &Value) -> Result<Self::Value, Fault>;

    /// A value as [`Kind::read`] reads it; `None` if TOML can't hold it: a path that is not UTF-8.
    fn write(&self, value: &Self::Value) -> Option<Value>;
}

/// A whole number.
pub(crate) struct Integer {
    pub(crate) min: u32,
    pub(crate) max: u32,
}

/// `"auto"` or a whole number; `"auto"` is `None`.
pub(crate) struct AutoOrInteger {
    pub(crate) min: u16,
    pub(crate) max: u16,
}

/// A duration with its unit.
pub(crate) struct Time {
    pub(crate) min: Duration,
    pub(crate) max: Duration,
}

/// A size with its unit, in bytes.
pub(crate) struct Size {
    pub(crate) min: u32,
    pub(crate) max: u32,
}

/// `true` or `false`.
pub(crate) struct Flag;

/// One of a few words.
pub(crate) struct Words<T: 'static>(pub(crate) &'static [(&'static str, T)]);

/// A text that is not empty.
pub(crate) struct Text {
    pub(crate) bytes_max: usize,
}

/// Names: a list, of which `read` takes one element and `Section::read_list` the whole.
pub(crate) struct Names {
    pub(crate) count_max: usize,
}

/// A password; messages do not show it.
pub(crate) struct Password;

/// A path; relative ones start at the folder of the configuration file.
pub(crate) struct FilePath;

/// Addresses to listen on: a list, of which `read` takes one element and `Section::read_list` the whole.
pub(crate) struct Addresses {
    pub(crate) count_max: usize,
}

/// Networks: a list, of which `read` takes one element and `Section::read_list` the whole.
pub(crate) struct Networks {
    pub(crate) count_max: usize,
}

/// One IP address.
pub(crate) struct Ip;

/// A name of letters, digits, hyphens and underscores.
pub(crate) struct Word {
    pub(crate) bytes_max: usize,
}

/// Lines of an access file: a list, of which `read` takes one element and `Section::read_list` the whole.
pub(crate) struct Lines {
    pub(crate) count_max: usize,
}

/// The addresses of members' REST interfaces: a list, of which `read` takes one element and `Section::read_list` the
/// whole.
pub(crate) struct RestUrls {
    pub(crate) count_max: usize,
}

/// The host of a server: a folder with its socket, a name, or an address.
pub(crate) struct Host;

/// A server without its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostValue {
    Dir(PathBuf),
    Name(String),
}

impl Kind for Integer {
    type Value = u32;

    fn describe(&self) -> String {
        format!("whole number, {} to {}", self.min, self.max)
    }

    fn read(&self, value: &Value) -> Result<u32, Fault> {
        let remedy = || format!("write a whole number from {} to {}, without quotes", self.min, self.max);
        let number = value.as_integer().ok_or_else(|| wrong_type("a whole number", value, remedy()))?;
        let fits = u32::try_from(number).ok().filter(|number| (self.min..=self.max).contains(number));
        fits.ok_or_else(|| Fault::new(format!("{number} is out of range"), remedy()))
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some(i64::from(*value).into())
    }
}

impl Kind for AutoOrInteger {
    type Value = Option<u16>;

    fn describe(&self) -> String {
        format!("`\"auto\"`, or whole number, {} to {}", self.min, self.max)
    }

    fn read(&self, value: &Value) -> Result<Option<u16>, Fault> {
        if value.as_str() == Some("auto") {
            return Ok(None);
        }
        let remedy = || format!("write \"auto\", or a whole number from {} to {} without quotes", self.min, self.max);
        let number = value.as_integer().ok_or_else(|| wrong_type("\"auto\" or a whole number", value, remedy()))?;
        let fits = u16::try_from(number).ok().filter(|number| (self.min..=self.max).contains(number));
        fits.map(Some).ok_or_else(|| Fault::new(format!("{number} is out of range"), remedy()))
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some(value.map_or_else(|| "auto".into(), |number| i64::from(number).into()))
    }
}

impl Kind for Time {
    type Value = Duration;

    fn describe(&self) -> String {
        format!("duration, {} to {}", units::show_duration(self.min), units::show_duration(self.max))
    }

    fn read(&self, value: &Value) -> Result<Duration, Fault> {
        let text = value.as_str().ok_or_else(|| wrong_type("a duration", value, units::duration_remedy()))?;
        let duration = units::duration(text)?;
        if (self.min..=self.max).contains(&duration) {
            return Ok(duration);
        }
        let (min, max) = (units::show_duration(self.min), units::show_duration(self.max));
        Err(Fault::new(format!("{text:?} is out of range"), format!("write a duration from \"{min}\" to \"{max}\"")))
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some(units::show_duration(*value).into())
    }
}

impl Kind for Size {
    type Value = u32;

    fn describe(&self) -> String {
        format!("size, {} to {}", units::show_size(self.min.into()), units::show_size(self.max.into()))
    }

    fn read(&self, value: &Value) -> Result<u32, Fault> {
        let text = value.as_str().ok_or_else(|| wrong_type("a size", value, units::size_remedy()))?;
        let fits = u32::try_from(units::size(text)?).ok().filter(|size| (self.min..=self.max).contains(size));
        fits.ok_or_else(|| {
            let (min, max) = (units::show_size(self.min.into()), units::show_size(self.max.into()));
            Fault::new(format!("{text:?} is out of range"), format!("write a size from \"{min}\" to \"{max}\""))
        })
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some(units::show_size((*value).into()).into())
    }
}

impl Kind for Flag {
    type Value = bool;

    fn describe(&self) -> String {
        "`true` or `false`".to_owned()
    }

    fn read(&self, value: &Value) -> Result<bool, Fault> {
        value.as_bool().ok_or_else(|| wrong_type("true or false", value, "write true or false, without quotes"))
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some((*value).into())
    }
}

impl<T: Copy + PartialEq + Sync + 'static> Kind for Words<T> {
    type Value = T;

    fn describe(&self) -> String {
        self.list("`\"", "\"`")
    }

    fn read(&self, value: &Value) -> Result<T, Fault> {
        let remedy = || format!("write {}", self.list("\"", "\""));
        let text = value.as_str().ok_or_else(|| wrong_type("a word in quotes", value, remedy()))?;
        let found = self.0.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value).ok_or_else(|| Fault::new(format!("unknown word {}", cut(text)), remedy()))
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        self.0.iter().find(|(_, known)| known == value).map(|(word, _)| (*word).into())
    }
}

impl<T> Words<T> {
    fn list(&self, open: &str, close: &str) -> String {
        let words: Vec<String> = self.0.iter().map(|(word, _)| format!("{open}{word}{close}")).collect();
        match words.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => words.concat(),
        }
    }
}

impl Kind for Text {
    type Value = String;

    fn describe(&self) -> String {
        format!("text, at most {} bytes", self.bytes_max)
    }

    fn read(&self, value: &Value) -> Result<String, Fault> {
        let text = value.as_str().ok_or_else(|| wrong_type("a text", value, "write it in quotes"))?;
        plain_text(text, self.bytes_max)?;
        Ok(text.to_owned())
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some(value.as_str().into())
    }
}

impl Kind for Names {
    type Value = String;

    fn describe(&self) -> String {
        format!("list of names, 1 to {}", self.count_max)
    }

    fn read(&self, value: &Value) -> Result<String, Fault> {
        Text { bytes_max: NAME_BYTES_MAX }.read(value)
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some(value.as_str().into())
    }
}

impl Kind for Password {
    type Value = Secret;

    fn describe(&self) -> String {
        format!("text, at most {PASSWORD_BYTES_MAX} bytes")
    }

    fn read(&self, value: &Value) -> Result<Secret, Fault> {
        let fault = || Fault::new("a password in quotes was expected", "write it in quotes");
        let text = value.as_str().ok_or_else(fault)?;
        plain_text(text, PASSWORD_BYTES_MAX)?;
        Ok(Secret(text.to_owned()))
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some(value.0.as_str().into())
    }
}

impl Kind for FilePath {
    type Value = PathBuf;

    fn describe(&self) -> String {
        "path".to_owned()
    }

    fn read(&self, value: &Value) -> Result<PathBuf, Fault> {
        let text = value.as_str().ok_or_else(|| wrong_type("a path", value, "write the path in quotes"))?;
        // `PATH_MAX` of Linux.
        plain_text(text, 4095)?;
        Ok(PathBuf::from(text))
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        value.to_str().map(Value::from)
    }
}

impl Kind for Addresses {
    type Value = SocketAddr;

    fn describe(&self) -> String {
        format!("list of `\"address:port\"`, 1 to {}", self.count_max)
    }

    fn read(&self, value: &Value) -> Result<SocketAddr, Fault> {
        let form = "write an IP address and a port, such as \"127.0.0.1:6432\" or \"[::1]:6432\"";
        let text = value.as_str().ok_or_else(|| wrong_type("an address with a port", value, form))?;
        text.parse().map_err(|_| {
            let remedy = match text.rsplit_once(':') {
                Some(("*" | "", port)) => format!("write \"0.0.0.0:{port}\" for all IPv4 addresses of this host"),
                Some(("localhost", port)) => format!("write \"127.0.0.1:{port}\""),
                _ => form.to_owned(),
            };
            Fault::new(format!("{} is not an address with a port", cut(text)), remedy)
        })
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some(value.to_string().into())
    }
}

impl Kind for Networks {
    type Value = Network;

    fn describe(&self) -> String {
        format!("list of IP addresses and networks, 1 to {}", self.count_max)
    }

    fn read(&self, value: &Value) -> Result<Network, Fault> {
        let form = "write an IP address, or a network with its number of bits, such as \"10.0.0.0/8\"";
        let text = value.as_str().ok_or_else(|| wrong_type("an address or a network", value, form))?;
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let network = address.parse::<IpAddr>().ok().and_then(|address| match bits {
            None => Some((address, Network::of(address))),
            Some(bits) => Some((address, Network::new(address, bits.parse().ok()?)?)),
        });
        let (address, network) =
            network.ok_or_else(|| Fault::new(format!("{} is neither an address nor a network", cut(text)), form))?;
        if network.address() != address {
            let what = format!("{text} has bits behind those of the network");
            return Err(Fault::new(what, format!("write \"{network}\", or \"{address}\" for that address alone")));
        }
        if address.to_canonical() != address {
            let remedy = format!("write \"{}\"", address.to_canonical());
            return Err(Fault::new(format!("{text} is IPv4 in the form of IPv6"), remedy));
        }
        Ok(network)
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some(value.to_string().into())
    }
}

impl Kind for Ip {
    type Value = IpAddr;

    fn describe(&self) -> String {
        "IP address".to_owned()
    }

    fn read(&self, value: &Value) -> Result<IpAddr, Fault> {
        let form = "write an IP address, such as \"10.0.0.1\" or \"fd00::1\"";
        let text = value.as_str().ok_or_else(|| wrong_type("an IP address", value, form))?;
        let address: IpAddr =
            text.parse().map_err(|_| Fault::new(format!("{} is not an IP address", cut(text)), form))?;
        if address.is_unspecified() || address.is_multicast() || address.to_canonical() != address {
            return Err(Fault::new(format!("{text} is the address of no host"), form));
        }
        Ok(address)
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some(value.to_string().into())
    }
}

impl Kind for Word {
    type Value = String;

    fn describe(&self) -> String {
        format!("name of at most {} small letters, digits, `-` and `_`", self.bytes_max)
    }

    fn read(&self, value: &Value) -> Result<String, Fault> {
        let form = format!("write at most {} of a to z, 0 to 9, - and _, a letter first", self.bytes_max);
        let text = value.as_str().ok_or_else(|| wrong_type("a name", value, form.clone()))?;
        plain_text(text, self.bytes_max)?;
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
        if !text.bytes().all(is_plain) || !text.as_bytes()[0].is_ascii_lowercase() {
            return Err(Fault::new(format!("{} is not such a name", cut(text)), form));
        }
        Ok(text.to_owned())
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some(value.as_str().into())
    }
}

impl Kind for Lines {
    type Value = String;

    fn describe(&self) -> String {
        format!("list of lines, 1 to {}", self.count_max)
    }

    fn read(&self, value: &Value) -> Result<String, Fault> {
        let form = "write one line of pg_hba.conf in quotes, such as \"hostssl app web 10.1.0.0/16 scram-sha-256\"";
        let text = value.as_str().ok_or_else(|| wrong_type("a line", value, form))?;
        plain_text(text, 4096)?;
        if text.contains(['\n', '\r']) {
            return Err(Fault::new("several lines", "write each line as an element of its own"));
        }
        Ok(text.to_owned())
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some(value.as_str().into())
    }
}

impl Kind for RestUrls {
    type Value = Rest;

    fn describe(&self) -> String {
        format!("list of URLs without a path, such as `\"http://10.0.0.1:8008\"`, 1 to {}", self.count_max)
    }

    fn read(&self, value: &Value) -> Result<Rest, Fault> {
        let form = "write the scheme, the host and the port of a member's REST interface, such as \
                    \"http://10.0.0.1:8008\" or \"https://db1:8008\"";
        let text = value.as_str().ok_or_else(|| wrong_type("a URL", value, form))?;
        Rest::parse(text).ok_or_else(|| {
            // It may hold a password: what stands behind the scheme is not repeated.
            Fault::new("not the URL of a member's REST interface", form)
        })
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some(value.to_string().into())
    }
}

impl Kind for Host {
    type Value = HostValue;

    fn describe(&self) -> String {
        "folder of a Unix socket (begins with `/`), host name, or IP address".to_owned()
    }

    fn read(&self, value: &Value) -> Result<HostValue, Fault> {
        let form = "write the folder of its Unix socket, such as \"/var/run/postgresql\", a host name, or an address";
        let text = value.as_str().ok_or_else(|| wrong_type("a host", value, form))?;
        plain_text(text, 253)?;
        if text.starts_with('/') {
            return Ok(HostValue::Dir(PathBuf::from(text)));
        }
        if is_host(text) {
            return Ok(HostValue::Name(text.to_owned()));
        }
        // A URL can hold a password: it is not repeated.
        if text.contains("://") {
            return Err(Fault::new("a URL is not a host", "write host, port, dbname and user as keys of their own"));
        }
        let remedy = match text.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() && is_host(host.trim_matches(['[', ']'])) => {
                format!("write host = \"{}\" and port = {port}", host.trim_matches(['[', ']']))
            }
            _ => form.to_owned(),
        };
        Err(Fault::new(format!("{} is neither a folder, a host name nor an address", cut(text)), remedy))
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        match value {
            HostValue::Dir(dir) => dir.to_str().map(Value::from),
            HostValue::Name(name) => Some(name.as_str().into()),
        }
    }
}

fn is_host(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok() || is_host_name(text)
}

/// Letters, digits, hyphens and underscores in parts of at most 63, and not all digits: that is a broken address.
fn is_host_name(text: &str) -> bool {
    let is_part = |part: &str| {
        (1..=63).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    name.split('.').all(is_part) && !name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// The rule for every text: neither empty, nor too long, nor with a zero byte, which ends texts in the protocol.
pub(crate) fn plain_text(text: &str, bytes_max: usize) -> Result<(), Fault> {
    if text.is_empty() {
        return Err(Fault::new("empty", "write a value, or leave the key out where it is optional"));
    }
    if text.len() > bytes_max {
        return Err(Fault::new(format!("{} bytes long", text.len()), format!("at most {bytes_max} are possible")));
    }
    if text.contains('\0') {
        return Err(Fault::new("contains a zero byte", "leave it out: PostgreSQL's protocol can't carry it"));
    }
    Ok(())
}

fn wrong_type(expected: &str, value: &Value, remedy: impl Into<String>) -> Fault {
    Fault::new(format!("{expected} was expected, but this is {}", found(value)), remedy)
}

/// The value that stands there, in words.
pub(crate) fn found_item(item: &Item) -> String {
    match item {
        Item::None => "nothing".to_owned(),
        Item::Value(value) => found(value),
        Item::Table(_) => "a table".to_owned(),
        Item::ArrayOfTables(_) => "a list of tables".to_owned(),
    }
}

fn found(value: &Value) -> String {
    match value {
        Value::String(text) => format!("the text {}", cut(text.value())),
        Value::Integer(number) => format!("the number {}", number.value()),
        Value::Float(number) => format!("the number {}", number.value()),
        Value::Boolean(flag) => flag.value().to_string(),
        Value::Datetime(_) => "a date or time".to_owned(),
        Value::Array(list) if list.is_empty() => "an empty list".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::InlineTable(_) => "a table".to_owned(),
    }
}

/// A text in quotes, cut where it is long.
pub(crate) fn cut(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 60;
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
