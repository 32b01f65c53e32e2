//! The gate: what becomes of one frame from a harness. Pure.
//!
//! Invariant: a frame is forwarded only if its head and, for a guarded method, its parameters decode into the very
//! types the exec-server decodes. Unknown methods, wrong directions and unreadable frames do not pass.

use legion_protocol::method::{Direction, Guard};
use legion_protocol::object::{ProcessIdOnly, params, params_in};
use legion_protocol::{
    ErrorObject, Head, Method, PathUri, RequestId, capability, environment, fs, http, process, session,
};
use serde_json::value::RawValue;

use crate::audit::record::Object;
use crate::audit::redact::Redactor;

/// What to do with a frame.
#[derive(Debug)]
pub enum Ruling {
    /// Forward it as it is.
    Forward(Box<Forwarded>),
    /// Answer it with an error.
    Refuse {
        /// Of the request; -1 when there is none to name.
        id: RequestId,
        /// What the harness is told.
        error: ErrorObject,
        /// The wire name, when there was one.
        method: Option<String>,
        /// Not even a frame, or one that breaks the protocol.
        violation: bool,
    },
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
    /// What an `initialize` says of the client.
    pub client: Option<String>,
}

/// Judges one frame.
pub fn judge(text: &str, redactor: &Redactor) -> Ruling {
    match Head::parse(text) {
        Ok(Head::Request { id, method, params }) => request(id, &method, params, redactor),
        Ok(Head::Notification { method, .. }) => match Method::from_name(&method) {
            Some(method) if method.direction() == Direction::ClientNotification => {
                Ruling::Forward(Box::new(Forwarded {
                    id: None,
                    method,
                    call: None,
                    process_id: None,
                    client: None,
                }))
            }
            _ => Ruling::Close(format!("`{}` is no notification of a client", redactor.text(&method))),
        },
        Ok(Head::Response { id, .. } | Head::Error { id, .. }) => {
            Ruling::Close(format!("an answer to {id}, which nobody asked"))
        }
        Err(detail) => Ruling::Refuse {
            id: RequestId::UNPARSABLE,
            error: ErrorObject::unparsable("exec-server websocket", &detail),
            method: None,
            violation: true,
        },
    }
}

fn request(id: RequestId, name: &str, raw: Option<&RawValue>, redactor: &Redactor) -> Ruling {
    let known = Method::from_name(name).filter(|method| method.direction() == Direction::ClientRequest);
    let Some(method) = known else {
        let error = ErrorObject::method_not_found(name);
        return Ruling::Refuse { id, error, method: Some(redactor.text(name)), violation: false };
    };
    let decoded = match method.guard() {
        Guard::Guarded => {
            object(method, raw, redactor).map(|(object, process_id)| (Some(object), process_id, None))
        }
        Guard::Free => free(method, raw, redactor),
    };
    match decoded {
        Ok((call, process_id, client)) => {
            Ruling::Forward(Box::new(Forwarded { id: Some(id), method, call, process_id, client }))
        }
        Err(error) => Ruling::Refuse { id, error, method: Some(name.to_owned()), violation: false },
    }
}

type Decoded = (Option<Object>, Option<String>, Option<String>);

