//! The bearer token a client must present, known by its SHA-256 only (SPEC 1.3).

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The digest of a token.
#[derive(Clone)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// The digest of this token.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Reads 64 hex digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let mut digest = [0; 32];
        if digits.len() != 2 * digest.len() {
            return None;
        }
        for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |of: u8| char::from(of).to_digit(16).and_then(|value| u8::try_from(value).ok());
            *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
        }
        Some(Self(digest))
    }

    /// Whether `token` is the one. Takes the same time for every wrong one.
    pub fn accepts(&self, token: &str) -> bool {
        self.0.ct_eq(&Self::of(token).0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_accepts_its_own_token_only() {
        let digest =
            TokenDigest::from_hex("2BB80D537B1DA3E38BD30361AA855686BDE0EACD7162FEF6A25FE97BF527A25b")
                .unwrap();
        assert!(digest.accepts("secret"));
        assert!(!digest.accepts("secret ") && !digest.accepts(""));
        for bad in ["", "zz", &"0".repeat(63), &"0".repeat(65), &"é".repeat(32)] {
            assert!(TokenDigest::from_hex(bad).is_none(), "{bad}");
        }
    }
}
