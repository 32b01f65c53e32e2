//! Calls that wait for a person, while the others go on.
//!
//! Invariant: what goes on after an approval is the very frame that was asked about, judged again by the rules of then.

use std::future::Future;
use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use legion_protocol::object::params;
use legion_protocol::{Head, Method, RequestId, process};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::{Connection, Refused};
use crate::approvals::{Answer, Question, Scope, Ticket, digest};
use crate::audit::Event;
use crate::audit::record::Decision;
use crate::gate::{Decided, Forwarded, Judge};
use crate::limits::MAX_QUESTION_CHARS;
use crate::policy::refusal::{self, Kind};

/// A call that waits.
pub(super) struct Held {
    text: Utf8Bytes,
    forwarded: Forwarded,
    decided: Decided,
    ticket: Ticket,
    /// Number of the record that says it was asked about.
    call: u64,
}

/// The calls of one connection that wait.
pub(super) type HeldCalls = FuturesUnordered<Pin<Box<dyn Future<Output = (Held, Answer)>>>>;

/// What a waiting call is known by.
pub(super) struct HeldKey {
    id: RequestId,
    process_id: Option<String>,
    question: Question,
    call: u64,
}

/// Resolves with the next answered call; never, when none waits.
pub(super) async fn next(held: &mut HeldCalls) -> (Held, Answer) {
    match held.next().await {
        Some(answered) => answered,
        None => std::future::pending().await,
    }
}

impl Connection {
    /// Asks about a call, unless it has been approved before.
    pub(super) fn ask(
        &self,
        judge: &Judge<'_>,
        text: &Utf8Bytes,
        forwarded: Forwarded,
        decided: Decided,
        held: &HeldCalls,
    ) -> Result<bool, Refused> {
        let Some(id) = forwarded.id.clone() else { return Ok(false) };
        let digest = digest::of(&self.session.persona.name, &decided.action, &decided.decision, text);
        let workspace = self.session.workspace.path.display().to_string();
        let approvals = &self.controller.approvals;
        if let Some(scope) = approvals.take(&self.session.id, &workspace, &digest) {
            let rule = decided.decision.rule().map(str::to_owned);
            let reason = Some(format!("approved {}", scope.text()));
            return self.forward(Forwarded { rule, reason, ..forwarded }).map(|()| true);
        }
        if let Some(error) = self.overloaded(&id, forwarded.method) {
            return Err(error);
        }
        let mut question = self.question(judge, &forwarded, &decided, workspace, digest);
        if let Some(written) = written(forwarded.method, text) {
            question.call = shortened(&format!("{} ← {}", question.call, judge.redactor.text(&written)));
        }
        let Some(mut ticket) = approvals.ask(question, text.len()) else {
            return Err(self.refuse(judge.refused(forwarded, Kind::NotAsked, &decided)));
        };
        let mut record =
            self.call_record(&id, forwarded.method, forwarded.call.clone().unwrap_or_default(), None);
        record.rule = decided.decision.rule().map(str::to_owned);
        record.decision = Some(Decision::Ask);
        record.reason = Some(ticket.question.why.clone());
        let call = self.controller.record(&record).map_err(|error| self.unrecorded(&id, &error))?;
        self.held.borrow_mut().push(HeldKey {
            id,
            process_id: forwarded.process_id.clone(),
            question: ticket.question.clone(),
            call,
        });
        let (text, patience) = (text.clone(), self.session.persona.ask_timeout);
        held.push(Box::pin(async move {
            let answer = ticket.answer(patience).await;
            (Held { text, forwarded, decided, ticket, call }, answer)
        }));
        Ok(false)
    }

    fn question(
        &self,
        judge: &Judge<'_>,
        forwarded: &Forwarded,
        decided: &Decided,
        workspace: String,
        digest: String,
    ) -> Question {
        let asked = Timestamp::now();
        let object = forwarded.call.clone().unwrap_or_default();
        let decision = &decided.decision;
        let why = decision.message.clone().unwrap_or_else(|| refusal::because(decision));
        let words = object.argv.unwrap_or_default();
        let call = if words.is_empty() {
            let parts = [object.url, object.path, object.destination, object.process_id];
            let parts = parts.into_iter().flatten().collect::<Vec<_>>().join(" → ");
            let size = object.bytes.map(|bytes| format!(" ({bytes} bytes)")).unwrap_or_default();
            format!("{} {parts}{size}", forwarded.method.name())
        } else {
            typed(&words, object.arg0.as_deref())
        };
        Question {
            id: String::new(),
            session: self.session.id.clone(),
            persona: self.session.persona.name.clone(),
            workspace,
            method: forwarded.method.name().to_owned(),
            call: shortened(&call),
            cwd: object.cwd,
            rule: decision.rule().map(str::to_owned),
            why: judge.redactor.text(&why),
            digest,
            asked,
            expires: asked.saturating_add(self.session.persona.ask_timeout).unwrap_or(Timestamp::MAX),
        }
    }

