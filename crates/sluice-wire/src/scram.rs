//! SCRAM-SHA-256 (RFC 5802, RFC 7677; PostgreSQL documentation, 55.3.1), both ends, with channel binding to a server's
//! certificate or without.
//!
//! A server that holds a verifier computes two HMACs and a hash for a login; PBKDF2 runs only where a plain password
//! is all there is, and its result is a [`Keys`] or a [`Verifier`] to keep.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use thiserror::Error;

use crate::saslprep;

/// The beginning of a verifier as PostgreSQL stores it.
pub(crate) const STORED_PREFIX: &str = "SCRAM-SHA-256$";

/// The mechanism's name.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// The name of the mechanism with channel binding.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// The one type of channel binding: to the server's certificate (RFC 5929, section 4).
const BINDING_TYPE: &str = "tls-server-end-point";

/// The iterations PostgreSQL uses for a new secret.
pub const ITERATIONS_DEFAULT: u32 = 4096;

/// More iterations than this are not computed for anybody: they would only keep the processor busy. A verifier with more
/// of them is as good as any: it is its client that computes them.
pub const ITERATIONS_MAX: u32 = 1_000_000;

type Key = [u8; 32];

fn mechanism(plus: &bool) -> &'static str {
    if *plus { MECHANISM_PLUS } else { MECHANISM }
}

/// Reasons why an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ScramError {
    /// A message that is not SCRAM, or not of this exchange.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// The client has chosen a mechanism and goes by the other one.
    #[error("malformed SCRAM message: the client selected {}, and its message is of the other mechanism", mechanism(.plus))]
    OtherMechanism {
        /// Whether it has chosen the one with channel binding.
        plus: bool,
    },
    /// The client thinks that there is no channel binding to be had, and there is: somebody has kept that from it.
    #[error("SCRAM channel binding negotiation error")]
    Downgraded,
    /// A key would take more rounds of PBKDF2 than are computed for anybody.
    #[error("the secret has more than {ITERATIONS_MAX} iterations")]
    TooManyIterations,
    /// The client wants to be somebody else than it proves to be.
    #[error("client uses authorization identity, but it is not supported")]
    AuthorizationIdentity,
    /// The client demands an extension.
    #[error("client requires an unsupported SCRAM extension")]
    Extension,
    /// The client's nonce has other characters than those that can be printed in ASCII.
    #[error("non-printable characters in SCRAM nonce")]
    NonPrintable,
    /// A type of channel binding that is not known.
    #[error("unsupported SCRAM channel-binding type")]
    BindingType,
    /// The client has bound itself to another connection.
    #[error("SCRAM channel binding check failed")]
    Unbound,
    /// The proof or the signature is wrong.
    #[error("the password does not match")]
    Mismatch,
}

/// The form in which a server stores a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    /// Rounds of PBKDF2.
    pub iterations: u32,
    /// The salt, as bytes.
    pub salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

/// The keys that a client needs to log in, in place of the password: with the verifier's salt and iterations.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    client_key: Key,
    server_key: Key,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verifier(…)")
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(…)")
    }
}

impl Verifier {
    /// Reads PostgreSQL's form, `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`.
    pub fn parse(text: &str) -> Option<Self> {
        let (parameters, keys) = text.strip_prefix(STORED_PREFIX)?.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let iterations = iterations.parse::<i32>().ok().filter(|iterations| *iterations > 0)?.unsigned_abs();
        let key = |text| BASE64.decode(text).ok()?.try_into().ok();
        let salt = BASE64.decode(salt).ok()?;
        Some(Self { iterations, salt, stored_key: key(stored_key)?, server_key: key(server_key)? })
    }

    /// The verifier of a password. Runs PBKDF2.
    pub fn derive(password: &str, salt: &[u8], iterations: u32) -> Self {
        Keys::derive(password, salt, iterations).verifier(salt, iterations)
    }

