//! Calls that are refused: what is recorded, what is answered, and what the person is told.
//!
//! Invariant: nothing here forwards a call.

use legion_protocol::limits::MAX_REQUESTS_IN_FLIGHT;
use legion_protocol::{ErrorCode, ErrorObject, Method, RequestId, jsonrpc};

use super::{Connection, Refused};
use crate::audit::Event;
use crate::audit::record::Decision;
use crate::gate;
use crate::limits::{MAX_TOLD_REFUSALS, MAX_TRACKED_PROCESSES};

/// Changes of files. When one fails, Codex shows its model which file it was, whatever the answer says; so the person in
/// front of `start` is told why.
const KEPT_FROM_MODELS: [Method; 4] =
    [Method::FsWriteFile, Method::FsCreateDirectory, Method::FsRemove, Method::FsCopy];

impl Connection {
    /// Records a refusal; what is answered.
    pub(super) fn refuse(&self, refused: gate::Refused) -> Refused {
        let event = if refused.violation { Event::Violation } else { Event::Call };
        let mut record = self.record(event).because(self.controller.redactor.text(&refused.error.message));
        let is_named = refused.id != RequestId::UNPARSABLE;
        record.request = is_named.then(|| self.named(&refused.id));
        record.asked = refused.asked;
        record.method = refused.method;
        record.object = refused.object;
        record.rule = refused.rule;
        record.decision = Some(Decision::Deny);
        self.controller.note(&record);
        self.tell_person(&refused.error, record.method.as_deref());
        Refused::Answer(jsonrpc::error_text(&refused.id, &refused.error))
    }

    fn tell_person(&self, error: &ErrorObject, method: Option<&str>) {
        let is_change =
            method.and_then(Method::from_name).is_some_and(|method| KEPT_FROM_MODELS.contains(&method));
        if !is_change || error.code != ErrorCode::Refused || !self.controller.tells_refusals() {
            return;
        }
        let told = self.told_refusals.get();
        self.told_refusals.set(told.saturating_add(1));
        match told {
            ..MAX_TOLD_REFUSALS => tracing::warn!(session = self.session.id, "{}", error.message),
            MAX_TOLD_REFUSALS => {
                tracing::warn!(
                    session = self.session.id,
                    "more is refused: see legion-controller audit query --decision deny"
                );
            }
            _ => {}
        }
    }

    /// Refuses a call because there is no record of it.
    pub(super) fn unrecorded(&self, id: &RequestId, error: &std::io::Error) -> Refused {
        tracing::error!(%error, session = self.session.id, "a call is refused because it cannot be recorded");
        let error = ErrorObject::new(ErrorCode::Refused, format!("Legion cannot record this call: {error}"));
        Refused::Answer(jsonrpc::error_text(id, &error))
    }

    pub(super) fn overloaded(&self, id: &RequestId, method: Method) -> Option<Refused> {
        let error = ErrorObject::invalid_request(self.overload(id, method)?);
        Some(Refused::Answer(jsonrpc::error_text(id, &error)))
    }

    fn overload(&self, id: &RequestId, method: Method) -> Option<String> {
        let pending = self.pending.borrow();
        if pending.contains_key(id) || self.holds(id) {
            return Some(format!("request id {id} is already in flight"));
        }
        if pending.len() >= MAX_REQUESTS_IN_FLIGHT {
            return Some(format!(
                "more than {MAX_REQUESTS_IN_FLIGHT} requests are in flight: wait for answers"
            ));
        }
        let tracked = self.session.running().borrow().len();
        (method == Method::ProcessStart && tracked >= MAX_TRACKED_PROCESSES)
            .then(|| format!("more than {MAX_TRACKED_PROCESSES} processes are running: end some"))
    }
}
