//! Shell scripts, taken apart by a shell parser.
//!
//! Invariant: the parser only gets what it can read in bounded time; a syntax error is opaque, because a shell runs the
//! lines before it. Constructs that change what a later name means are opaque.

use brush_parser::ast::{
    AndOr, AssignmentName, AssignmentValue, Command, CommandPrefixOrSuffixItem as Item, CompoundCommand,
    CompoundList, ExtendedTestExpr, IoFileRedirectKind, IoFileRedirectTarget, IoRedirect, Pipeline,
    RedirectList, SimpleCommand, UnaryPredicate,
};
use brush_parser::{ParserOptions, Token, parse_tokens, uncached_tokenize_str};

use super::command::{Part, Reader, Word};
use super::heredoc::{self, Document};
use super::shell::{assigned_name, literal, substitutions, word};
use crate::limits::{MAX_SCRIPT_BYTES, MAX_SCRIPT_NESTING, MAX_SCRIPT_TOKENS};

/// A file descriptor of more digits is more than the parser can hold.
const MAX_NUMBER_DIGITS: usize = 9;

/// Words of a text in another language at which a command may begin.
const MAX_STARTS: usize = 8;

/// Reads a script as bash reads it.
pub(super) fn read(reader: &mut Reader, text: &str) {
    if text.len() > MAX_SCRIPT_BYTES {
        return reader.opaque("the script is too long to be taken apart");
    }
    if text.contains(['\0', '\r']) {
        reader.opaque("the script has characters shells disagree about");
        return reader.guess(|reader| lines(reader, text));
    }
    // The parser takes unbounded memory for some here-documents: it never gets one.
    let Some((text, documents)) = heredoc::take_out(text) else {
        reader.opaque("a here-document");
        return reader.guess(|reader| lines(reader, text));
    };
    let (before, inputs) = (reader.reading.opaque.len(), reader.inputs.len());
    parsed(reader, &text, &documents);
    for document in &documents {
        document.computed().iter().for_each(|why| reader.opaque(why));
    }
    // Where something is not seen, a document may be what it runs.
    if reader.reading.opaque.len() > before {
        let strings = reader.inputs.split_off(inputs.min(reader.inputs.len()));
        let bodies = documents.iter().map(|document| &document.body).chain(&strings);
        reader.guess(|reader| bodies.for_each(|body| lines(reader, body)));
    }
}