    /// A verifier that no password matches, for a user that does not exist: who asks can't tell the difference. The
    /// salt depends on `seed` and `user` alone, as a real one would stay the same.
    pub fn mock(seed: &[u8], user: &str) -> Self {
        let salt = hmac(seed, &[b"salt", user.as_bytes()])[..16].to_vec();
        let nothing = hmac(seed, &[b"key", user.as_bytes()]);
        Self { iterations: ITERATIONS_DEFAULT, salt, stored_key: nothing, server_key: nothing }
    }

    /// PostgreSQL's form.
    pub fn to_text(&self) -> String {
        format!(
            "SCRAM-SHA-256${}:{}${}:{}",
            self.iterations,
            BASE64.encode(&self.salt),
            BASE64.encode(self.stored_key),
            BASE64.encode(self.server_key)
        )
    }
}

impl Keys {
    /// The keys of a password. Runs PBKDF2.
    pub fn derive(password: &str, salt: &[u8], iterations: u32) -> Self {
        let prepared = saslprep::prepared(password);
        let mut salted = [0; 32];
        pbkdf2::pbkdf2_hmac::<Sha256>(prepared.as_bytes(), salt, iterations, &mut salted);
        Self { client_key: hmac(&salted, &[b"Client Key"]), server_key: hmac(&salted, &[b"Server Key"]) }
    }

    fn verifier(&self, salt: &[u8], iterations: u32) -> Verifier {
        Verifier {
            iterations,
            salt: salt.to_vec(),
            stored_key: Sha256::digest(self.client_key).into(),
            server_key: self.server_key,
        }
    }
}

/// The channel binding of an exchange, as the server's end sees it. The bytes are the hash of its certificate.
#[derive(Debug, Clone, Copy)]
pub enum ServerBinding<'a> {
    /// There is none to be had.
    None,
    /// The client could have chosen it and has not.
    Unused,
    /// The client has chosen it.
    Used(&'a [u8]),
}

/// The server's end, after the client's first message.
#[derive(Debug)]
pub struct ServerExchange {
    verifier: Verifier,
    /// The bytes that the client has to repeat at the end: its first words, and what it is bound to.
    binding: Vec<u8>,
    is_bound: bool,
    auth_message: Vec<u8>,
    nonce: String,
}

