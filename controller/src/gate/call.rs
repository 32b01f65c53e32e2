//! A guarded call, decoded once: what its record says, and what the policy decides on.

use std::path::Path;

use legion_protocol::object::params;
use legion_protocol::{ErrorObject, Method, Params, PathUri, capability, environment, fs, http, process};

use crate::audit::record::Object;
use crate::audit::redact::Redactor;
use crate::policy::action::{Http, Op, Sight, Touch, What};

/// What a call is about.
#[derive(Debug)]
pub struct Call {
    /// For its record.
    pub object: Object,
    /// For the policy.
    pub what: What,
    /// The client's process id: for the methods whose end is tracked.
    pub process_id: Option<String>,
    /// Columns and rows of the terminal a command starts with.
    pub size: Option<(u16, u16)>,
}

impl Call {
    fn new(object: Object, what: What) -> Self {
        Self { object, what, process_id: None, size: None }
    }
}

/// As recordings name a size.
pub fn columns_and_rows(size: process::TerminalSize) -> (u16, u16) {
    (size.columns, size.rows)
}

/// Decodes calls. Without a sight, only for records: the policy allows everything anyway.
#[derive(Clone, Copy)]
pub struct Decoder<'a> {
    /// Takes secrets out of what is recorded.
    pub redactor: &'a Redactor,
    /// How the policy sees it.
    pub sight: Option<Sight<'a>>,
}

