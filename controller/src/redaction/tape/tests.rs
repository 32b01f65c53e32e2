//! Output in pieces: what is shown of it, however it is cut, missed and read again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use legion_protocol::Chunk;
use proptest::prelude::*;

use super::super::forms;
use super::super::tests::patterns;
use super::*;

const SECRETS: [(&str, &str); 3] = [("A", "hunter22"), ("B", "er22-and-more"), ("C", "aaaaaa")];

/// Pushes these and flushes; what came out, by number.
fn play(pieces: &[Piece]) -> Vec<Piece> {
    let patterns = patterns(&SECRETS);
    let mut tape = Tape::default();
    let mut out = Vec::new();
    for piece in pieces {
        match tape.push(&patterns, piece.clone()) {
            Passed::Same => out.push(piece.clone()),
            Passed::Instead(pieces) => out.extend(pieces),
            Passed::Again(piece) => out.push(piece),
        }
    }
    out.extend(tape.flush(&patterns));
    out
}

fn pieces(text: &[u8], cuts: &[usize], stream: Stream) -> Vec<Piece> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    let pairs = cuts.windows(2).zip(1..);
    pairs.map(|(pair, seq)| Piece { seq, stream, bytes: text[pair[0]..pair[1]].to_vec() }).collect()
}

fn joined(pieces: &[Piece], stream: Stream) -> String {
    let bytes: Vec<u8> =
        pieces.iter().filter(|piece| piece.stream == stream).flat_map(|piece| piece.bytes.clone()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_secret_is_found_wherever_it_is_cut() {
    let text = "it is hunter22, and hunter22-and-more";
    for cut in 0..text.len() {
        let shown = play(&pieces(text.as_bytes(), &[cut, cut + 1, cut + 3], Stream::Stdout));
        assert_eq!(joined(&shown, Stream::Stdout), "it is <redacted:A>, and <redacted:A>-and-more", "{cut}");
        assert_eq!(shown.iter().map(|piece| piece.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}

#[test]
fn what_does_not_begin_a_secret_does_not_wait() {
    let patterns = patterns(&SECRETS);
    let mut tape = Tape::default();
    let piece = |seq, bytes: &[u8]| Piece { seq, stream: Stream::Pty, bytes: bytes.to_vec() };
    assert_eq!(tape.push(&patterns, piece(1, b"$ ")), Passed::Same);
    assert_eq!(tape.push(&patterns, piece(2, b"echo hun")), Passed::Instead(Vec::new()));
    assert!(tape.is_waiting());
    let both = vec![piece(2, b"echo hun"), piece(3, b"dred")];
    assert_eq!(tape.push(&patterns, piece(3, b"dred")), Passed::Instead(both));
    assert!(!tape.is_waiting());
}

/// What a client gets that reads these, and what goes on besides.
fn read(tape: &mut Tape, closed: bool, chunks: &[(u64, &str)]) -> (Vec<String>, u64, bool, Vec<Piece>) {
    let text = r#"{"chunks":[],"nextSeq":9,"exited":true,"exitCode":0,"closed":true,"failure":null,"sandboxDenied":false}"#;
    let mut read: ReadResult = serde_json::from_str(text).unwrap();
    read.closed = closed;
    let chunk = |(seq, text): &(u64, &str)| ReadChunk {
        seq: *seq,
        stream: Stream::Stdout,
        chunk: Chunk((*text).into()),
    };
    read.chunks = chunks.iter().map(chunk).collect();
    let (_, more) = tape.reread(&patterns(&SECRETS), &mut read);
    let texts = read.chunks.iter().map(|chunk| String::from_utf8(chunk.chunk.0.clone()).unwrap());
    (texts.collect(), read.next_seq, read.closed, more)
}

fn out(seq: u64, text: &str) -> Piece {
    Piece { seq, stream: Stream::Stdout, bytes: text.into() }
}

#[test]
fn what_is_read_again_is_what_was_shown() {
    let patterns = patterns(&SECRETS);
    let mut tape = Tape::default();
    tape.push(&patterns, out(1, "a hunt"));
    // While it waits it cannot be read either.
    assert_eq!(read(&mut tape, true, &[(1, "a hunt")]).0, ["a hunt"], "nothing comes any more");
    let mut tape = Tape::default();
    tape.push(&patterns, out(1, "a hunt"));
    assert_eq!(read(&mut tape, false, &[(1, "a hunt")]), (vec![], 1, false, vec![]));
    tape.push(&patterns, out(2, "er22 b"));
    let shown = vec!["a <redacted:A>".to_owned(), " b".to_owned()];
    assert_eq!(read(&mut tape, true, &[(1, "a hunt"), (2, "er22 b")]), (shown, 9, true, vec![]));
    assert_eq!(read(&mut tape, true, &[(2, "er22 b")]).0, [" b"]);
    assert_eq!(tape.push(&patterns, out(2, "er22 b")), Passed::Again(out(2, " b")));
    // Three and four were missed, and given up.
    assert_eq!(tape.push(&patterns, out(5, "c")), Passed::Instead(Vec::new()));
    assert_eq!(tape.flush(&patterns), [out(5, "c")]);
    let missed = [(3, "hun"), (4, "ter22"), (5, "c"), (6, "hunter22")];
    assert_eq!(read(&mut tape, true, &missed).0, ["<redacted:A>", "", "c", "<redacted:A>"]);
}

#[test]
fn a_secret_is_found_where_a_client_comes_back_in_the_middle_of_it() {
    let patterns = patterns(&SECRETS);
    // It comes back, new output arrives, and only then it reads what it has missed.
    let mut tape = Tape::default();
    assert_eq!(tape.push(&patterns, out(1, "=")), Passed::Same);
    assert_eq!(tape.push(&patterns, out(4, "ter22 z")), Passed::Instead(Vec::new()));
    let (texts, next, _, more) = read(&mut tape, false, &[(2, "."), (3, "hun")]);
    assert_eq!((texts, next), (vec![".".to_owned(), "<redacted:A>".to_owned()], 9));
    assert_eq!(more, [out(4, " z")]);
    // Or it reads first.
    let mut tape = Tape::default();
    tape.push(&patterns, out(1, "="));
    let (texts, next, _, more) = read(&mut tape, false, &[(2, "."), (3, "hun")]);
    assert_eq!((texts, next, more), (vec![".".to_owned()], 3, vec![]));
    let both = vec![out(3, "<redacted:A>"), out(4, " z")];
    assert_eq!(tape.push(&patterns, out(4, "ter22 z")), Passed::Instead(both));
    // What waited when it left is read as it is shown.
    let mut tape = Tape::default();
    tape.push(&patterns, out(1, "hun"));
    assert_eq!(read(&mut tape, false, &[(1, "hun"), (2, "ter22 z")]).0, ["<redacted:A>", " z"]);
    // What it missed cannot be read any more: what can is looked through.
    let mut gone = Tape::default();
    gone.push(&patterns, out(1, "hun"));
    gone.push(&patterns, out(7, "="));
    assert_eq!(read(&mut gone, true, &[(5, "ter22 hunter22"), (6, "=")]).0, ["ter22 <redacted:A>", "="]);
    let mut new = Tape::default();
    assert_eq!(read(&mut new, true, &[(5, "hun"), (6, "ter22")]).0, ["<redacted:A>", ""]);
    // A number that something else had is no gap.
    tape.skip(3);
    assert!(!tape.has_gaps());
    assert_eq!(tape.push(&patterns, out(4, "=")), Passed::Same);
    tape.skip(6);
    assert!(tape.has_gaps());
}

proptest! {
    /// However it is cut, the same is shown as of the whole; without a secret nothing changes.
    #[test]
    fn pieces_are_shown_as_the_whole(
        words in prop::collection::vec(prop_oneof![
            Just("hunter22"), Just("hunter"), Just("er22-and-more"), Just("22-and"), Just("aaaa"), Just(" "), Just("x")], 0..12),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
        others in prop::collection::vec(any::<bool>(), 12),
    ) {
        let text = words.concat();
        let whole = joined(&play(&pieces(text.as_bytes(), &[], Stream::Stdout)), Stream::Stdout);
        let cut = pieces(text.as_bytes(), &cuts, Stream::Stdout);
        prop_assert_eq!(&joined(&play(&cut), Stream::Stdout), &whole);
        prop_assert!(!whole.contains("hunter22") && !whole.contains("aaaaaa"));
        // Another stream in between changes neither.
        let mut mixed = Vec::new();
        for (piece, other) in cut.into_iter().zip(others.iter().cycle()) {
            mixed.push(Piece { seq: mixed.len() as u64 + 1, ..piece });
            if *other {
                mixed.push(Piece { seq: mixed.len() as u64 + 1, stream: Stream::Stderr, bytes: b"hunt".to_vec() });
            }
        }
        let count = mixed.len() as u64;
        let shown = play(&mixed);
        prop_assert_eq!(&joined(&shown, Stream::Stdout), &whole);
        prop_assert_eq!(joined(&shown, Stream::Stderr), "hunt".repeat(joined(&shown, Stream::Stderr).len() / 4));
        prop_assert_eq!(shown.iter().map(|piece| piece.seq).collect::<Vec<_>>(), (1..=count).collect::<Vec<_>>());
    }

    /// Base64 in lines, as tools print it, holds no part of a secret that goes over the end of a line.
    #[test]
    fn wrapped_base64_is_looked_through(
        value in "[ -~]{6,120}", before in "[ -~]{0,150}", after in "[ -~]{0,150}", width in 60usize..77,
        is_terminal in any::<bool>(), cuts in prop::collection::vec(any::<usize>(), 0..8),
    ) {
        let digits = STANDARD.encode(format!("{before}{value}{after}"));
        let lines: Vec<&str> = digits.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
        let end = if is_terminal { "\r\n" } else { "\n" };
        let text = format!("$ base64\n{}{end}$ ", lines.join(end));
        let patterns = patterns(&[("A", &value)]);
        let mut tape = Tape::default();
        let mut shown = Vec::new();
        for piece in pieces(text.as_bytes(), &cuts, Stream::Pty) {
            match tape.push(&patterns, piece.clone()) {
                Passed::Instead(pieces) => shown.extend(pieces),
                _ => shown.push(piece),
            }
        }
        shown.extend(tape.flush(&patterns));
        let shown = joined(&shown, Stream::Pty);
        prop_assert!(shown.starts_with("$ base64\n") && shown.ends_with("$ ") && shown.contains("<redacted:A>"), "{shown}");
        let digits = shown.replace(['\r', '\n'], "");
        for form in forms::of(&value) {
            prop_assert!(!digits.contains(std::str::from_utf8(&form).unwrap()), "{shown}");
        }
        // Without the secret it stays as it is.
        let other = super::super::tests::patterns(&[("A", "another-secret")]);
        let found = other.look_at_all(text.as_bytes(), 0);
        prop_assert!(found.is_empty());
    }
}
