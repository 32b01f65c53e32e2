//! The arms of the match for what lasts as long as the connection: open files (`fs/open`, `fs/readBlock`,
//! `fs/writeBlock`, `fs/close`) and the watch of `fs/watchMissing`.
//!
//! Invariant: what changes the set of handles waits for earlier calls and lets later ones wait, so a client may send
//! `fs/open`, blocks and `fs/close` in one go. A block holds its file, so `fs/close` never cuts one short.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use legion_protocol::fs as wire;
use legion_protocol::jsonrpc::notification_text;
use legion_protocol::object::params;
use legion_protocol::sandbox::Sandbox;
use legion_protocol::{ErrorObject, Method, Params, PathUri, RequestId};
use tokio::task::JoinSet;

use super::confined::Work;
use super::files::{Checked, mib, on_thread, take};
use super::{Answer, Client, Empty, Reply, later, reply};
use crate::confine::operation::{Access, Purpose, View};
use crate::error::Outcome;
use crate::fs::stream;
use crate::fs::watch::Watch;
use crate::limits::{INLINE_FILE_BYTES, MAX_WATCHED_PATHS};
use crate::outgoing::Outgoing;

impl Client {
    pub(super) fn stream_call(
        self: &Rc<Self>,
        method: Method,
        id: RequestId,
        raw: Option<Params<'_>>,
    ) -> Outcome<Answer> {
        Ok(match method {
            Method::FsOpen => {
                let (request, wish): Checked<wire::Open> = self.checked(method, raw)?;
                let client = Rc::clone(self);
                match wish {
                    None => self.quick_change(id, move || client.open_file(request)),
                    Some(wish) => later(async move { client.open_file_confined(&id, request, wish).await }),
                }
            }
            Method::FsReadBlock => {
                let request: wire::ReadBlock = params(raw)?;
                self.session_for(method)?;
                stream::check_name(&request.handle_id)?;
                stream::check_read_length(request.len)?;
                self.read_block(id, request)
            }
            Method::FsWriteBlock => {
                let request: wire::WriteBlock = params(raw)?;
                self.session_for(method)?;
                stream::check_name(&request.handle_id)?;
                stream::check_write_range(request.offset, request.chunk.0.len())?;
                self.write_block(id, request)
            }
            Method::FsClose => {
                let request: wire::Handle = params(raw)?;
                self.session_for(method)?;
                stream::check_name(&request.handle_id)?;
                let client = Rc::clone(self);
                self.quick_change(id, move || {
                    client.handles.close(&request.handle_id);
                    Ok(Empty {})
                })
            }
            Method::FsWatchMissing => {
                let request: wire::WatchMissing = params(raw)?;
                self.session_for(method)?;
                self.watch_missing(id, request)
            }
            other => {
                self.session_for(other)?;
                return Err(ErrorObject::method_not_found(other.name()));
            }
        })
    }

    fn open_file(&self, request: wire::Open) -> Outcome<wire::Handle> {
        self.handles.check_new(&request.handle_id)?;
        let file = stream::open(request.path.path(), request.mode)?;
        self.handles.insert(request.handle_id.clone(), file);
        Ok(wire::Handle { handle_id: request.handle_id })
    }

    /// The policy counts when a file is opened; what may be opened may be used.
    async fn open_file_confined(&self, id: &RequestId, request: wire::Open, wish: Sandbox) -> Outcome<Reply> {
        let wire::Open { path, handle_id, mode, .. } = request;
        let (purpose, work) = match mode {
            wire::OpenMode::Read => (Purpose::Read, Work::Read(1)),
            wire::OpenMode::Replace => (Purpose::Write, Work::Change(1)),
        };
        let access = Access::to(path.path(), purpose);
        self.handles.check_new(&handle_id)?;
        let open = move |paths: &[PathBuf], _: &View| {
            let path = paths.first().map_or(Path::new(""), PathBuf::as_path);
            match mode {
                wire::OpenMode::Read => stream::open(path, mode),
                wire::OpenMode::Replace => stream::replace(path, false),
            }
        };
        let (file, _) = self.run_narrowed(work, (wish, vec![access]), open).await?;
        self.handles.check_new(&handle_id)?;
        self.handles.insert(handle_id.clone(), file);
        Ok(reply(id, &wire::Handle { handle_id }))
    }

