//! SCRAM-SHA-256 (RFC 5802, RFC 7677; PostgreSQL documentation, 55.3.1), both ends, without channel binding.
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

/// The iterations PostgreSQL uses for a new secret.
pub const ITERATIONS_DEFAULT: u32 = 4096;

/// More iterations than this are not computed for anybody: they would only keep the processor busy.
pub const ITERATIONS_MAX: u32 = 1_000_000;

type Key = [u8; 32];

/// Why an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ScramError {
    /// A message that is not SCRAM, or not of this exchange.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// The client insists on channel binding, and there is no TLS to bind to.
    #[error("the client requires SCRAM channel binding, which this connection does not have")]
    ChannelBinding,
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

/// The server's end, after the client's first message.
#[derive(Debug)]
pub struct ServerExchange {
    verifier: Verifier,
    gs2_header: Vec<u8>,
    auth_message: String,
    nonce: String,
}

impl ServerExchange {
    /// Takes the client's first message; gives the exchange and the challenge to send.
    pub fn begin(verifier: Verifier, client_first: &[u8], random: [u8; 18]) -> Result<(Self, String), ScramError> {
        let text = utf8(client_first)?;
        let mut parts = text.splitn(3, ',');
        match parts.next() {
            Some("n" | "y") => {}
            Some(flag) if flag.starts_with("p=") => return Err(ScramError::ChannelBinding),
            _ => return Err(ScramError::Malformed("no channel binding flag")),
        }
        let authzid = parts.next().ok_or(ScramError::Malformed("no GS2 header"))?;
        let bare = parts.next().ok_or(ScramError::Malformed("no GS2 header"))?;
        if !authzid.is_empty() {
            return Err(ScramError::Malformed("an authorization identity is not supported"));
        }
        // The user's name is that of the StartupMessage; the one here is ignored, as PostgreSQL does.
        let client_nonce = attribute(bare, 'r').filter(|n| !n.is_empty()).ok_or(ScramError::Malformed("no nonce"))?;
        let nonce = format!("{client_nonce}{}", BASE64.encode(random));
        let challenge = format!("r={nonce},s={},i={}", BASE64.encode(&verifier.salt), verifier.iterations);
        let auth_message = format!("{bare},{challenge}");
        let gs2_header = text.as_bytes()[..text.len() - bare.len()].to_vec();
        Ok((Self { verifier, gs2_header, auth_message, nonce }, challenge))
    }

    /// Takes the client's last message; gives the final message to send, and the keys that its proof reveals.
    pub fn finish(self, client_final: &[u8]) -> Result<(String, Keys), ScramError> {
        let text = utf8(client_final)?;
        let (unproven, proof) = text.rsplit_once(",p=").ok_or(ScramError::Malformed("no proof"))?;
        let binding = attribute(unproven, 'c').ok_or(ScramError::Malformed("no channel binding"))?;
        if attribute(unproven, 'r') != Some(&self.nonce) {
            return Err(ScramError::Malformed("the nonce is not this exchange's"));
        }
        if BASE64.decode(binding).ok().as_deref() != Some(&self.gs2_header) {
            return Err(ScramError::Malformed("the channel binding is not this exchange's"));
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

/// The client's end, after its first message was sent.
#[derive(Debug)]
pub struct ClientExchange {
    secret: ClientSecret,
    nonce: String,
}

/// The client's end, waiting for the server's signature.
#[derive(Debug)]
pub struct ClientFinal {
    server_signature: Key,
}

impl ClientExchange {
    /// Begins an exchange; gives the first message to send.
    pub fn begin(secret: ClientSecret, random: [u8; 18]) -> (Self, String) {
        let nonce = BASE64.encode(random);
        let first = format!("n,,n=,r={nonce}");
        (Self { secret, nonce }, first)
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
        let unproven = format!("c=biws,r={nonce}");
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
        let (client, first) = ClientExchange::begin(secret, [7; 18]);
        let (server, challenge) = ServerExchange::begin(verifier, first.as_bytes(), [9; 18])?;
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
    fn channel_binding_is_refused_by_name() {
        let verifier = Verifier::mock(b"seed", "user");
        let asked = ServerExchange::begin(verifier, b"p=tls-server-end-point,,n=,r=abc", [0; 18]);
        assert_eq!(asked.err(), Some(ScramError::ChannelBinding));
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
