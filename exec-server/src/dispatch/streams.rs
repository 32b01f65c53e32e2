//! The arms of the match for files that stay open: `fs/open`, `fs/readBlock`, `fs/writeBlock`, `fs/close`.
//!
//! Invariant: what changes the set of handles waits for earlier calls and lets later ones wait, so a client may send
//! `fs/open`, blocks and `fs/close` in one go. A block holds its file, so `fs/close` never cuts one short.

use std::rc::Rc;
use std::sync::Arc;

use legion_protocol::fs as wire;
use legion_protocol::object::params;
use legion_protocol::{ErrorObject, Method, RequestId};
use serde_json::value::RawValue;

use super::files::{mib, on_thread, take};
use super::{Answer, Client, Empty, Reply, later, reply};
use crate::error::Outcome;
use crate::fs::stream;
use crate::limits::INLINE_FILE_BYTES;

impl Client {
    pub(super) fn stream_call(
        self: &Rc<Self>,
        method: Method,
        id: RequestId,
        raw: Option<&RawValue>,
    ) -> Outcome<Answer> {
        Ok(match method {
            Method::FsOpen => {
                let request: wire::Open = self.checked(method, raw)?;
                let client = Rc::clone(self);
                self.quick_change(id, move || client.open_file(request))
            }
            Method::FsReadBlock => {
                let request: wire::ReadBlock = params(raw)?;
                self.session_for(method)?;
                stream::check_read_length(request.len)?;
                self.read_block(id, request)
            }
            Method::FsWriteBlock => {
                let request: wire::WriteBlock = params(raw)?;
                self.session_for(method)?;
                stream::check_write_length(request.chunk.0.len())?;
                self.write_block(id, request)
            }
            Method::FsClose => {
                let request: wire::Handle = params(raw)?;
                self.session_for(method)?;
                let client = Rc::clone(self);
                self.quick_change(id, move || {
                    client.handles.close(&request.handle_id);
                    Ok(Empty {})
                })
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

    fn read_block(self: &Rc<Self>, id: RequestId, request: wire::ReadBlock) -> Answer {
        let client = Rc::clone(self);
        later(async move {
            let _turn = Arc::clone(&client.order).read_owned().await;
            let file = client.handles.get(&request.handle_id)?;
            let wire::ReadBlock { offset, len, .. } = request;
            let length = usize::try_from(len).unwrap_or(usize::MAX);
            if length <= INLINE_FILE_BYTES {
                return Ok(Reply { text: stream::read_block(file, &id, offset, len)?, budget: None });
            }
            let budget = take(Arc::clone(&client.budget), mib(length.div_ceil(3) * 4)).await;
            let text = on_thread(move || stream::read_block(file, &id, offset, len)).await?;
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
}
