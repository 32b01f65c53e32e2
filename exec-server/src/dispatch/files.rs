//! The `fs/*` arms of the match, and where each of them runs: on the event loop when it is surely quick, else on a
//! thread.

use std::rc::Rc;
use std::sync::Arc;

use legion_protocol::capability::{DiscoverRoots, DiscoveredRoots};
use legion_protocol::fs as wire;
use legion_protocol::object::params;
use legion_protocol::sandbox::Sandbox;
use legion_protocol::{ErrorCode, ErrorObject, Method, PathUri, RequestId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::{OwnedRwLockWriteGuard, OwnedSemaphorePermit, Semaphore};

use super::{Answer, Client, Empty, Reply, later, reply};
use crate::confine;
use crate::discover;
use crate::error::Outcome;
use crate::fs;
use crate::limits::{FILE_BUDGET_MIB, INLINE_FILE_BYTES, TREE_COST_MIB};

/// Parameters that may carry the client's own sandbox wish.
pub(super) trait Confined {
    fn sandbox(&self) -> Option<&Sandbox>;
}

macro_rules! confined {
    ($($request:ident),*) => {$(
        impl Confined for wire::$request {
            fn sandbox(&self) -> Option<&Sandbox> {
                self.sandbox.as_ref()
            }
        }
    )*};
}
confined!(OnPath, WriteFile, CreateDirectory, Remove, Walk, Copy, Open);

/// A path of another kind of host is a bad request here, bad parameters everywhere else (SPEC 5, 6).
fn recode(error: ErrorObject) -> ErrorObject {
    let foreign = error.message.ends_with("is invalid on 'linux'") && !error.message.contains("%00");
    if foreign { ErrorObject::invalid_request(error.message) } else { error }
}

impl Client {
    pub(super) fn file_call(
        self: &Rc<Self>,
        method: Method,
        id: RequestId,
        raw: Option<&RawValue>,
    ) -> Outcome<Answer> {
        Ok(match method {
            Method::FsGetMetadata => {
                let request: wire::OnPath = self.checked(method, raw)?;
                self.quick_read(id, move || {
                    fs::metadata(request.path.path(), follows(request.follow_symlinks))
                })
            }
            Method::FsCanonicalize => {
                let request: wire::OnPath = self.checked(method, raw)?;
                self.quick_read(id, move || fs::canonicalize(request.path.path()))
            }
            Method::FsReadFile => self.read_file(id, self.checked(method, raw)?),
            Method::FsWriteFile => self.write_file(id, self.checked(method, raw)?),
            Method::FsCreateDirectory => {
                let request: wire::CreateDirectory = self.checked(method, raw)?;
                self.quick_change(id, move || {
                    let recursive = request.recursive.unwrap_or(true);
                    fs::create_directory(request.path.path(), recursive, follows(request.follow_symlinks))?;
                    Ok(Empty {})
                })
            }
            Method::FsRemove => {
                let request: wire::Remove = self.checked(method, raw)?;
                self.long_change(id, TREE_COST_MIB, move || {
                    let (recursive, force) =
                        (request.recursive.unwrap_or(true), request.force.unwrap_or(true));
                    let path = request.path.path();
                    fs::remove::remove(path, recursive, force, follows(request.follow_symlinks))?;
                    Ok(Empty {})
                })
            }
            Method::FsReadDirectory => {
                let request: wire::OnPath = self.checked(method, raw)?;
                self.long_read(id, move || fs::directory::read(request.path.path()))
            }
            Method::FsWalk => {
                let request: wire::Walk = self.checked(method, raw)?;
                self.long_read(id, move || fs::walk::walk(request.path.path(), &request.options))
            }
            Method::FsCopy => {
                let request: wire::Copy = self.checked(method, raw)?;
                self.long_change(id, TREE_COST_MIB, move || {
                    let (source, destination): (&PathUri, &PathUri) =
                        (&request.source_path, &request.destination_path);
                    fs::copy::copy(source.path(), destination.path(), request.recursive)?;
                    Ok(Empty {})
                })
            }
            other => return self.stream_call(other, id, raw),
        })
    }

    /// Decodes parameters, checks the stage of the handshake, and refuses a wish that cannot be granted.
    pub(super) fn checked<T: DeserializeOwned + Confined>(
        &self,
        method: Method,
        raw: Option<&RawValue>,
    ) -> Outcome<T> {
        let request: T = params(raw).map_err(recode)?;
        self.session_for(method)?;
        confine::check_files(request.sandbox())?;
        Ok(request)
    }

    pub(super) fn discover_roots(&self, id: RequestId, request: DiscoverRoots) -> Outcome<Answer> {
        discover::check_count(request.roots.len())?;
        for root in &request.roots {
            confine::check_files(root.sandbox.as_ref())?;
        }
        Ok(self.long_read(id, move || {
            let mut allowance = discover::Allowance::default();
            let roots = request.roots.into_iter().map(|root| discover::below(root, &mut allowance));
            Ok(DiscoveredRoots { roots: roots.collect() })
        }))
    }

    fn read_file(&self, id: RequestId, request: wire::OnPath) -> Answer {
        let order = Arc::clone(&self.order);
        let budget = Arc::clone(&self.budget);
        later(async move {
            let _turn = order.read_owned().await;
            let file = fs::file::open(request.path.path(), follows(request.follow_symlinks))?;
            let size = usize::try_from(file.size).unwrap_or(usize::MAX);
            // The size of a file in /proc is not known, and its content may take its time.
            if (1..=INLINE_FILE_BYTES).contains(&size) {
                return Ok(Reply { text: file.read(&id)?, budget: None });
            }
            let budget = take(budget, mib(size.div_ceil(3) * 4)).await;
            let text = on_thread(move || file.read(&id)).await?;
            Ok(Reply { text, budget })
        })
    }

    fn write_file(&self, id: RequestId, request: wire::WriteFile) -> Answer {
        let length = request.data_base64.len();
        let write = move || {
            fs::file::write(request.path.path(), &request.data_base64, follows(request.follow_symlinks))?;
            Ok(Empty {})
        };
        if length <= INLINE_FILE_BYTES {
            self.quick_change(id, write)
        } else {
            self.long_change(id, mib(length), write)
        }
    }

    pub(super) fn quick_read<R: Serialize + 'static>(
        &self,
        id: RequestId,
        operation: impl FnOnce() -> Outcome<R> + 'static,
    ) -> Answer {
        let order = Arc::clone(&self.order);
        if let Ok(_turn) = Arc::clone(&order).try_read_owned() {
            return Answer::Now(operation().map(|result| reply(&id, &result)));
        }
        later(async move {
            let _turn = order.read_owned().await;
            Ok(reply(&id, &operation()?))
        })
    }

    pub(super) fn quick_change<R: Serialize + 'static>(
        &self,
        id: RequestId,
        operation: impl FnOnce() -> Outcome<R> + 'static,
    ) -> Answer {
        let order = Arc::clone(&self.order);
        if let Ok(_turn) = Arc::clone(&order).try_write_owned() {
            return Answer::Now(operation().map(|result| reply(&id, &result)));
        }
        later(async move {
            let _turn = order.write_owned().await;
            Ok(reply(&id, &operation()?))
        })
    }

    fn long_read<R: Serialize + 'static>(
        &self,
        id: RequestId,
        operation: impl FnOnce() -> Outcome<R> + Send + 'static,
    ) -> Answer {
        let order = Arc::clone(&self.order);
        let budget = Arc::clone(&self.budget);
        later(async move {
            let _turn = order.read_owned().await;
            let budget = take(budget, TREE_COST_MIB).await;
            let Reply { text, .. } = on_thread(move || Ok(reply(&id, &operation()?))).await?;
            Ok(Reply { text, budget })
        })
    }

    fn long_change<R: Serialize + 'static>(
        &self,
        id: RequestId,
        mib: u32,
        operation: impl FnOnce() -> Outcome<R> + Send + 'static,
    ) -> Answer {
        let order = Arc::clone(&self.order);
        let budget = Arc::clone(&self.budget);
        later(async move {
            let turn: OwnedRwLockWriteGuard<()> = order.write_owned().await;
            let budget = take(budget, mib).await;
            on_thread(move || {
                // Both end with the operation, also when the connection ends before it.
                let _held = (turn, budget);
                Ok(reply(&id, &operation()?))
            })
            .await
        })
    }
}

fn follows(wish: Option<bool>) -> bool {
    wish.unwrap_or(true)
}

/// `bytes` in MiB, at least 1 and at most the whole budget.
pub(super) fn mib(bytes: usize) -> u32 {
    u32::try_from((bytes >> 20) + 1).unwrap_or(u32::MAX).min(FILE_BUDGET_MIB)
}

pub(super) async fn take(budget: Arc<Semaphore>, mib: u32) -> Option<OwnedSemaphorePermit> {
    // Never closed.
    budget.acquire_many_owned(mib).await.ok()
}

pub(super) async fn on_thread<T: Send + 'static>(
    operation: impl FnOnce() -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    tokio::task::spawn_blocking(operation).await.unwrap_or_else(|_| {
        Err(ErrorObject::new(ErrorCode::Internal, "the operation was interrupted by the end of the server"))
    })
}