impl ServerExchange {
    /// Takes the client's first message; gives the exchange and the challenge to send.
    pub fn begin(
        verifier: Verifier,
        binding: ServerBinding<'_>,
        client_first: &[u8],
        random: [u8; 18],
    ) -> Result<(Self, String), ScramError> {
        let mut attributes = Attributes::of(client_first)?;
        match (client_first.first(), binding) {
            (Some(b'n' | b'y'), ServerBinding::Used(_)) => return Err(ScramError::OtherMechanism { plus: true }),
            (Some(b'y'), ServerBinding::Unused) => return Err(ScramError::Downgraded),
            (Some(b'n' | b'y'), _) => {
                attributes.skip(1);
                attributes.comma()?;
            }
            (Some(b'p'), ServerBinding::Used(_)) => {
                if attributes.named(b'p')? != BINDING_TYPE.as_bytes() {
                    return Err(ScramError::BindingType);
                }
            }
            (Some(b'p'), _) => return Err(ScramError::OtherMechanism { plus: false }),
            _ => return Err(ScramError::Malformed("no channel binding flag")),
        }
        if attributes.left().starts_with(b"a") {
            return Err(ScramError::AuthorizationIdentity);
        }
        attributes.comma()?;
        let bare = attributes.left();
        if bare.starts_with(b"m") {
            return Err(ScramError::Extension);
        }
        // The user's name is that of the StartupMessage; the one here is ignored, as PostgreSQL does.
        attributes.named(b'n')?;
        let client_nonce = std::str::from_utf8(attributes.named(b'r')?).map_err(|_| ScramError::NonPrintable)?;
        if !client_nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ScramError::NonPrintable);
        }
        // Extensions are ignored.
        while !attributes.left().is_empty() {
            attributes.any()?;
        }
        let nonce = format!("{client_nonce}{}", BASE64.encode(random));
        let challenge = format!("r={nonce},s={},i={}", BASE64.encode(&verifier.salt), verifier.iterations);
        let auth_message = [bare, b",", challenge.as_bytes()].concat();
        let header = &client_first[..client_first.len() - bare.len()];
        let (bound_to, is_bound) = match binding {
            ServerBinding::Used(end_point) => (end_point, true),
            ServerBinding::None | ServerBinding::Unused => (&[][..], false),
        };
        Ok((Self { verifier, binding: [header, bound_to].concat(), is_bound, auth_message, nonce }, challenge))
    }

    /// Takes the client's last message; gives the final message to send, and the keys that its proof reveals.
    pub fn finish(self, client_final: &[u8]) -> Result<(String, Keys), ScramError> {
        let mut attributes = Attributes::of(client_final)?;
        if attributes.named(b'c')? != BASE64.encode(&self.binding).as_bytes() {
            return Err(match self.is_bound {
                true => ScramError::Unbound,
                false => ScramError::Malformed("the channel binding is not this exchange's"),
            });
        }
        let nonce = attributes.named(b'r')?;
        // Extensions are ignored, and signed.
        let (unproven, proof) = loop {
            let before = client_final.len() - attributes.left().len();
            if let (b'p', proof) = attributes.any()? {
                break (&client_final[..before - 1], proof);
            }
        };
        let proof: Key = BASE64
            .decode(proof)
            .ok()
            .and_then(|p| p.try_into().ok())
            .ok_or(ScramError::Malformed("the proof has a wrong length"))?;
        if !attributes.left().is_empty() {
            return Err(ScramError::Malformed("something follows the proof"));
        }
        if nonce != self.nonce.as_bytes() {
            return Err(ScramError::Malformed("the nonce is not this exchange's"));
        }
        let auth_message = [&self.auth_message[..], b",", unproven].concat();
        let signature = hmac(&self.verifier.stored_key, &[&auth_message]);
        let client_key = xor(proof, &signature);
        let derived: Key = Sha256::digest(client_key).into();
        if !bool::from(derived.ct_eq(&self.verifier.stored_key)) {
            return Err(ScramError::Mismatch);
        }
        let server_signature = hmac(&self.verifier.server_key, &[&auth_message]);
        let keys = Keys { client_key, server_key: self.verifier.server_key };
        Ok((format!("v={}", BASE64.encode(server_signature)), keys))
    }
}

/// The secret that the client's end proves its identity with.
#[derive(Debug, Clone)]
pub enum ClientSecret {
    /// Keys seen or derived before: no PBKDF2.
    Keys(Keys),
    /// The password.
    Password(String),
}

/// The channel binding of an exchange, as the client's end sees it.
#[derive(Debug, Clone, Copy)]
pub enum ClientBinding<'a> {
    /// There is nothing to bind to.
    None,
    /// There is, and the server has not offered it.
    Unoffered,
    /// To the server's certificate, which has this hash.
    To(&'a [u8]),
}

impl ClientBinding<'_> {
    /// The mechanism's name.
    pub fn mechanism(self) -> &'static str {
        mechanism(&matches!(self, Self::To(_)))
    }

    /// The beginning of the first message.
    fn header(self) -> String {
        match self {
            Self::None => "n,,".to_owned(),
            Self::Unoffered => "y,,".to_owned(),
            Self::To(_) => format!("p={BINDING_TYPE},,"),
        }
    }
}

/// The client's end, after its first message was sent.
#[derive(Debug)]
pub struct ClientExchange {
    secret: ClientSecret,
    /// The bytes that it repeats at the end: its first words, and what it is bound to.
    binding: Vec<u8>,
    nonce: String,
}

