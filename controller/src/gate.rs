//! The gate: what becomes of one frame from a harness. Pure.
//!
//! Invariant: a frame is forwarded only if its head and, for a guarded method, its parameters decode into the very
//! types the exec-server decodes, and the policy allows it. Unknown methods, wrong directions and unreadable frames do
//! not pass, whatever the policy says.

pub mod call;
pub mod recorded;

use legion_protocol::method::{Direction, Guard};
use legion_protocol::object::{ProcessIdOnly, params};
use legion_protocol::{ErrorObject, Frame, Head, Method, Params, RequestId, fs, process, session};

use crate::audit::record::Object;
use crate::audit::redact::Redactor;
use crate::policy::refusal::{self, Kind};
use crate::policy::{Action, Decision, Rules, Sight, Verdict};
use call::{Call, Decoder, columns_and_rows};

/// What a frame is judged by.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    /// Takes secrets out of what is recorded and answered.
    pub redactor: &'a Redactor,
    /// The session's rules.
    pub rules: &'a Rules,
    /// How they see a call.
    pub sight: Sight<'a>,
}

/// What to do with a frame.
#[derive(Debug)]
pub enum Ruling {
    /// Forward it as it is.
    Forward(Box<Forwarded>),
    /// Ask a person first.
    Ask(Box<Forwarded>, Box<Decided>),
    /// Answer it with an error.
    Refuse(Box<Refused>),
    /// Break the connection off, as the exec-server would (SPEC 2.4).
    Close(String),
}

/// A frame that passes.
#[derive(Debug)]
pub struct Forwarded {
    /// None for a notification.
    pub id: Option<RequestId>,
    /// Its method.
    pub method: Method,
    /// What a guarded call is about: it is recorded before it is forwarded.
    pub call: Option<Object>,
    /// The client's process id: for the methods whose end is tracked.
    pub process_id: Option<String>,
    /// Columns and rows of a terminal that is resized.
    pub size: Option<(u16, u16)>,
    /// What an `initialize` says of the client.
    pub client: Option<String>,
    /// The handle of a file that is closed, as records name it.
    pub closes: Option<String>,
    /// Number of the record in which a person was asked about it.
    pub asked: Option<u64>,
    /// The rule that allowed it.
    pub rule: Option<String>,
    /// Variables of `.env`, by name or `PREFIX_*`, that the command gets.
    pub secrets: Vec<String>,
    /// How else it came to be allowed.
    pub reason: Option<String>,
}

/// A frame that does not pass.
#[derive(Debug)]
pub struct Refused {
    /// Of the request; -1 when there is none to name.
    pub id: RequestId,
    /// What the harness is told.
    pub error: ErrorObject,
    /// The wire name, when there was one.
    pub method: Option<String>,
    /// What it was about, when that could be read.
    pub object: Option<Object>,
    /// Number of the record in which a person was asked about it.
    pub asked: Option<u64>,
    /// The rule that refused it.
    pub rule: Option<String>,
    /// Not even a frame, or one that breaks the protocol.
    pub violation: bool,
}

/// What was decided on.
#[derive(Debug)]
pub struct Decided {
    /// The call.
    pub action: Action,
    /// The answer.
    pub decision: Decision,
}