    /// Goes on with an answered call; whether its frame, which is returned, is to be forwarded.
    pub(super) fn resume(
        &self,
        held: Held,
        answer: Answer,
        calls: &HeldCalls,
    ) -> Result<Option<Utf8Bytes>, Refused> {
        let Held { text, forwarded, decided, ticket, call } = held;
        self.held.borrow_mut().retain(|key| key.call != call);
        let said = match answer {
            Answer::Approved(scope) => format!("approved {}", scope.text()),
            Answer::Denied => "denied".to_owned(),
            Answer::TimedOut => "no answer in time".to_owned(),
            Answer::Withdrawn => "the client gave it up".to_owned(),
        };
        let approved = matches!(answer, Answer::Approved(_));
        self.note_answer(call, &ticket.question, said, approved);
        let kind = match answer {
            Answer::Approved(scope) => {
                let admitted = self.admit(&text, calls, Some(call));
                if scope == Scope::Once {
                    self.controller.approvals.settle(&ticket.question);
                }
                return admitted.map(|forward| forward.then_some(text));
            }
            Answer::Denied => Kind::NotApproved,
            Answer::TimedOut => Kind::TimedOut,
            Answer::Withdrawn => Kind::Withdrawn,
        };
        let rules = self.session.rules();
        let judge = self.session.judge(&self.controller, &rules);
        let forwarded = Forwarded { asked: Some(call), ..forwarded };
        Err(self.refuse(judge.refused(forwarded, kind, &decided)))
    }

    fn note_answer(&self, call: u64, question: &Question, said: String, approved: bool) {
        let mut record = self.record(Event::Approval).because(said);
        record.call = Some(call);
        record.method = Some(question.method.clone());
        record.rule.clone_from(&question.rule);
        record.decision = Some(if approved { Decision::Allow } else { Decision::Deny });
        self.controller.note(&record);
    }

    /// Whether a request of this id waits for a person.
    pub(super) fn holds(&self, id: &RequestId) -> bool {
        self.held.borrow().iter().any(|key| key.id == *id)
    }

    /// A client that ends a process which was never started takes its question back.
    pub(super) fn withdraw(&self, method: Method, process_id: Option<&str>) {
        if method != Method::ProcessTerminate {
            return;
        }
        let held = self.held.borrow();
        let given_up =
            held.iter().filter(|key| process_id.is_some() && key.process_id.as_deref() == process_id);
        for key in given_up {
            // It may have been answered just now; then the answer counts.
            let _ = self.controller.approvals.answer(&key.question.id, Answer::Withdrawn);
        }
    }

    /// Questions that are still open at the end of the connection go with it, and that is recorded.
    pub(super) fn abandon_held(&self, why: &str) {
        for key in self.held.take() {
            self.note_answer(key.call, &key.question, format!("not answered: {why}"), false);
        }
    }
}

/// What a call types into a running command.
fn written(method: Method, frame: &str) -> Option<String> {
    let Ok(Head::Request { params: raw, .. }) = Head::parse(frame) else { return None };
    let write: process::Write = (method == Method::ProcessWrite).then(|| params(raw).ok())??;
    Some(quoted(&String::from_utf8_lossy(&write.chunk.0)))
}

/// A command as a shell would take it, with the name that the program is told it has.
fn typed(words: &[String], alias: Option<&str>) -> String {
    let told = alias.filter(|alias| words.first().is_none_or(|first| first != alias));
    let told = told.into_iter().flat_map(|alias| ["exec".to_owned(), "-a".to_owned(), quoted(alias)]);
    told.chain(words.iter().map(|word| quoted(word))).collect::<Vec<_>>().join(" ")
}

/// As much of a text as a question shows; that something is missing shows, too.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_QUESTION_CHARS) {
        Some((end, _)) => {
            format!("{}… [{} more characters]", &text[..end], text[end..].chars().count())
        }
        None => text.to_owned(),
    }
}

/// A word as a shell would take it; plain words stay as they are.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_shown_as_it_could_be_typed() {
        assert_eq!(quoted("git"), "git");
        assert_eq!(quoted("it's a b"), "'it'\\''s a b'");
        assert_eq!(quoted(""), "''");
        let words = ["busybox".to_owned(), "a b".to_owned()];
        assert_eq!(typed(&words, Some("busybox")), "busybox 'a b'");
        assert_eq!(typed(&words, Some("rm")), "exec -a rm busybox 'a b'");
    }

    #[test]
    fn what_is_typed_is_shown() {
        let frame = r#"{"id":1,"method":"process/write","params":{"processId":"7","chunk":"Z2l0IHB1c2gK","writeId":"w"}}"#;
        assert_eq!(written(Method::ProcessWrite, frame).as_deref(), Some("'git push\n'"));
        assert_eq!(written(Method::ProcessTerminate, frame), None);
    }

    #[test]
    fn a_call_that_is_cut_says_so() {
        let whole = "é".repeat(MAX_QUESTION_CHARS);
        assert_eq!(shortened(&whole), whole);
        assert_eq!(shortened(&format!("{whole}xyz")), format!("{whole}… [3 more characters]"));
    }
}