/// The client's end, waiting for the server's signature.
#[derive(Debug)]
pub struct ClientFinal {
    server_signature: Key,
}

impl ClientExchange {
    /// Begins an exchange; gives the first message to send.
    pub fn begin(secret: ClientSecret, binding: ClientBinding<'_>, random: [u8; 18]) -> (Self, String) {
        let nonce = BASE64.encode(random);
        let header = binding.header();
        let first = format!("{header}n=,r={nonce}");
        let mut bound = header.into_bytes();
        if let ClientBinding::To(end_point) = binding {
            bound.extend_from_slice(end_point);
        }
        (Self { secret, binding: bound, nonce }, first)
    }

    /// Takes the server's challenge; gives the message that answers it.
    pub fn answer(self, challenge: &[u8]) -> Result<(ClientFinal, String), ScramError> {
        let text = utf8(challenge)?;
        let nonce = attribute(text, 'r').ok_or(ScramError::Malformed("no nonce"))?;
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) {
            return Err(ScramError::Malformed("the nonce is not this exchange's"));
        }
        let salt = attribute(text, 's').and_then(|s| BASE64.decode(s).ok()).ok_or(ScramError::Malformed("no salt"))?;
        let iterations = attribute(text, 'i')
            .and_then(|iterations| iterations.parse().ok())
            .filter(|iterations| *iterations > 0)
            .ok_or(ScramError::Malformed("no iteration count"))?;
        let keys = match self.secret {
            ClientSecret::Keys(keys) => keys,
            ClientSecret::Password(_) if iterations > ITERATIONS_MAX => return Err(ScramError::TooManyIterations),
            ClientSecret::Password(password) => Keys::derive(&password, &salt, iterations),
        };
        let unproven = format!("c={},r={nonce}", BASE64.encode(&self.binding));
        let auth_message = format!("n=,r={},{text},{unproven}", self.nonce);
        let stored_key: Key = Sha256::digest(keys.client_key).into();
        let proof = xor(hmac(&stored_key, &[auth_message.as_bytes()]), &keys.client_key);
        let server_signature = hmac(&keys.server_key, &[auth_message.as_bytes()]);
        Ok((ClientFinal { server_signature }, format!("{unproven},p={}", BASE64.encode(proof))))
    }
}

impl ClientFinal {
    /// Checks the server's final message: a server that does not know the secret can't have signed it.
    pub fn verify(&self, server_final: &[u8]) -> Result<(), ScramError> {
        let signature = attribute(utf8(server_final)?, 'v').and_then(|v| BASE64.decode(v).ok());
        let signature = signature.ok_or(ScramError::Malformed("no server signature"))?;
        if bool::from(signature.ct_eq(&self.server_signature)) { Ok(()) } else { Err(ScramError::Mismatch) }
    }
}