impl Judge<'_> {
    /// Judges one frame.
    pub fn judge(&self, text: &str) -> Ruling {
        let frame = Frame::new(text);
        match frame.head() {
            Ok(Head::Request { id, method, params }) => self.request(id, &method, params),
            Ok(Head::Notification { method, .. }) => match Method::from_name(&method) {
                Some(method) if method.direction() == Direction::ClientNotification => {
                    Ruling::Forward(Box::new(Forwarded::free(None, method)))
                }
                _ => {
                    Ruling::Close(format!("`{}` is no notification of a client", self.redactor.text(&method)))
                }
            },
            Ok(Head::Response { id, .. } | Head::Error { id, .. }) => {
                let id = self.redactor.text(&id.to_string());
                Ruling::Close(format!("an answer to {id}, which nobody asked"))
            }
            Err(detail) => {
                let error = ErrorObject::unparsable("exec-server websocket", &detail);
                Ruling::Refuse(Box::new(Refused {
                    violation: true,
                    ..Refused::new(RequestId::UNPARSABLE, error, None)
                }))
            }
        }
    }

    fn request(&self, id: RequestId, name: &str, raw: Option<Params<'_>>) -> Ruling {
        let known = Method::from_name(name).filter(|method| method.direction() == Direction::ClientRequest);
        let Some(method) = known else {
            let error = ErrorObject::method_not_found(name);
            return Ruling::Refuse(Box::new(Refused::new(id, error, Some(self.redactor.text(name)))));
        };
        if method.guard() == Guard::Free {
            return match self.free(method, raw) {
                Ok(forwarded) => Ruling::Forward(Box::new(Forwarded { id: Some(id), ..forwarded })),
                Err(error) => Ruling::Refuse(Box::new(Refused::new(id, error, Some(name.to_owned())))),
            };
        }
        let sight = (!self.rules.is_open()).then_some(self.sight);
        match (Decoder { redactor: self.redactor, sight }).decode(method, raw) {
            Ok(call) => self.guarded(id, method, call),
            Err(error) => Ruling::Refuse(Box::new(Refused::new(id, error, Some(name.to_owned())))),
        }
    }

    /// A free method: only what the relay follows is decoded; the exec-server judges the rest itself.
    fn free(&self, method: Method, raw: Option<Params<'_>>) -> Result<Forwarded, ErrorObject> {
        let free = Forwarded::free(None, method);
        Ok(match method {
            Method::Initialize => {
                let client = params::<session::Initialize>(raw)?.client_name;
                Forwarded { client: Some(self.redactor.text(&client)), ..free }
            }
            Method::ProcessRead => {
                let id = raw.and_then(|raw| serde_json::from_str::<ProcessIdOnly<'_>>(raw.get()).ok());
                Forwarded { process_id: id.map(|id| id.process_id.into_owned()), ..free }
            }
            Method::FsClose => {
                let handle = raw.and_then(|raw| serde_json::from_str::<fs::Handle>(raw.get()).ok());
                Forwarded { closes: handle.map(|handle| self.redactor.text(&handle.handle_id)), ..free }
            }
            Method::LegionResizeTerminal => {
                let resize =
                    raw.and_then(|raw| serde_json::from_str::<process::ResizeTerminal>(raw.get()).ok());
                let size = resize.as_ref().map(|resize| columns_and_rows(resize.size));
                Forwarded { process_id: resize.map(|resize| resize.process_id), size, ..free }
            }
            _ => free,
        })
    }

    fn guarded(&self, id: RequestId, method: Method, call: Call) -> Ruling {
        let Call { object, what, process_id, size } = call;
        let mut forwarded =
            Forwarded { id: Some(id), call: Some(object), process_id, size, ..Forwarded::free(None, method) };
        if self.rules.is_open() {
            return Ruling::Forward(Box::new(forwarded));
        }
        let action = Action { method: method.name(), what };
        let decision = self.rules.decide(&action);
        // A workspace's own rules narrow; they give nothing.
        forwarded.secrets = self.rules.persona.secrets(&action);
        match decision.verdict {
            Verdict::Allow => {
                forwarded.rule = decision.rule().map(str::to_owned);
                Ruling::Forward(Box::new(forwarded))
            }
            Verdict::Ask => Ruling::Ask(Box::new(forwarded), Box::new(Decided { action, decision })),
            Verdict::Deny => {
                Ruling::Refuse(Box::new(self.refused(forwarded, Kind::Denied, &Decided { action, decision })))
            }
        }
    }

    /// A call that the policy, or the person it asked, does not let pass.
    pub fn refused(&self, forwarded: Forwarded, kind: Kind, decided: &Decided) -> Refused {
        let error = refusal::error(kind, &decided.decision, &decided.action, self.redactor);
        let method = Some(forwarded.method.name().to_owned());
        Refused {
            object: forwarded.call,
            asked: forwarded.asked,
            rule: decided.decision.rule().map(str::to_owned),
            ..Refused::new(forwarded.id.unwrap_or(RequestId::UNPARSABLE), error, method)
        }
    }
}

