//! Here-documents, taken out of a script before it is parsed.
//!
//! Invariant: lines are taken out only where every shell takes them for a document, and the rest of the script shows that
//! it does: each document leaves a mark, and the parser must find it where a name of a file stands, unquoted.

use brush_parser::Token;

use crate::limits::MAX_HERE_DOCUMENTS;

/// What stands for a document in the rest of the script, with its number.
const MARK: &str = "legion-here-document-";

/// A document that was taken out.
#[derive(Debug)]
pub(super) struct Document {
    /// Its lines.
    pub(super) body: String,
    /// Nothing in it is computed.
    is_quoted: bool,
}

impl Document {
    /// What of it is computed that cannot be seen.
    pub(super) fn computed(&self) -> Option<&'static str> {
        let computes = ["`", "$(", "${", "$["].iter().any(|begin| self.body.contains(begin));
        (!self.is_quoted && computes).then_some("a here-document that is computed")
    }
}

/// The script without its documents; `None` when they cannot be told apart for certain.
pub(super) fn take_out(text: &str) -> Option<(String, Vec<Document>)> {
    if !text.replace("<<<", "").contains("<<") && is_plain_strings(text) {
        return Some((text.to_owned(), Vec::new()));
    }
    if text.contains(MARK) {
        return None;
    }
    let mut rest = text.split_inclusive('\n');
    let (mut kept, mut documents) = (String::with_capacity(text.len()), Vec::new());
    while let Some(line) = rest.next() {
        let Some((before, after)) = line.split_once("<<") else {
            kept.push_str(line);
            continue;
        };
        let start = Start::parse(after)?;
        if before.ends_with(['\\', '<'])
            || start.behind.contains("<<")
            || documents.len() >= MAX_HERE_DOCUMENTS
        {
            return None;
        }
        kept.extend([before, "< ", MARK, &documents.len().to_string(), start.behind]);
        let mut body = String::new();
        loop {
            let line = rest.next()?;
            let bare = line.strip_suffix('\n').unwrap_or(line);
            let bare = if start.strips_tabs { bare.trim_start_matches('\t') } else { bare };
            if bare == start.word {
                break;
            }
            // It would go on in the next line, and hide the end.
            if !start.is_quoted && bare.ends_with('\\') {
                return None;
            }
            body.push_str(line);
        }
        documents.push(Document { body, is_quoted: start.is_quoted });
    }
    Some((kept, documents))
}

/// Whether no `<<<` is anything else: an escaped `<` before a `<<`.
fn is_plain_strings(text: &str) -> bool {
    !text.contains("\\<<") && !text.contains("<<<<")
}

/// How a document begins: `<<-'WORD'`.
struct Start<'a> {
    word: &'a str,
    is_quoted: bool,
    strips_tabs: bool,
    /// The rest of the line.
    behind: &'a str,
}

impl<'a> Start<'a> {
    fn parse(after: &'a str) -> Option<Self> {
        let (strips_tabs, text) = after.strip_prefix('-').map_or((false, after), |text| (true, text));
        let text = text.trim_start_matches([' ', '\t']);
        let quote = text.chars().next().filter(|c| ['\'', '"'].contains(c));
        let text = quote.map_or(text, |_| &text[1..]);
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
        let (word, behind) = text.split_at(end);
        let behind = match quote {
            Some(quote) => behind.strip_prefix(quote)?,
            None => behind,
        };
        let ends = behind.is_empty() || behind.starts_with([' ', '\t', '\n', ';', '|', '&', '>', ')']);
        // A line that goes on in the next would take its first line along.
        let whole = behind.ends_with('\n') && !behind.ends_with("\\\n");
        (!word.is_empty() && ends && whole && ends_with_its_line(behind)).then_some(Self {
            word,
            is_quoted: quote.is_some(),
            strips_tabs,
            behind,
        })
    }
}

/// Whether the line holds all of its quotes: a text that goes on in the next line takes the document along.
fn ends_with_its_line(line: &str) -> bool {
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (_, '\\' | '`') => return false,
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    quote.is_none() && !["$(", "${", "$[", "$'"].iter().any(|begin| line.contains(begin))
}

/// Whether each document left its mark as the name of a file, and the script has nothing in which that could be arithmetic.
pub(super) fn were_found(tokens: &[Token], text: &str, documents: &[Document]) -> bool {
    if documents.is_empty() {
        return true;
    }
    let is_operator =
        |token: &Token, wanted: &str| matches!(token, Token::Operator(text, _) if text == wanted);
    let doubled = tokens.windows(2).any(|pair| pair.iter().all(|token| is_operator(token, "(")));
    let subscript = text
        .as_bytes()
        .windows(2)
        .any(|pair| pair[1] == b'[' && (pair[0].is_ascii_alphanumeric() || pair[0] == b'_'));
    let is_mark = |index: usize| {
        let mark = format!("{MARK}{index}");
        let found = tokens.windows(2).filter(|pair| {
            is_operator(&pair[0], "<") && matches!(&pair[1], Token::Word(text, _) if *text == mark)
        });
        found.count() == 1
    };
    !doubled && !subscript && (0..documents.len()).all(is_mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_taken_out_line_by_line() {
        let (text, documents) =
            take_out("cat > a <<'E' && ls\nx $(y)\n\tE\nE\ngit status\ncat <<-F\n\tz\n\tF\n").unwrap();
        assert_eq!(text, format!("cat > a < {MARK}0 && ls\ngit status\ncat < {MARK}1\n"));
        let bodies: Vec<_> = documents.iter().map(|document| document.body.as_str()).collect();
        assert_eq!(bodies, ["x $(y)\n\tE\n", "\tz\n"]);
        assert!(documents.iter().all(|document| document.computed().is_none()));
    }

    #[test]
    fn what_is_not_certain_is_not_taken_out() {
        for text in [
            "cat <<E\nx",
            "cat <<E",
            "cat <<E <<F\nE\nF\n",
            "cat <<\\E\nE\n",
            "cat <<E\nx\\\nE\nE\n",
            "cat <<E \\\nx\nE\n",
            "cat <<E$x\nE\n",
            "cat \\<<<E\nE\n",
            "cat <<<<E\nE\n",
            "cat <<''\n\n",
            "cat <<E; echo \"\n\"; git push; echo \"\nE\n\"\n",
        ] {
            assert!(take_out(text).is_none(), "{text:?}");
        }
        for text in ["cat <<< x", "ls"] {
            assert_eq!(take_out(text).unwrap().0, text);
        }
        let (_, documents) = take_out("cat <<E\n$(x)\nE\n").unwrap();
        assert!(documents[0].computed().is_some());
    }
}