/// The attributes of a client's message, `a=…,b=…`, in their order (`read_attr_value`, `read_any_attr`).
struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    fn of(message: &'a [u8]) -> Result<Self, ScramError> {
        match message {
            [] => Err(ScramError::Malformed("it is empty")),
            message if message.contains(&0) => Err(ScramError::Malformed("it has a zero byte")),
            message => Ok(Self(message)),
        }
    }

    fn left(&self) -> &'a [u8] {
        self.0
    }

    fn skip(&mut self, bytes: usize) {
        self.0 = &self.0[bytes..];
    }

    fn comma(&mut self) -> Result<(), ScramError> {
        self.0 = self.0.strip_prefix(b",").ok_or(ScramError::Malformed("a comma was expected"))?;
        Ok(())
    }

    /// The value of the next attribute, which has to be this one.
    fn named(&mut self, name: u8) -> Result<&'a [u8], ScramError> {
        if self.0.first() != Some(&name) {
            return Err(ScramError::Malformed("an attribute is missing, or out of order"));
        }
        self.any().map(|(_, value)| value)
    }

    /// The name and the value of the next attribute.
    fn any(&mut self) -> Result<(u8, &'a [u8]), ScramError> {
        let (name, rest) = match self.0 {
            [name, b'=', rest @ ..] if name.is_ascii_alphabetic() => (*name, rest),
            _ => return Err(ScramError::Malformed("an attribute was expected")),
        };
        let end = rest.iter().position(|byte| *byte == b',');
        let value = &rest[..end.unwrap_or(rest.len())];
        self.0 = end.map_or(&[], |end| &rest[end + 1..]);
        Ok((name, value))
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, ScramError> {
    std::str::from_utf8(bytes).map_err(|_| ScramError::Malformed("not valid UTF-8"))
}

/// The value of the attribute `name` in a list `a=…,b=…`.
fn attribute(list: &str, name: char) -> Option<&str> {
    list.split(',').find_map(|item| item.strip_prefix(name)?.strip_prefix('='))
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> Key {
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn xor(mut a: Key, b: &Key) -> Key {
    for (a, b) in a.iter_mut().zip(b) {
        *a ^= b;
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(secret: ClientSecret, verifier: Verifier) -> Result<Keys, ScramError> {
        exchange_bound(secret, verifier, ClientBinding::None, ServerBinding::None)
    }

    fn exchange_bound(
        secret: ClientSecret,
        verifier: Verifier,
        client: ClientBinding<'_>,
        server: ServerBinding<'_>,
    ) -> Result<Keys, ScramError> {
        let (client, first) = ClientExchange::begin(secret, client, [7; 18]);
        let (server, challenge) = ServerExchange::begin(verifier, server, first.as_bytes(), [9; 18])?;
        let (client, last) = client.answer(challenge.as_bytes())?;
        let (signature, keys) = server.finish(last.as_bytes())?;
        client.verify(signature.as_bytes())?;
        Ok(keys)
    }

    #[test]
    fn a_password_logs_in_and_reveals_keys_that_log_in_too() {
        let verifier = Verifier::derive("geheim", b"0123456789abcdef", 4096);
        let keys = exchange(ClientSecret::Password("geheim".into()), verifier.clone()).expect("the password is right");
        exchange(ClientSecret::Keys(keys), verifier).expect("the keys are right");
    }

    #[test]
    fn a_wrong_password_and_an_unknown_user_fail_alike() {
        let verifier = Verifier::derive("geheim", b"0123456789abcdef", 4096);
        let wrong = || ClientSecret::Password("falsch".into());
        assert_eq!(exchange(wrong(), verifier), Err(ScramError::Mismatch));
        assert_eq!(exchange(wrong(), Verifier::mock(b"seed", "nobody")), Err(ScramError::Mismatch));
    }

    /// The exchange printed in RFC 7677, section 3.
    #[test]
    fn computes_what_rfc_7677_prints() {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("base64");
        let keys = Keys::derive("pencil", &salt, 4096);
        let auth_message = "n=user,r=rOprNGfwEbeRWgbNEkqO,\
            r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
            c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let stored_key: Key = Sha256::digest(keys.client_key).into();
        let proof = xor(hmac(&stored_key, &[auth_message.as_bytes()]), &keys.client_key);
        assert_eq!(BASE64.encode(proof), "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        let signature = hmac(&keys.server_key, &[auth_message.as_bytes()]);
        assert_eq!(BASE64.encode(signature), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn both_ends_are_bound_to_the_same_certificate_or_say_why_not() {
        use ClientBinding as C;
        use ServerBinding as S;
        for (client, server, error) in [
            (C::None, S::None, None),
            (C::Unoffered, S::None, None),
            (C::To(b"one"), S::Used(b"one"), None),
            // A client that has no TLS library for it.
            (C::None, S::Unused, None),
            (C::Unoffered, S::Unused, Some(ScramError::Downgraded)),
            (C::To(b"one"), S::Used(b"two"), Some(ScramError::Unbound)),
            (C::To(b"one"), S::Unused, Some(ScramError::OtherMechanism { plus: false })),
            (C::To(b"one"), S::None, Some(ScramError::OtherMechanism { plus: false })),
            (C::None, S::Used(b"one"), Some(ScramError::OtherMechanism { plus: true })),
        ] {
            let verifier = Verifier::derive("known", b"0123456789abcdef", 4096);
            let outcome = exchange_bound(ClientSecret::Password("known".into()), verifier, client, server);
            assert_eq!(outcome.err(), error, "{client:?} {server:?}");
        }
        let verifier = Verifier::mock(b"seed", "user");
        let asked = ServerExchange::begin(verifier, S::Used(b"one"), b"p=tls-unique,,n=,r=abc", [0; 18]);
        assert_eq!(asked.err(), Some(ScramError::BindingType));
    }

    /// The first messages and the last ones that PostgreSQL takes, and those that it does not.
    #[test]
    fn a_client_s_messages_have_an_order() {
        let logs_in = |first: &[u8], last: &str| {
            let keys = Keys::derive("known", b"0123456789abcdef", 4096);
            let verifier = keys.verifier(b"0123456789abcdef", 4096);
            let (server, challenge) = ServerExchange::begin(verifier.clone(), ServerBinding::None, first, [9; 18])?;
            let last = last.replace("NONCE", attribute(&challenge, 'r').unwrap());
            let (unproven, behind) = last.split_once('|').unwrap_or((&last, ""));
            let signed = [&first[3..], b",", challenge.as_bytes(), b",", unproven.as_bytes()].concat();
            let proof = xor(hmac(&verifier.stored_key, &[&signed]), &keys.client_key);
            let last = format!("{unproven},p={}{behind}", BASE64.encode(proof));
            server.finish(last.as_bytes()).map(drop)
        };
        for (first, is_good) in [
            (&b"n,,n=,r=abc"[..], true),
            (b"n,,n=,r=", true),
            (b"n,,n=\xff,r=abc", true),
            (b"n,,n=,r=abc,x=1,", true),
            (b"n,,n=,r=abc,1=1", false),
            (b"n,,r=abc", false),
            (b"n,,r=abc,n=", false),
            (b"n,,x=1,n=,r=abc", false),
            (b"n,,n=,x=1,r=abc", false),
            (b"n,,nn,r=abc", false),
            (b"n,,n=\0,r=abc", false),
            (b"nn,,n=,r=abc", false),
            (b"n,b,n=,r=abc", false),
        ] {
            assert_eq!(logs_in(first, "c=biws,r=NONCE").is_ok(), is_good, "{}", first.escape_ascii());
        }
        // NONCE is the exchange's; what stands behind the bar comes behind the proof.
        for (last, is_good) in [
            ("c=biws,r=NONCE,x=1", true),
            ("c=biws,r=NONCE|,", true),
            ("c=biws,r=NONCE|,x=1", false),
            ("r=NONCE,c=biws", false),
            ("x=1,c=biws,r=NONCE", false),
            ("c=eSws,r=NONCE", false),
            ("c=biws,r=NONCEx", false),
        ] {
            assert_eq!(logs_in(b"n,,n=,r=abc", last).is_ok(), is_good, "{last}");
        }
    }

    #[test]
    fn a_verifier_reads_and_writes_postgresql_form() {
        let verifier = Verifier::derive("x", b"salt", 4096);
        assert_eq!(Verifier::parse(&verifier.to_text()), Some(verifier.clone()));
        let many = verifier.to_text().replace("4096", "2147483647");
        assert_eq!(Verifier::parse(&many).map(|verifier| verifier.iterations), Some(2_147_483_647));
        for bad in ["", "SCRAM-SHA-256$4096:AAAA$AAAA:AAAA", "SCRAM-SHA-256$0:AAAA$", "md5abc"] {
            assert_eq!(Verifier::parse(bad), None, "{bad}");
        }
    }
}
