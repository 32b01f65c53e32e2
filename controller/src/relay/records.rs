//! The records of a connection: what its calls are about and what they belong to.

use std::rc::Rc;

use legion_protocol::{Method, RequestId};

use super::{Connection, Pending};
use crate::audit::record::{Decision, Object, Outcome};
use crate::audit::{Event, Record};
use crate::session::{ProcessKey, millis};

impl Connection {
    pub(super) fn call_record(
        &self,
        id: &RequestId,
        method: Method,
        object: Object,
        rule: Option<String>,
    ) -> Record {
        let mut record = self.record(Event::Call);
        record.rule = rule;
        record.process = object.process_id.as_ref().and_then(|process| self.start_of(process));
        record.request = Some(self.named(id));
        record.method = Some(method.name().to_owned());
        record.object = Some(object);
        record.decision = Some(Decision::Allow);
        self.name_file(method, &mut record);
        record
    }

    /// A request's id as records name it.
    pub(super) fn named(&self, id: &RequestId) -> RequestId {
        match id {
            RequestId::Text(text) => RequestId::Text(self.controller.redactor.text(text).into()),
            RequestId::Integer(_) => id.clone(),
        }
    }

    pub(super) fn key(&self, process_id: &str) -> ProcessKey {
        ProcessKey { client: Rc::clone(&self.client.borrow()), id: process_id.to_owned() }
    }

    /// Number of the record that started a process, answered or not.
    pub(super) fn start_of(&self, process_id: &str) -> Option<u64> {
        let running = self.session.running().borrow();
        running.get(&self.key(process_id)).map(|command| command.call).or_else(|| {
            let pending = self.pending.borrow();
            let is_start = |pending: &&Pending| {
                pending.method == Method::ProcessStart && pending.process_id.as_deref() == Some(process_id)
            };
            pending.values().find(is_start)?.call
        })
    }

    /// A record of this connection.
    pub(super) fn record(&self, event: Event) -> Record {
        let mut record = Record::new(event).of_session(&self.session.id);
        record.connection = Some(self.number);
        record.actor = Some(self.actor.borrow().clone());
        record
    }

    /// Calls without an answer at the end of the connection have an unknown outcome, and that is recorded.
    pub(super) fn abandon_pending(&self, why: &str) {
        for (_, pending) in self.pending.borrow_mut().drain() {
            let Some(call) = pending.call else { continue };
            let outcome = Outcome {
                message: Some(format!("no answer was seen: {why}")),
                duration_ms: Some(millis(pending.started.elapsed())),
                ..Outcome::default()
            };
            let mut record = Record::new(Event::Outcome).of_session(&self.session.id);
            record.call = Some(call);
            record.method = Some(pending.method.name().to_owned());
            record.outcome = Some(outcome);
            self.controller.note(&record);
        }
    }
}
