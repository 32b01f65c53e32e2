//! Questions to a person: calls that a rule says to ask about, and what was answered.
//!
//! Invariant: an answer is for one digest: these arguments, directory, variable names and rule. No answer in time is no. Answers
//! come over the control socket only, which no sandbox has.

pub mod digest;
mod grants;
mod notify;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::environment::Environment;
use crate::failure::{Failure, Outcome};
use crate::limits::{MAX_HELD_BYTES, MAX_QUESTIONS, MAX_SESSION_QUESTIONS};
use grants::Grants;
use notify::Notifier;

/// A call that waits for a person.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// Of this question; names it to `approvals approve`.
    pub id: String,
    /// Public id of the session that asks.
    pub session: String,
    /// Its persona.
    pub persona: String,
    /// Its workspace on the host.
    pub workspace: String,
    /// Wire name of the method.
    pub method: String,
    /// The call on one line, without secrets.
    pub call: String,
    /// Its directory inside, when it is a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The rule that asks; none for a default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The rule's own words, or why it is asked.
    pub why: String,
    /// What the answer is bound to.
    pub digest: String,
    /// When it was asked.
    pub asked: Timestamp,
    /// No answer until then is no.
    pub expires: Timestamp,
}

/// How far an approval goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", deny_unknown_fields)]
pub enum Scope {
    /// This one call.
    Once,
    /// The same call so many times in the session, this one included.
    Times {
        /// At least 1.
        count: u32,
    },
    /// The same call for the rest of the session.
    Session,
    /// The same call in the session until then.
    Until {
        /// A time to come.
        time: Timestamp,
    },
    /// The same call in this workspace, for good.
    Workspace,
}

impl Scope {
    /// For people.
    pub fn text(self) -> String {
        match self {
            Self::Once => "once".to_owned(),
            Self::Times { count } => format!("{count} times"),
            Self::Session => "for the session".to_owned(),
            Self::Until { time } => format!("until {time:.0}"),
            Self::Workspace => "in this workspace, for good".to_owned(),
        }
    }
}

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A person said yes.
    Approved(Scope),
    /// A person said no.
    Denied,
    /// Nobody said anything in time.
    TimedOut,
    /// The client has given it up.
    Withdrawn,
}

struct Waiting {
    question: Question,
    answer: oneshot::Sender<Answer>,
    bytes: usize,
}

/// All questions of a controller.
pub struct Approvals {
    waiting: RefCell<BTreeMap<u64, Waiting>>,
    asked: Cell<u64>,
    changed: watch::Sender<u64>,
    grants: Grants,
    notifier: Notifier,
}

impl Approvals {
    /// Answers for good are kept in this state directory.
    pub fn new(environment: &Environment, state: PathBuf) -> Rc<Self> {
        Rc::new(Self {
            waiting: RefCell::default(),
            asked: Cell::default(),
            changed: watch::Sender::new(0),
            grants: Grants::new(state, environment.uid),
            notifier: Notifier::find(environment),
        })
    }

    /// Asks. `None` when too much is waiting already.
    pub fn ask(self: &Rc<Self>, mut question: Question, bytes: usize) -> Option<Ticket> {
        let mut waiting = self.waiting.borrow_mut();
        let held: usize = waiting.values().map(|waiting| waiting.bytes).sum();
        let own = waiting.values().filter(|waiting| waiting.question.session == question.session).count();
        if waiting.len() >= MAX_QUESTIONS || own >= MAX_SESSION_QUESTIONS || held + bytes > MAX_HELD_BYTES {
            return None;
        }
        let number = self.asked.get() + 1;
        self.asked.set(number);
        question.id = format!("{}-{number}", question.session);
        let (answer, answered) = oneshot::channel();
        self.notifier.tell(&question);
        waiting.insert(number, Waiting { question: question.clone(), answer, bytes });
        self.changed.send_modify(|version| *version += 1);
        Some(Ticket { number, question, answered, approvals: Rc::clone(self) })
    }

    /// The questions that wait, the oldest first.
    pub fn list(&self) -> Vec<Question> {
        self.waiting.borrow().values().map(|waiting| waiting.question.clone()).collect()
    }

    /// Tells whenever the list changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Answers a question; what is approved for more than one call answers the same ones that wait, too.
    pub fn answer(&self, id: &str, answer: Answer) -> Outcome<Question> {
        let question = self.list().into_iter().find(|question| question.id == id).ok_or_else(|| {
            Failure::usage(format_args!(
                "no question {id} waits for an answer: see legion-controller approvals list"
            ))
        })?;
        // Saved before it counts: what was promised for good must not be forgotten.
        if let Answer::Approved(scope) = answer {
            self.grants.add(&question, scope)?;
        }
        let is_wide = matches!(answer, Answer::Approved(scope) if scope != Scope::Once);
        let is_answered = |other: &Question| {
            other.id == id || is_wide && other.session == question.session && other.digest == question.digest
        };
        let answered = |_: &u64, waiting: &mut Waiting| is_answered(&waiting.question);
        for (_, waiting) in self.waiting.borrow_mut().extract_if(.., answered) {
            // Who asked may have left just now.
            let _ = waiting.answer.send(answer);
        }
        self.changed.send_modify(|version| *version += 1);
        Ok(question)
    }

    /// Whether this very call has been approved before; counts it.
    pub fn take(&self, session: &str, workspace: &str, digest: &str) -> Option<Scope> {
        self.grants.take(session, workspace, digest)
    }

    /// Forgets an approval of one call that was not used.
    pub fn settle(&self, question: &Question) {
        self.grants.settle(&question.session, &question.digest);
    }

    /// Forgets what was approved for a session.
    pub fn forget(&self, session: &str) {
        self.grants.forget(session);
    }
}

/// A question of ours; dropping it takes it back.
pub struct Ticket {
    number: u64,
    /// As others see it.
    pub question: Question,
    answered: oneshot::Receiver<Answer>,
    approvals: Rc<Approvals>,
}

impl Ticket {
    /// Waits for the answer.
    pub async fn answer(&mut self, patience: Duration) -> Answer {
        match timeout(patience, &mut self.answered).await {
            Ok(answer) => answer.unwrap_or(Answer::Withdrawn),
            Err(_) => Answer::TimedOut,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.approvals.waiting.borrow_mut().remove(&self.number).is_some() {
            self.approvals.changed.send_modify(|version| *version += 1);
        }
    }
}
