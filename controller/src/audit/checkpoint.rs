//! Checkpoints: an Ed25519 signature over the chain so far (security.md 7). Pure: key material is passed in.
//!
//! Who changes records and computes all hashes anew still cannot sign them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use super::chain::{Head, hex};
use super::mark::Checkpoint;

/// What precedes the 32 bytes of an Ed25519 key in a `SubjectPublicKeyInfo` (RFC 8410).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const PEM_BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const PEM_END: &str = "-----END PUBLIC KEY-----";

/// The bytes that are signed.
pub fn signed_text(head: &Head) -> String {
    format!("legion audit checkpoint\n{}\n{}\n", head.seq, head.hash)
}

/// Signs checkpoints.
pub struct Signer {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl Signer {
    /// A signer of a private key in PKCS#8.
    ///
    /// # Errors
    /// One line.
    pub fn new(pkcs8: &[u8]) -> Result<Self, String> {
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8).map_err(|error| error.to_string())?;
        let mut bytes = [0; 32];
        bytes.copy_from_slice(pair.public_key().as_ref());
        Ok(Self { pair, public: PublicKey(bytes) })
    }

    /// What others check signatures with.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// A checkpoint of the chain up to `head`.
    pub fn sign(&self, head: &Head) -> Checkpoint {
        let signature = self.pair.sign(signed_text(head).as_bytes());
        Checkpoint {
            seq: head.seq,
            head: head.hash.clone(),
            key: self.public.fingerprint(),
            signature: STANDARD.encode(signature.as_ref()),
        }
    }
}

/// The public half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Reads the PEM text that [`Self::pem`] writes, or that of any other tool for Ed25519.
    ///
    /// # Errors
    /// One line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let body = text.trim().strip_prefix(PEM_BEGIN).and_then(|rest| rest.strip_suffix(PEM_END));
        let body = body.ok_or("it is no public key in PEM")?;
        let joined: String = body.split_whitespace().collect();
        let der = STANDARD.decode(joined).map_err(|error| format!("it is no PEM: {error}"))?;
        let key = der.strip_prefix(&SPKI_PREFIX[..]).ok_or("it is no Ed25519 key")?;
        key.try_into().map(Self).map_err(|_| "it is no Ed25519 key".to_owned())
    }

    /// As other tools read it.
    pub fn pem(&self) -> String {
        let der = [&SPKI_PREFIX[..], &self.0].concat();
        format!("{PEM_BEGIN}\n{}\n{PEM_END}", STANDARD.encode(der))
    }

    /// The first half of its SHA-256.
    pub fn fingerprint(&self) -> String {
        hex(&digest::digest(&digest::SHA256, &self.0).as_ref()[..16])
    }

    /// Checks that `checkpoint` signs exactly `head` with this key.
    ///
    /// # Errors
    /// One line that says what does not fit.
    pub fn verify(&self, checkpoint: &Checkpoint, head: &Head) -> Result<(), String> {
        if checkpoint.seq != head.seq || checkpoint.head != head.hash {
            return Err(format!("the checkpoint after record {} signs another record", head.seq));
        }
        if checkpoint.key != self.fingerprint() {
            return Err(format!(
                "the checkpoint after record {} is signed with the key {}, not with {}",
                head.seq,
                checkpoint.key,
                self.fingerprint()
            ));
        }
        let signature = STANDARD.decode(&checkpoint.signature).unwrap_or_default();
        UnparsedPublicKey::new(&ED25519, self.0)
            .verify(signed_text(head).as_bytes(), &signature)
            .map_err(|_| format!("the signature of the checkpoint after record {} is wrong", head.seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer() -> Signer {
        let document = Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new()).unwrap();
        Signer::new(document.as_ref()).unwrap()
    }

    #[test]
    fn a_checkpoint_fits_one_head_and_one_key() {
        let signer = signer();
        let head = Head { seq: 7, hash: "ab".repeat(32) };
        let checkpoint = signer.sign(&head);
        let key = PublicKey::parse(&signer.public().pem()).unwrap();
        assert_eq!(&key, signer.public());
        key.verify(&checkpoint, &head).unwrap();
        let other = Head { seq: 8, ..head.clone() };
        assert!(key.verify(&checkpoint, &other).unwrap_err().contains("another record"));
        let forged = Checkpoint { seq: 8, ..checkpoint.clone() };
        assert!(key.verify(&forged, &other).unwrap_err().contains("wrong"));
        assert!(self::signer().public().verify(&checkpoint, &head).unwrap_err().contains("not with"));
    }

    #[test]
    fn what_is_no_key_is_named() {
        for text in ["", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "0123"] {
            assert!(PublicKey::parse(text).is_err(), "{text}");
        }
    }
}