/// A free method: only what the relay follows is decoded; the exec-server judges the rest itself.
fn free(method: Method, raw: Option<&RawValue>, redactor: &Redactor) -> Result<Decoded, ErrorObject> {
    Ok(match method {
        Method::Initialize => {
            let client = params::<session::Initialize>(raw)?.client_name;
            (None, None, Some(redactor.text(&client)))
        }
        Method::ProcessRead => {
            let id = raw.and_then(|raw| serde_json::from_str::<ProcessIdOnly<'_>>(raw.get()).ok());
            (None, id.map(|id| id.process_id.into_owned()), None)
        }
        _ => (None, None, None),
    })
}

/// Decodes the parameters of a guarded call: what it is about, and the process id when its end is tracked.
fn object(
    method: Method,
    raw: Option<&RawValue>,
    redactor: &Redactor,
) -> Result<(Object, Option<String>), ErrorObject> {
    let path = |path: &PathUri| Some(redactor.text(&path.path().to_string_lossy()));
    let size = |length: usize| Some(length as u64);
    let object = match method {
        Method::ProcessStart => {
            let start: process::Start = params(raw)?;
            let object = command(&start, redactor);
            return Ok((object, Some(start.process_id)));
        }
        Method::ProcessWrite => {
            let write: process::Write = params(raw)?;
            Object { bytes: size(write.chunk.0.len()), ..of_process(&write.process_id, redactor) }
        }
        Method::ProcessSignal => of_process(&params::<process::SendSignal>(raw)?.process_id, redactor),
        Method::ProcessTerminate | Method::LegionCloseStdin => {
            of_process(&params::<process::ProcessRef>(raw)?.process_id, redactor)
        }
        Method::EnvironmentConfigRead => {
            Object { path: path(&params::<environment::ConfigRead>(raw)?.cwd), ..Object::default() }
        }
        Method::CapabilitiesDiscover => {
            Object { path: path(&params::<capability::Discover>(raw)?.cwd), ..Object::default() }
        }
        Method::CapabilityRootsDiscover => {
            let roots = params::<capability::DiscoverRoots>(raw)?.roots;
            Object { path: roots.first().and_then(|root| path(&root.path)), ..Object::default() }
        }
        Method::HttpRequest => {
            let request: http::HttpRequest = params(raw)?;
            let url = format!("{} {}", request.method, request.url);
            let bytes = request.body_base64.and_then(|body| size(body.0.len()));
            Object { url: Some(redactor.text(&url)), bytes, ..Object::default() }
        }
        _ => file_object(method, raw, redactor)?,
    };
    Ok((object, None))
}

/// What a guarded `fs/*` call is about.
fn file_object(method: Method, raw: Option<&RawValue>, redactor: &Redactor) -> Result<Object, ErrorObject> {
    let path = |path: &PathUri| Some(redactor.text(&path.path().to_string_lossy()));
    let size = |length: usize| Some(length as u64);
    Ok(match method {
        Method::FsWriteFile => {
            let write: fs::WriteFile<&RawValue> = params_in(raw)?;
            let bytes = decoded_length(write.data_base64.get())?;
            Object { path: path(&write.path), bytes: Some(bytes), ..Object::default() }
        }
        Method::FsCreateDirectory => {
            let create: fs::CreateDirectory = params(raw)?;
            let recursive = Some(create.recursive.unwrap_or(true));
            Object { path: path(&create.path), recursive, ..Object::default() }
        }
        Method::FsRemove => {
            let remove: fs::Remove = params(raw)?;
            let recursive = Some(remove.recursive.unwrap_or(true));
            Object { path: path(&remove.path), recursive, ..Object::default() }
        }
        Method::FsWalk => Object { path: path(&params::<fs::Walk>(raw)?.path), ..Object::default() },
        Method::FsCopy => {
            let copy: fs::Copy = params(raw)?;
            let recursive = Some(copy.recursive);
            let destination = path(&copy.destination_path);
            Object { path: path(&copy.source_path), destination, recursive, ..Object::default() }
        }
        Method::FsOpen => {
            let open: fs::Open = params(raw)?;
            let handle_id = Some(redactor.text(&open.handle_id));
            Object { path: path(&open.path), handle_id, ..Object::default() }
        }
        Method::FsWriteBlock => {
            let block: fs::WriteBlock = params(raw)?;
            let handle_id = Some(redactor.text(&block.handle_id));
            Object { handle_id, bytes: size(block.chunk.0.len()), ..Object::default() }
        }
        Method::FsWatchMissing => {
            let watch: fs::WatchMissing = params(raw)?;
            Object { path: watch.missing.first().and_then(path), ..Object::default() }
        }
        // Every other one names one path.
        _ => Object { path: path(&params::<fs::OnPath>(raw)?.path), ..Object::default() },
    })
}

/// Bytes of a JSON string of base64, from its length: the content is megabytes that only the exec-server needs.
fn decoded_length(json: &str) -> Result<u64, ErrorObject> {
    let text = json
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .ok_or_else(|| ErrorObject::invalid_params("invalid type: dataBase64 must be a string"))?;
    let padding = text.bytes().rev().take(2).filter(|byte| *byte == b'=').count();
    Ok((text.len() / 4 * 3).saturating_sub(padding) as u64)
}

fn of_process(id: &str, redactor: &Redactor) -> Object {
    Object { process_id: Some(redactor.text(id)), ..Object::default() }
}

fn command(start: &process::Start, redactor: &Redactor) -> Object {
    let metadata = start.metadata.clone().unwrap_or_default();
    Object {
        argv: Some(redactor.list(start.argv.iter().map(String::as_str))),
        cwd: Some(redactor.text(&start.cwd.path().to_string_lossy())),
        env: Some(redactor.list(start.env.0.keys().map(String::as_str).collect::<Vec<_>>().into_iter())),
        tty: Some(start.tty),
        thread_id: metadata.thread_id.map(|id| redactor.text(&id)),
        tool_call_id: metadata.tool_call_id.map(|id| redactor.text(&id)),
        ..of_process(&start.process_id, redactor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ruling(text: &str) -> Ruling {
        judge(text, &Redactor::default())
    }

    fn forwarded(text: &str) -> Forwarded {
        match ruling(text) {
            Ruling::Forward(forwarded) => *forwarded,
            other => panic!("{other:?}"),
        }
    }

    fn refused(text: &str) -> i64 {
        match ruling(text) {
            Ruling::Refuse { error, .. } => error.code.number(),
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