    fn read_block(self: &Rc<Self>, id: RequestId, request: wire::ReadBlock) -> Answer {
        let client = Rc::clone(self);
        later(async move {
            let _turn = Arc::clone(&client.order).read_owned().await;
            let file = client.handles.get(&request.handle_id)?;
            let wire::ReadBlock { offset, len, .. } = request;
            let length = usize::try_from(len).unwrap_or(usize::MAX);
            let (result, budget) = if length <= INLINE_FILE_BYTES {
                (stream::read_block(file, &id, offset, len), None)
            } else {
                let budget = take(Arc::clone(&client.budget), mib(length.div_ceil(3) * 4)).await;
                (on_thread(move || stream::read_block(file, &id, offset, len)).await, budget)
            };
            // As in the original: a client that gets this need not close the handle.
            let text = result.inspect_err(|_| client.handles.close(&request.handle_id))?;
            Ok(Reply { text, budget })
        })
    }

    fn write_block(self: &Rc<Self>, id: RequestId, request: wire::WriteBlock) -> Answer {
        let client = Rc::clone(self);
        later(async move {
            let turn = Arc::clone(&client.order).write_owned().await;
            let file = client.handles.get(&request.handle_id)?;
            let wire::WriteBlock { offset, chunk, .. } = request;
            if chunk.0.len() <= INLINE_FILE_BYTES {
                stream::write_block(file, offset, &chunk.0)?;
                return Ok(reply(&id, &Empty {}));
            }
            let budget = take(Arc::clone(&client.budget), mib(chunk.0.len())).await;
            on_thread(move || {
                // Both end with the operation, also when the connection ends before it.
                let _held = (turn, budget);
                stream::write_block(file, offset, &chunk.0)?;
                Ok(reply(&id, &Empty {}))
            })
            .await
        })
    }

    /// Every watch ends the one before, also one that is not set; its id must be a new one.
    fn watch_missing(self: &Rc<Self>, id: RequestId, request: wire::WatchMissing) -> Answer {
        let watch_id = request.watch_id;
        let is_new = self.watch.is_new(watch_id);
        let count = request.missing.len();
        let client = Rc::clone(self);
        later(async move {
            let _turn = Arc::clone(&client.order).read_owned().await;
            let mut set = None;
            if is_new && (1..=MAX_WATCHED_PATHS).contains(&count) {
                set = on_thread(move || {
                    let missing: Vec<_> = request.missing.iter().map(PathUri::path).collect();
                    Ok(Watch::start(&missing, request.present.as_ref().map(PathUri::path)))
                })
                .await?;
            }
            let watching = set.is_some_and(|set| client.watch.run(watch_id, set, &client.outgoing));
            Ok(reply(&id, &wire::Watching { watching }))
        })
    }
}

/// The one watch of a connection.
#[derive(Default)]
pub(super) struct Watcher {
    /// Not greater than the next id.
    newest: Cell<Option<u64>>,
    /// Ends when it is replaced, and with the connection.
    task: RefCell<JoinSet<()>>,
}

impl Watcher {
    /// Whether this id is greater than any before; if so the watch before is over.
    fn is_new(&self, id: u64) -> bool {
        let is_new = self.newest.get().is_none_or(|newest| id > newest);
        if is_new {
            self.newest.set(Some(id));
            self.task.borrow_mut().abort_all();
        }
        is_new
    }

    /// Sends one notification when something changes. `false` when a newer watch was asked for meanwhile.
    fn run(&self, id: u64, watch: Watch, outgoing: &Rc<Outgoing>) -> bool {
        if self.newest.get() != Some(id) {
            return false;
        }
        let outgoing = Rc::clone(outgoing);
        let mut task = self.task.borrow_mut();
        task.spawn_local(async move {
            // What cannot be waited for may have changed.
            let _ = watch.changed().await;
            let params = wire::MissingChanged { watch_id: id };
            outgoing.notify(notification_text(Method::FsMissingChanged.name(), &params));
        });
        // What has ended before takes no room.
        while task.try_join_next().is_some() {}
        true
    }
}
