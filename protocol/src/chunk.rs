//! Bytes on the wire (standard base64 with padding, SPEC 5) and the direct writer of a `process/output` frame.
//!
//! Output is by far the most common frame, so its text is written in one go: a prefix rendered once per process and
//! stream, the sequence number, the base64 text.

use std::fmt;
use std::sync::LazyLock;

use base64::engine::general_purpose::PAD;
use base64::{DecodeError, Engine};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::process::Stream;

/// Standard alphabet with padding, on vector instructions where this machine has them: three times as fast.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
static BASE64: LazyLock<base64::engine::Simd> = LazyLock::new(|| base64::engine::Simd::standard(PAD));
/// Standard alphabet with padding.
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon"))))]
static BASE64: LazyLock<base64::engine::GeneralPurpose> =
    LazyLock::new(|| base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, PAD));

/// Of a text that is decoded at a time: what fits the processor's nearest cache. Whole groups of four.
const PIECE_BYTES: usize = 16 << 10;

/// Bytes carried as base64.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Chunk(pub Vec<u8>);

impl Chunk {
    /// Decodes base64 text.
    ///
    /// # Errors
    /// The decoder's one-line text, which the original shows as well (`Invalid symbol 42, offset 0.`).
    pub fn from_base64(text: &str) -> Result<Self, String> {
        let pieces = (text.len() > PIECE_BYTES).then(|| decode_in_pieces(text)).flatten();
        pieces.map_or_else(|| BASE64.decode(text), Ok).map(Self).map_err(|error| match error {
            DecodeError::InvalidLastSymbol { offset, symbol, .. } => {
                format!("Invalid last symbol {symbol}, offset {offset}.")
            }
            other => other.to_string(),
        })
    }

    /// The base64 text of `bytes`.
    pub fn to_base64(bytes: &[u8]) -> String {
        BASE64.encode(bytes)
    }
}

/// Decodes a text piece by piece, which spares megabytes from being zeroed before they are filled. `None`: not valid, or
/// padded where a piece ends.
fn decode_in_pieces(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len().div_ceil(4) * 3);
    let mut decoded = [0; PIECE_BYTES / 4 * 3];
    let mut pieces = text.as_bytes().chunks(PIECE_BYTES).peekable();
    while let Some(piece) = pieces.next() {
        let length = BASE64.decode_slice(piece, &mut decoded).ok()?;
        if pieces.peek().is_some() && length != decoded.len() {
            return None;
        }
        bytes.extend_from_slice(&decoded[..length]);
    }
    Some(bytes)
}

/// Appends the base64 text of `bytes`. Texts of pieces join without a seam when all but the last have a length that is
/// a multiple of three.
pub fn append_base64(bytes: &[u8], text: &mut String) {
    BASE64.encode_string(bytes, text);
}

impl fmt::Debug for Chunk {
    /// The length only: content may be a secret and must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes)", self.0.len())
    }
}

impl Serialize for Chunk {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Self::to_base64(&self.0))
    }
}