fn parsed(reader: &mut Reader, text: &str, documents: &[Document]) {
    // bash does not know extended patterns unless it is told to.
    let options = ParserOptions { enable_extended_globbing: false, ..ParserOptions::default() };
    let Ok(tokens) = uncached_tokenize_str(text, &options.tokenizer_options()) else {
        reader.opaque("the script has a syntax error");
        return reader.guess(|reader| lines(reader, text));
    };
    let long_number = |token: &Token| {
        let text = token.to_str();
        text.len() > MAX_NUMBER_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let too_much = tokens.len() > MAX_SCRIPT_TOKENS || nesting(&tokens) > MAX_SCRIPT_NESTING;
    if !too_much
        && !tokens.iter().any(long_number)
        && heredoc::were_found(&tokens, text, documents)
        && let Ok(program) = parse_tokens(&tokens, &options)
    {
        return program.complete_commands.iter().for_each(|list| self::list(reader, list));
    }
    reader.opaque(if too_much {
        "the script is too long or too deeply nested to be taken apart"
    } else {
        "the script has a syntax error, or shells disagree about it"
    });
    let commands = tokens.split(|token| matches!(token, Token::Operator(..)));
    reader.guess(|reader| {
        flat(reader, commands.map(|tokens| tokens.iter().map(|token| token.to_str().to_owned()).collect()));
    });
}

/// How deep the script can be nested at most: the parser's time grows with it, and fast.
fn nesting(tokens: &[Token]) -> usize {
    let weight = |token: &Token| match token {
        Token::Operator(text, _) => usize::from(text == "("),
        Token::Word(text, _) => match text.as_str() {
            "case" => 2,
            "if" | "while" | "until" | "for" | "select" | "function" | "coproc" | "{" | "[[" => 1,
            _ => 0,
        },
    };
    tokens.iter().map(weight).sum()
}

/// What may be commands in a text that is not parsed.
pub(super) fn lines(reader: &mut Reader, text: &str) {
    flat(reader, text.split([';', '&', '|', '\n', '(', ')', '\'', '"', '`']).map(words));
}

/// What may be commands in a text of another language: they may begin at any word of it.
pub(super) fn code(reader: &mut Reader, text: &str) {
    let pieces = text.split([';', '&', '|', '\n', '(', ')', '\'', '"', '`', '!', '=']).map(words);
    flat(
        reader,
        pieces.flat_map(|words| (0..words.len().min(MAX_STARTS)).map(move |start| words[start..].to_vec())),
    );
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// What may be commands, when nothing better is known.
fn flat(reader: &mut Reader, commands: impl Iterator<Item = Vec<String>>) {
    const RESERVED: [&str; 14] =
        ["if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!", "time", "in"];
    for words in commands {
        let words: Vec<_> = words
            .iter()
            .skip_while(|word| RESERVED.contains(&word.as_str()) || assigned_name(word).is_some())
            .collect();
        for text in words.iter().flat_map(|word| substitutions(word)) {
            reader.script(&text);
        }
        let words = words.iter().map(|text| word(text).unwrap_or(Word::MANY)).collect();
        reader.part(&Part { words, ..Part::default() });
    }
}

fn list(reader: &mut Reader, list: &CompoundList) {
    for item in &list.0 {
        pipeline(reader, &item.0.first);
        for next in &item.0.additional {
            let (AndOr::And(next) | AndOr::Or(next)) = next;
            pipeline(reader, next);
        }
    }
}

fn pipeline(reader: &mut Reader, pipeline: &Pipeline) {
    for command in &pipeline.seq {
        reader.deeper(|reader| self::command(reader, command));
    }
}

fn command(reader: &mut Reader, command: &Command) {
    match command {
        Command::Simple(command) => simple(reader, command),
        Command::Compound(command, redirects) => {
            group_redirects(reader, redirects.as_ref());
            compound(reader, command);
        }
        Command::Function(function) => {
            reader.opaque("it defines a function, which may take the name of a program");
            reader.guess(|reader| compound(reader, &function.body.0));
        }
        Command::ExtendedTest(test, redirects) => {
            group_redirects(reader, redirects.as_ref());
            if !is_plain_test(&test.expr) {
                reader.opaque("a test whose words are computed");
                search(reader, &test.expr.to_string());
            }
        }
    }
}

fn compound(reader: &mut Reader, compound: &CompoundCommand) {
    match compound {
        CompoundCommand::BraceGroup(group) => list(reader, &group.list),
        CompoundCommand::Subshell(group) => list(reader, &group.list),
        CompoundCommand::ForClause(clause) => {
            let values: Vec<_> = clause.values.iter().flatten().map(|word| value(reader, word)).collect();
            for value in &values {
                reader.assign(&clause.variable_name, value.as_deref());
            }
            if values.is_empty() {
                reader.assign(&clause.variable_name, None);
            }
            list(reader, &clause.body.list);
        }
        CompoundCommand::CaseClause(clause) => {
            value(reader, &clause.value);
            for case in &clause.cases {
                case.patterns.iter().for_each(|word| drop(value(reader, word)));
                case.cmd.iter().for_each(|commands| list(reader, commands));
            }
        }
        CompoundCommand::IfClause(clause) => {
            list(reader, &clause.condition);
            list(reader, &clause.then);
            for part in clause.elses.iter().flatten() {
                part.condition.iter().for_each(|condition| list(reader, condition));
                list(reader, &part.body);
            }
        }
        CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
            list(reader, &clause.0);
            list(reader, &clause.1.list);
        }
        CompoundCommand::Coprocess(coprocess) => {
            reader.opaque("a coprocess");
            command(reader, &coprocess.body);
        }
        CompoundCommand::Arithmetic(arithmetic) => {
            computed(reader, &arithmetic.expr.value);
            // Other shells see two subshells in it.
            reader.guess(|reader| lines(reader, &arithmetic.expr.value));
        }
        CompoundCommand::ArithmeticForClause(clause) => {
            for expression in [&clause.initializer, &clause.condition, &clause.updater].into_iter().flatten()
            {
                computed(reader, &expression.value);
            }
            list(reader, &clause.body.list);
        }
    }
}

/// Arithmetic can run commands in subscripts, and set variables.
fn computed(reader: &mut Reader, expression: &str) {
    reader.opaque("arithmetic");
    search(reader, expression);
}

/// Looks into the substitutions of a text.
fn search(reader: &mut Reader, text: &str) {
    let scripts = substitutions(text);
    if !scripts.is_empty() {
        reader.opaque("a substitution");
        reader.guess(|reader| scripts.iter().for_each(|script| reader.script(script)));
    }
}

/// A word that is no argument: what computing it runs matters, and its text where that is plain.
fn value(reader: &mut Reader, text: &brush_parser::ast::Word) -> Option<String> {
    read_word(reader, &text.value).text().map(str::to_owned)
}

/// Reads a word; what computing it may run is opaque.
fn read_word(reader: &mut Reader, text: &str) -> Word {
    word(text).unwrap_or_else(|| {
        if substitutions(text).is_empty() {
            reader.opaque("a word that shells compute");
        } else {
            search(reader, text);
        }
        Word::MANY
    })
}

/// Only tests of files, of words that are there.
fn is_plain_test(test: &ExtendedTestExpr) -> bool {
    match test {
        ExtendedTestExpr::And(left, right) | ExtendedTestExpr::Or(left, right) => {
            is_plain_test(left) && is_plain_test(right)
        }
        ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => is_plain_test(inner),
        ExtendedTestExpr::UnaryTest(
            UnaryPredicate::FileExists
            | UnaryPredicate::FileExistsAndIsDir
            | UnaryPredicate::FileExistsAndIsRegularFile
            | UnaryPredicate::FileExistsAndIsExecutable
            | UnaryPredicate::FileExistsAndIsReadable
            | UnaryPredicate::FileExistsAndIsWritable
            | UnaryPredicate::FileExistsAndIsSymlink
            | UnaryPredicate::FileExistsAndIsNotZeroLength
            | UnaryPredicate::StringHasZeroLength
            | UnaryPredicate::StringHasNonZeroLength,
            word,
        ) => literal(&word.value).is_some(),
        ExtendedTestExpr::UnaryTest(..) | ExtendedTestExpr::BinaryTest(..) => false,
    }
}

fn simple(reader: &mut Reader, command: &SimpleCommand) {
    let mut part = Part::default();
    let prefix = command.prefix.iter().flat_map(|prefix| &prefix.0);
    let suffix = command.suffix.iter().flat_map(|suffix| &suffix.0);
    let name = command.word_or_name.as_ref();
    // Where the words behind a `&>` begin.
    let mut split = None;
    for item in prefix.map(Some).chain([None]).chain(suffix.map(Some)) {
        match item {
            None => part.words.extend(name.map(|word| read_word(reader, &word.value))),
            Some(Item::AssignmentWord(assignment, _)) if part.words.is_empty() => {
                assigned(reader, assignment);
            }
            Some(Item::Word(word) | Item::AssignmentWord(_, word)) => {
                part.words.push(read_word(reader, &word.value));
            }
            Some(Item::IoRedirect(redirect)) => {
                if matches!(redirect, IoRedirect::OutputAndError(..)) {
                    split.get_or_insert(part.words.len());
                }
                part.writes |= !is_harmless(reader, redirect);
            }
            Some(Item::ProcessSubstitution(_, inner)) => {
                process_substitution(reader, &inner.list);
                part.words.push(Word::MANY);
            }
        }
    }
    if let Some(behind) = split.map(|at| &part.words[at..]).filter(|behind| !behind.is_empty()) {
        // Another shell runs what follows as a command of its own.
        reader.opaque("shells disagree about &>");
        let next = Part { words: behind.to_vec(), ..Part::default() };
        reader.guess(|reader| reader.part(&next));
    }
    reader.part(&part);
}

fn assigned(reader: &mut Reader, assignment: &brush_parser::ast::Assignment) {
    let name = match &assignment.name {
        AssignmentName::VariableName(name) => name,
        AssignmentName::ArrayElementName(name, index) => {
            computed(reader, index);
            name
        }
    };
    let set = match &assignment.value {
        AssignmentValue::Scalar(word) => value(reader, word).filter(|_| !assignment.append),
        AssignmentValue::Array(items) => {
            for (index, word) in items {
                if let Some(index) = index {
                    computed(reader, &index.value);
                }
                value(reader, word);
            }
            None
        }
    };
    reader.assign(name, set.as_deref());
}

fn process_substitution(reader: &mut Reader, commands: &CompoundList) {
    reader.opaque("a process substitution");
    reader.guess(|reader| list(reader, commands));
}

fn group_redirects(reader: &mut Reader, redirects: Option<&RedirectList>) {
    for redirect in redirects.iter().flat_map(|redirects| &redirects.0) {
        if !is_harmless(reader, redirect) {
            reader.opaque("the input or output of a group is redirected");
        }
    }
}

/// Whether a redirection writes to no file.
fn is_harmless(reader: &mut Reader, redirect: &IoRedirect) -> bool {
    match redirect {
        IoRedirect::File(_, kind, IoFileRedirectTarget::Filename(word)) => {
            let target = read_word(reader, &word.value);
            if target
                .text()
                .is_some_and(|path| path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/"))
            {
                reader.opaque("a redirection to the network");
            }
            matches!(kind, IoFileRedirectKind::Read) || target.text() == Some("/dev/null")
        }
        IoRedirect::File(_, _, IoFileRedirectTarget::Duplicate(word)) => {
            // Unless it is a number, bash expands it twice: quotes keep nothing from running.
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
            if !word.value.chars().all(plain) {
                reader.opaque("a redirection that is computed twice");
                let text = read_word(reader, &word.value);
                text.text().iter().for_each(|text| search(reader, text));
            }
            word.value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        }
        IoRedirect::File(_, _, IoFileRedirectTarget::Fd(_)) => true,
        IoRedirect::File(_, _, IoFileRedirectTarget::ProcessSubstitution(_, inner)) => {
            process_substitution(reader, &inner.list);
            false
        }
        IoRedirect::HereString(_, word) => {
            if let Word::Plain(text) = read_word(reader, &word.value) {
                reader.inputs.push(text);
            }
            true
        }
        // None is left for the parser.
        IoRedirect::HereDocument(..) => {
            reader.opaque("a here-document");
            false
        }
        IoRedirect::OutputAndError(word, _) => read_word(reader, &word.value).text() == Some("/dev/null"),
    }
}