impl Decoder<'_> {
    /// Decodes the parameters of a guarded call.
    pub fn decode(&self, method: Method, raw: Option<Params<'_>>) -> Result<Call, ErrorObject> {
        let size = |length: usize| Some(length as u64);
        Ok(match method {
            Method::ProcessStart => {
                let start: process::Start = params(raw)?;
                let size = start.legion.and_then(|legion| legion.terminal_size).map(columns_and_rows);
                let object = self.command(&start);
                let process_id = Some(start.process_id.clone());
                let what = self.what(|sight| {
                    let names = variables(&start).into_iter().map(str::to_owned).collect();
                    sight.command(start.argv, start.arg0.as_deref(), start.cwd.path(), names)
                });
                Call { process_id, size, ..Call::new(object, what) }
            }
            Method::ProcessWrite => {
                let write: process::Write = params(raw)?;
                let object =
                    Object { bytes: size(write.chunk.0.len()), ..self.of_process(&write.process_id) };
                Call::new(object, What::Other)
            }
            Method::ProcessSignal => {
                let process::SendSignal { process_id, signal: process::Signal::Interrupt } = params(raw)?;
                self.signal(&process_id, process::AnySignal::Interrupt)
            }
            Method::LegionSignal => {
                let send: process::SendAnySignal = params(raw)?;
                self.signal(&send.process_id, send.signal)
            }
            Method::ProcessTerminate | Method::LegionCloseStdin => {
                let process_id = params::<process::ProcessRef>(raw)?.process_id;
                let object = self.of_process(&process_id);
                Call { process_id: Some(process_id), ..Call::new(object, What::Other) }
            }
            Method::EnvironmentConfigRead => {
                self.one_path(Op::Read, &params::<environment::ConfigRead>(raw)?.cwd, false)
            }
            Method::CapabilitiesDiscover => {
                self.one_path(Op::Read, &params::<capability::Discover>(raw)?.cwd, true)
            }
            Method::CapabilityRootsDiscover => {
                let roots = params::<capability::DiscoverRoots>(raw)?.roots;
                self.paths(Op::Read, &roots.iter().map(|root| &root.path).collect::<Vec<_>>(), true)
            }
            Method::HttpRequest => {
                let request: http::HttpRequest = params(raw)?;
                let url = format!("{} {}", request.method, request.url);
                let bytes = request.body_base64.and_then(|body| size(body.0.len()));
                let follows = request.redirect_policy == http::RedirectPolicy::Follow;
                let object = Object {
                    url: Some(self.redactor.text(&url)),
                    follows: Some(follows),
                    bytes,
                    ..Object::default()
                };
                Call::new(object, What::Http(Http::new(&request.method, &request.url, follows)))
            }
            _ => self.file(method, raw)?,
        })
    }

    /// A guarded `fs/*` call.
    fn file(&self, method: Method, raw: Option<Params<'_>>) -> Result<Call, ErrorObject> {
        Ok(match method {
            Method::FsWriteFile => {
                let write = fs::WriteFile::from_params(raw)?;
                let bytes = Some(decoded_length(&write.data_base64.0));
                let call = self.one_path(Op::Write, &write.path, false);
                Call { object: Object { bytes, ..call.object }, ..call }
            }
            Method::FsCreateDirectory => {
                let create: fs::CreateDirectory = params(raw)?;
                let recursive = Some(create.recursive.unwrap_or(true));
                let call = self.one_path(Op::Write, &create.path, false);
                Call { object: Object { recursive, ..call.object }, ..call }
            }
            Method::FsRemove => {
                let remove: fs::Remove = params(raw)?;
                let recursive = remove.recursive.unwrap_or(true);
                let call = self.one_path(Op::Remove, &remove.path, recursive);
                Call { object: Object { recursive: Some(recursive), ..call.object }, ..call }
            }
            Method::FsWalk => self.one_path(Op::Read, &params::<fs::Walk>(raw)?.path, true),
            Method::FsCopy => {
                let copy: fs::Copy = params(raw)?;
                let object = Object {
                    path: Some(self.path(&copy.source_path)),
                    destination: Some(self.path(&copy.destination_path)),
                    recursive: Some(copy.recursive),
                    ..Object::default()
                };
                let what = self.what(|sight| {
                    What::Files(copied(
                        sight,
                        copy.source_path.path(),
                        copy.destination_path.path(),
                        copy.recursive,
                    ))
                });
                Call::new(object, what)
            }
            Method::FsOpen => {
                let open: fs::Open = params(raw)?;
                let op = if open.mode == fs::OpenMode::Replace { Op::Write } else { Op::Read };
                let call = self.one_path(op, &open.path, false);
                let handle_id = Some(self.redactor.text(&open.handle_id));
                let write = (op == Op::Write).then_some(true);
                Call { object: Object { write, handle_id, ..call.object }, ..call }
            }
            Method::FsWriteBlock => {
                let block: fs::WriteBlock = params(raw)?;
                let handle_id = Some(self.redactor.text(&block.handle_id));
                let bytes = Some(block.chunk.0.len() as u64);
                Call::new(Object { bytes, handle_id, ..Object::default() }, What::Other)
            }
            Method::FsWatchMissing => {
                let watch: fs::WatchMissing = params(raw)?;
                self.paths(Op::Read, &watch.missing.iter().chain(&watch.present).collect::<Vec<_>>(), false)
            }
            // Every other one names one path.
            _ => self.one_path(Op::Read, &params::<fs::OnPath>(raw)?.path, false),
        })
    }

    fn what(&self, make: impl FnOnce(Sight<'_>) -> What) -> What {
        self.sight.map_or(What::Other, make)
    }

    fn path(&self, path: &PathUri) -> String {
        self.redactor.text(&path.path().to_string_lossy())
    }

    fn one_path(&self, op: Op, path: &PathUri, tree: bool) -> Call {
        self.paths(op, &[path], tree)
    }

    /// The record names the first path, and the others where there are more.
    fn paths(&self, op: Op, paths: &[&PathUri], tree: bool) -> Call {
        let others = paths.iter().skip(1).map(|path| self.path(path)).collect();
        let path = paths.first().map(|path| self.path(path));
        let what = self
            .what(|sight| What::Files(paths.iter().map(|path| sight.touch(op, path.path(), tree)).collect()));
        Call::new(Object { path, others, ..Object::default() }, what)
    }

    fn signal(&self, process_id: &str, signal: process::AnySignal) -> Call {
        Call::new(Object { signal: Some(signal.name()), ..self.of_process(process_id) }, What::Other)
    }

    fn of_process(&self, id: &str) -> Object {
        Object { process_id: Some(self.redactor.text(id)), ..Object::default() }
    }

    fn command(&self, start: &process::Start) -> Object {
        let redactor = self.redactor;
        let metadata = start.metadata.clone().unwrap_or_default();
        Object {
            argv: Some(redactor.list(start.argv.iter().map(String::as_str))),
            arg0: start.arg0.as_ref().map(|name| redactor.text(name)),
            cwd: Some(self.path(&start.cwd)),
            env: Some(redactor.list(variables(start).into_iter())),
            tty: Some(start.tty),
            thread_id: metadata.thread_id.map(|id| redactor.text(&id)),
            tool_call_id: metadata.tool_call_id.map(|id| redactor.text(&id)),
            ..self.of_process(&start.process_id)
        }
    }
}

/// Names of the variables a client sets for a command.
fn variables(start: &process::Start) -> Vec<&str> {
    let set = start.env_policy.iter().flat_map(|policy| policy.set.0.keys());
    start.env.0.keys().chain(set).map(String::as_str).collect()
}

/// Both paths of a copy.
pub fn copied(sight: Sight<'_>, source: &Path, destination: &Path, tree: bool) -> Vec<Touch> {
    vec![sight.touch(Op::CopySource, source, tree), sight.touch(Op::CopyDestination, destination, tree)]
}

/// Bytes of a base64 text, from its length: the content is megabytes that only the exec-server needs.
fn decoded_length(text: &str) -> u64 {
    let padding = text.bytes().rev().take(2).filter(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding) as u64
}
