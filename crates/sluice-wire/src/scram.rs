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

/// The mechanism's name.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// The name of the mechanism with channel binding.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// The one type of channel binding: to the server's certificate (RFC 5929, section 4).
const BINDING_TYPE: &str = "tls-server-end-point";

/// The iterations PostgreSQL uses for a new secret.
pub const ITERATIONS_DEFAULT: u32 = 4096;

/// More iterations than this are not computed for anybody: they would only keep the processor busy.
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
        let (parameters, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let iterations = iterations.parse().ok().filter(|i| (1..=ITERATIONS_MAX).contains(i))?;
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
        // As PostgreSQL does: a password that SASLprep refuses is used as it is.
        let prepared = stringprep::saslprep(password).unwrap_or_else(|_| password.into());
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
    auth_message: String,
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
        let text = utf8(client_first)?;
        let mut parts = text.splitn(3, ',');
        match (parts.next(), binding) {
            (Some("n" | "y"), ServerBinding::Used(_)) => return Err(ScramError::OtherMechanism { plus: true }),
            (Some("y"), ServerBinding::Unused) => return Err(ScramError::Downgraded),
            (Some("n" | "y"), _) => {}
            (Some(flag), _) if !flag.starts_with("p=") => {
                return Err(ScramError::Malformed("no channel binding flag"));
            }
            (Some(flag), ServerBinding::Used(_)) if flag[2..] == *BINDING_TYPE => {}
            (Some(_), ServerBinding::Used(_)) => return Err(ScramError::BindingType),
            (Some(_), _) => return Err(ScramError::OtherMechanism { plus: false }),
            (None, _) => return Err(ScramError::Malformed("no channel binding flag")),
        }
        let authzid = parts.next().ok_or(ScramError::Malformed("no GS2 header"))?;
        let bare = parts.next().ok_or(ScramError::Malformed("no GS2 header"))?;
        match authzid {
            "" => {}
            authzid if authzid.starts_with('a') => return Err(ScramError::AuthorizationIdentity),
            _ => return Err(ScramError::Malformed("unexpected attribute in the client's first message")),
        }
        if bare.starts_with('m') {
            return Err(ScramError::Extension);
        }
        // The user's name is that of the StartupMessage; the one here is ignored, as PostgreSQL does.
        let client_nonce = attribute(bare, 'r').filter(|n| !n.is_empty()).ok_or(ScramError::Malformed("no nonce"))?;
        if !client_nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ScramError::NonPrintable);
        }
        let nonce = format!("{client_nonce}{}", BASE64.encode(random));
        let challenge = format!("r={nonce},s={},i={}", BASE64.encode(&verifier.salt), verifier.iterations);
        let auth_message = format!("{bare},{challenge}");
        let header = &text.as_bytes()[..text.len() - bare.len()];
        let (bound_to, is_bound) = match binding {
            ServerBinding::Used(end_point) => (end_point, true),
            ServerBinding::None | ServerBinding::Unused => (&[][..], false),
        };
        Ok((Self { verifier, binding: [header, bound_to].concat(), is_bound, auth_message, nonce }, challenge))
    }

    /// Takes the client's last message; gives the final message to send, and the keys that its proof reveals.
    pub fn finish(self, client_final: &[u8]) -> Result<(String, Keys), ScramError> {
        let text = utf8(client_final)?;
        let (unproven, proof) = text.rsplit_once(",p=").ok_or(ScramError::Malformed("no proof"))?;
        let binding = attribute(unproven, 'c').ok_or(ScramError::Malformed("no channel binding"))?;
        if attribute(unproven, 'r') != Some(&self.nonce) {
            return Err(ScramError::Malformed("the nonce is not this exchange's"));
        }
        if BASE64.decode(binding).ok().as_deref() != Some(&self.binding) {
            return Err(match self.is_bound {
                true => ScramError::Unbound,
                false => ScramError::Malformed("the channel binding is not this exchange's"),
            });
        }
        let proof: Key = BASE64
            .decode(proof)
            .ok()
            .and_then(|p| p.try_into().ok())
            .ok_or(ScramError::Malformed("the proof has a wrong length"))?;
        let auth_message = format!("{},{unproven}", self.auth_message);
        let signature = hmac(&self.verifier.stored_key, &[auth_message.as_bytes()]);
        let client_key = xor(proof, &signature);
        let derived: Key = Sha256::digest(client_key).into();
        if !bool::from(derived.ct_eq(&self.verifier.stored_key)) {
            return Err(ScramError::Mismatch);
        }
        let server_signature = hmac(&self.verifier.server_key, &[auth_message.as_bytes()]);
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
            .and_then(|i| i.parse().ok())
            .filter(|i| (1..=ITERATIONS_MAX).contains(i))
            .ok_or(ScramError::Malformed("no iteration count, or one that is out of range"))?;
        let keys = match self.secret {
            ClientSecret::Keys(keys) => keys,
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

    #[test]
    fn a_verifier_reads_and_writes_postgresql_form() {
        let verifier = Verifier::derive("x", b"salt", 4096);
        assert_eq!(Verifier::parse(&verifier.to_text()), Some(verifier));
        for bad in ["", "SCRAM-SHA-256$4096:AAAA$AAAA:AAAA", "SCRAM-SHA-256$0:AAAA$", "md5abc"] {
            assert_eq!(Verifier::parse(bad), None, "{bad}");
        }
    }
}