impl<'de> Deserialize<'de> for Chunk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = Chunk;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            // Decoded where it lies in the frame.
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Chunk, E> {
                Chunk::from_base64(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// Writes `process/output` frames of one stream of one process.
#[derive(Debug, Clone)]
pub struct OutputFrameWriter {
    /// `{"method":"process/output","params":{"processId":"…","stream":"…","seq":`
    prefix: String,
}

const OUTPUT_PREFIX: &str = r#"{"method":"process/output","params":{"processId":"#;

impl OutputFrameWriter {
    /// A writer for `stream` of the process the client calls `process_id`.
    pub fn new(process_id: &str, stream: Stream) -> Self {
        let id = serde_json::Value::from(process_id);
        Self { prefix: format!(r#"{OUTPUT_PREFIX}{id},"stream":"{}","seq":"#, stream.name()) }
    }

    /// The text of one frame.
    pub fn frame(&self, seq: u64, bytes: &[u8]) -> String {
        use fmt::Write as _;
        // 4/3 for base64, 20 digits, the fixed rest.
        let mut text = String::with_capacity(self.prefix.len() + bytes.len().div_ceil(3) * 4 + 48);
        text.push_str(&self.prefix);
        // Writing to a String cannot fail.
        let _ = write!(text, "{seq},\"chunk\":\"");
        BASE64.encode_string(bytes, &mut text);
        text.push_str("\"}}");
        text
    }
}

/// What an output frame says besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputHead<'a> {
    /// The client's name for the process.
    pub process_id: &'a str,
    /// See [`crate::process::Output::seq`].
    pub seq: u64,
    /// How many raw bytes follow, derived from the length of the frame.
    pub bytes: usize,
}

/// The head of an output frame, when the text starts as [`OutputFrameWriter`] writes it and the id has no escapes; `None`
/// sends the caller to the full parser.
pub fn output_head(text: &str) -> Option<OutputHead<'_>> {
    let rest = text.strip_prefix(OUTPUT_PREFIX)?.strip_prefix('"')?;
    let end = rest.bytes().position(|byte| byte == b'"' || byte == b'\\')?;
    let (process_id, rest) = rest.split_at(end);
    let rest = rest.strip_prefix("\",\"stream\":\"")?;
    let rest = &rest[rest.find('"')?..];
    let rest = rest.strip_prefix("\",\"seq\":")?;
    let (seq, rest) = rest.split_at(rest.find(',')?);
    let base64 = rest.strip_prefix(",\"chunk\":\"")?.strip_suffix("\"}}")?;
    let padding = base64.bytes().rev().take(2).filter(|byte| *byte == b'=').count();
    let bytes = (base64.len() / 4 * 3).saturating_sub(padding);
    Some(OutputHead { process_id, seq: seq.parse().ok()?, bytes })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::process::Output;

    #[test]
    fn bad_base64_is_refused_in_the_words_of_the_original() {
        assert_eq!(Chunk::from_base64("*").unwrap_err(), "Invalid symbol 42, offset 0.");
        assert_eq!(Chunk::from_base64("QQ").unwrap_err(), "Invalid padding");
        assert_eq!(Chunk::from_base64("aGl=").unwrap_err(), "Invalid last symbol 108, offset 2.");
    }

    #[test]
    fn debug_never_shows_content() {
        assert_eq!(format!("{:?}", Chunk(b"secret".to_vec())), "Chunk(6 bytes)");
    }

    proptest! {
        /// Long texts decode as in one go, damaged or not.
        #[test]
        fn pieces_decode_as_the_whole(
            length in PIECE_BYTES / 4 * 3..PIECE_BYTES + 4,
            edit in prop::option::of((any::<prop::sample::Index>(), "[=A*]{0,4}"))
        ) {
            let mut text = BASE64.encode(vec![0xe7; length]);
            if let Some((at, with)) = edit {
                // Where pieces meet, or the text ends.
                let near = PIECE_BYTES - 4 + at.index(text.len() + 5 - PIECE_BYTES);
                let at = near.min(text.len());
                text.replace_range(at..(at + with.len()).min(text.len()), &with);
            }
            let whole = BASE64.decode(&text).ok();
            prop_assert!(whole == Chunk::from_base64(&text).ok().map(|chunk| chunk.0));
            prop_assert!(decode_in_pieces(&text).is_none_or(|pieces| Some(pieces) == whole));
        }

        /// The direct writer and the typed decoder agree, and the relay's short cut sees the same frame.
        #[test]
        fn written_frames_decode(id in "\\PC{0,40}", seq in any::<u64>(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = OutputFrameWriter::new(&id, Stream::Stderr).frame(seq, &bytes);
            let frame: serde_json::Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&frame["method"], "process/output");
            let output: Output = serde_json::from_value(frame["params"].clone()).unwrap();
            prop_assert_eq!(&output.process_id, &id);
            prop_assert_eq!((output.seq, output.stream), (seq, Stream::Stderr));
            prop_assert_eq!(&output.chunk.0, &bytes);
            if let Some(head) = output_head(&text) {
                prop_assert_eq!(head, OutputHead { process_id: &id, seq, bytes: bytes.len() });
            } else {
                prop_assert!(serde_json::Value::from(id.as_str()).to_string().contains('\\'));
            }
        }
    }
}
