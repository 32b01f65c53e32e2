//! Session tokens: `lgn1_<public id>_<secret>` (security.md 6). Pure: randomness is passed in.
//!
//! Invariant: the controller keeps a keyed digest, never the token; comparison takes the same time for every guess.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use zeroize::Zeroizing;

const PREFIX: &str = "lgn1_";
const ID_ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// Characters of a public id.
pub const ID_LENGTH: usize = 8;

/// Random bytes one token takes: 8 for the id, 32 for the secret.
pub const RANDOM_BYTES: usize = ID_LENGTH + 32;

/// A freshly minted token; wiped from memory when dropped.
pub struct Token {
    /// Names the session everywhere: listings, records, revocation.
    pub id: String,
    /// The whole token, for the one who asked.
    pub text: Zeroizing<String>,
}

/// Makes a token of random bytes.
pub fn mint(random: &[u8; RANDOM_BYTES]) -> Token {
    let (id, secret) = random.split_at(ID_LENGTH);
    let id: String = id.iter().map(|byte| char::from(ID_ALPHABET[usize::from(byte % 32)])).collect();
    let text = Zeroizing::new(format!("{PREFIX}{id}_{}", URL_SAFE_NO_PAD.encode(secret)));
    Token { id, text }
}

/// The public id inside a presented text, when it has a token's shape.
pub fn id_of(presented: &str) -> Option<&str> {
    let (id, secret) = presented.strip_prefix(PREFIX)?.split_once('_')?;
    let id_fits = id.len() == ID_LENGTH && id.bytes().all(|byte| ID_ALPHABET.contains(&byte));
    (id_fits && secret.len() == 43).then_some(id)
}

/// Digests tokens under a key that never leaves this process.
pub struct Digester(hmac::Key);

/// What is kept of a token.
pub struct Digest(hmac::Tag);

impl Digester {
    /// A digester under a random key.
    pub fn new(key: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// The digest of a token.
    pub fn digest(&self, token: &str) -> Digest {
        Digest(hmac::sign(&self.0, token.as_bytes()))
    }

    /// Whether `presented` is the token of this digest, in constant time.
    pub fn verify(&self, presented: &str, digest: &Digest) -> bool {
        hmac::verify(&self.0, presented.as_bytes(), digest.0.as_ref()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_token_verifies_and_no_change_of_it_does(random in any::<[u8; RANDOM_BYTES]>(), at in 0usize..56, with in any::<u8>()) {
            let token = mint(&random);
            let digester = Digester::new(&[7; 32]);
            let digest = digester.digest(&token.text);
            prop_assert_eq!(id_of(&token.text), Some(token.id.as_str()));
            prop_assert!(digester.verify(&token.text, &digest));
            let mut changed = token.text.as_bytes().to_vec();
            let at = at % changed.len();
            if changed[at] != with {
                changed[at] = with;
                let changed = String::from_utf8_lossy(&changed).into_owned();
                prop_assert!(!digester.verify(&changed, &digest));
            }
        }

        #[test]
        fn foreign_texts_have_no_id(text in "\\PC{0,80}") {
            if let Some(id) = id_of(&text) {
                prop_assert_eq!(id.len(), ID_LENGTH);
            }
        }
    }
}
