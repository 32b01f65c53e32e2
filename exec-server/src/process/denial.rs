//! Whether a confined command failed because it was confined, as far as its output tells (SPEC 7.3). Pure.

/// Any of these words means it, in small letters.
const WORDS: [&[u8]; 7] = [
    b"operation not permitted",
    b"permission denied",
    b"read-only file system",
    b"seccomp",
    b"sandbox",
    b"landlock",
    b"failed to write file",
];

/// Whether the output of a failed command speaks of a denial. The output is in two pieces, as a ring buffer has it.
pub(super) fn is_told_by((first, second): (&[u8], &[u8])) -> bool {
    // A word may lie across the seam.
    let longest = WORDS.iter().map(|word| word.len()).max().unwrap_or(0);
    let end = &first[first.len().saturating_sub(longest - 1)..];
    let seam = [end, &second[..second.len().min(longest - 1)]].concat();
    [first, second, &seam].into_iter().any(mentions)
}

fn mentions(text: &[u8]) -> bool {
    text.iter().enumerate().any(|(at, byte)| {
        let byte = byte.to_ascii_lowercase();
        WORDS
            .iter()
            .filter(|word| word[0] == byte)
            .any(|word| text.get(at..at + word.len()).is_some_and(|found| found.eq_ignore_ascii_case(word)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_wherever_the_ring_is_cut() {
        let text = b"touch: cannot touch 'x': Read-Only File System\n";
        for cut in 0..=text.len() {
            assert!(is_told_by(text.split_at(cut)), "{cut}");
        }
        for text in ["Permission denied", "sandboxed", "SECCOMP", "failed to write file: x"] {
            assert!(is_told_by((b"x\n", text.as_bytes())), "{text}");
        }
        for text in ["", "No such file or directory", "permission", "sand box", "read-only file syste"] {
            assert!(!is_told_by((text.as_bytes(), b"")), "{text}");
        }
    }
}