impl Forwarded {
    fn free(id: Option<RequestId>, method: Method) -> Self {
        Self {
            id,
            method,
            call: None,
            process_id: None,
            size: None,
            client: None,
            closes: None,
            asked: None,
            rule: None,
            reason: None,
            secrets: Vec::new(),
        }
    }
}

impl Refused {
    fn new(id: RequestId, error: ErrorObject, method: Option<String>) -> Self {
        Self { id, error, method, object: None, asked: None, rule: None, violation: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::action::Places;

    fn ruling(text: &str) -> Ruling {
        let (redactor, rules, places) = (Redactor::default(), Rules::default(), Places::default());
        Judge { redactor: &redactor, rules: &rules, sight: Sight { places: &places, look: None } }.judge(text)
    }

    fn forwarded(text: &str) -> Forwarded {
        match ruling(text) {
            Ruling::Forward(forwarded) => *forwarded,
            other => panic!("{other:?}"),
        }
    }

    fn refused(text: &str) -> i64 {
        match ruling(text) {
            Ruling::Refuse(refused) => refused.error.code.number(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn guarded_calls_say_what_they_are_about() {
        let start = forwarded(
            r#"{"id":1,"method":"process/start","params":{"processId":"7","argv":["ls"],"cwd":"file:///w","env":{"A":"secret"},"tty":false}}"#,
        );
        let object = start.call.unwrap();
        assert_eq!((object.argv, object.cwd), (Some(vec!["ls".to_owned()]), Some("/w".to_owned())));
        assert_eq!(object.env, Some(vec!["A".to_owned()]));
        assert_eq!(start.process_id.as_deref(), Some("7"));
        let write = forwarded(
            r#"{"id":2,"method":"fs/writeFile","params":{"path":"file:///w/%2e%2e/w/x","dataBase64":"aGVsbG8="}}"#,
        );
        let object = write.call.unwrap();
        assert_eq!((object.path.as_deref(), object.bytes), (Some("/w/x"), Some(5)));
    }

    #[test]
    fn every_guarded_method_decodes_its_parameters() {
        for method in Method::ALL.iter().filter(|method| method.guard() == Guard::Guarded) {
            let text = format!(r#"{{"id":1,"method":"{}","params":{{}}}}"#, method.name());
            assert_eq!(refused(&text), -32602, "{}", method.name());
            let array = format!(r#"{{"id":1,"method":"{}","params":[]}}"#, method.name());
            assert_eq!(refused(&array), -32602, "{}", method.name());
        }
    }

    #[test]
    fn what_is_not_a_clients_request_does_not_pass() {
        assert_eq!(refused(r#"{"id":1,"method":"process/kill","params":{}}"#), -32601);
        assert_eq!(refused(r#"{"id":1,"method":"process/output","params":{}}"#), -32601);
        assert_eq!(refused(r#"{"id":1,"method":"initialized"}"#), -32601);
        assert_eq!(refused("nonsense"), -32600);
        assert_eq!(refused(r#"{"id":1,"id":2,"method":"process/read"}"#), -32600);
        for text in
            [r#"{"method":"process/start","params":{}}"#, r#"{"id":1,"result":{}}"#, r#"{"id":1,"error":{}}"#]
        {
            assert!(matches!(ruling(text), Ruling::Close(_)), "{text}");
        }
    }

    #[test]
    fn initialize_names_the_client() {
        let opened =
            forwarded(r#"{"id":1,"method":"initialize","params":{"clientName":"codex-environment"}}"#);
        assert_eq!(opened.client.as_deref(), Some("codex-environment"));
        assert!(opened.call.is_none());
    }
}
