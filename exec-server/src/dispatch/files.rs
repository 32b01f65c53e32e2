//! The `fs/*` arms of the match, and where each of them runs: on the event loop when it is surely quick, else on a
//! thread.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use legion_protocol::chunk::Chunk;
use legion_protocol::fs as wire;
use legion_protocol::object::{Text, params};
use legion_protocol::sandbox::Sandbox;
use legion_protocol::{ErrorCode, ErrorObject, Method, Params, RequestId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedRwLockWriteGuard, OwnedSemaphorePermit, Semaphore};

use super::confined::{NAMES, Work};
use super::{Answer, Client, Empty, Reply, later, reply};
use crate::confine;
use crate::confine::operation::{Access, Purpose, View};
use crate::error::Outcome;
use crate::fs;
use crate::limits::{FILE_BUDGET_MIB, INLINE_FILE_BYTES, TREE_COST_MIB};

/// Parameters of `fs/writeFile`, their content still in the frame.
type WriteFile<'a> = wire::WriteFile<Text<'a>>;

/// Parameters that may carry the client's own sandbox wish.
pub(super) trait Confined {
    fn take_sandbox(&mut self) -> Option<Sandbox>;
}

macro_rules! confined {
    ($($request:ty),*) => {$(
        impl Confined for $request {
            fn take_sandbox(&mut self) -> Option<Sandbox> {
                self.sandbox.take()
            }
        }
    )*};
}
confined!(
    wire::OnPath,
    WriteFile<'_>,
    wire::CreateDirectory,
    wire::Remove,
    wire::Walk,
    wire::Copy,
    wire::Open
);

/// A path of another kind of host is a bad request here, bad parameters everywhere else (SPEC 5, 6).
fn recode(error: ErrorObject) -> ErrorObject {
    let foreign = error.message.ends_with("is invalid on 'linux'") && !error.message.contains("%00");
    if foreign { ErrorObject::invalid_request(error.message) } else { error }
}

/// Parameters, and the wish among them if it asks for something of a file operation.
pub(super) type Checked<T> = (T, Option<Sandbox>);

impl Client {
    pub(super) fn file_call(
        self: &Rc<Self>,
        method: Method,
        id: RequestId,
        raw: Option<Params<'_>>,
    ) -> Outcome<Answer> {
        Ok(match method {
            Method::FsGetMetadata => self.get_metadata(id, self.checked(method, raw)?),
            Method::FsCanonicalize => self.canonicalize(id, self.checked(method, raw)?),
            Method::FsReadFile => match self.checked(method, raw)? {
                (request, None) => self.read_file(id, request),
                (request, Some(wish)) => self.read_file_confined(id, request, wish),
            },
            Method::FsWriteFile => self.write_file(id, self.admitted(method, WriteFile::from_params(raw))?),
            Method::FsCreateDirectory => self.create_directory(id, self.checked(method, raw)?),
            Method::FsRemove => self.remove(id, self.checked(method, raw)?),
            Method::FsReadDirectory => self.read_directory(id, self.checked(method, raw)?),
            Method::FsWalk => self.walk(id, self.checked(method, raw)?),
            Method::FsCopy => self.copy(id, self.checked(method, raw)?),
            other => return self.stream_call(other, id, raw),
        })
    }

    /// Decodes parameters and checks the stage of the handshake.
    pub(super) fn checked<T: DeserializeOwned + Confined>(
        &self,
        method: Method,
        raw: Option<Params<'_>>,
    ) -> Outcome<Checked<T>> {
        self.admitted(method, params(raw))
    }

    fn admitted<T: Confined>(&self, method: Method, decoded: Outcome<T>) -> Outcome<Checked<T>> {
        let mut request = decoded.map_err(recode)?;
        self.session_for(method)?;
        let wish = request.take_sandbox().filter(confine::restricts_files);
        Ok((request, wish))
    }

    fn get_metadata(self: &Rc<Self>, id: RequestId, (request, wish): Checked<wire::OnPath>) -> Answer {
        let follow = follows(request.follow_symlinks);
        let Some(wish) = wish else {
            return self.quick_read(id, move || fs::metadata(request.path.path(), follow));
        };
        let access = Access { path: request.path.into_path(), purpose: Purpose::Look, follow };
        let look = move |paths: &[PathBuf], _: &View| fs::metadata(first(paths), follow);
        self.narrowed(id, SMALL, (wish, vec![access]), look)
    }

    fn canonicalize(self: &Rc<Self>, id: RequestId, (request, wish): Checked<wire::OnPath>) -> Answer {
        let Some(wish) = wish else {
            return self.quick_read(id, move || fs::canonicalize(request.path.path()));
        };
        let access = Access::to(request.path.path(), Purpose::Look);
        let look = |paths: &[PathBuf], _: &View| fs::canonicalize(first(paths));
        self.narrowed(id, SMALL, (wish, vec![access]), look)
    }

    fn create_directory(
        self: &Rc<Self>,
        id: RequestId,
        (request, wish): Checked<wire::CreateDirectory>,
    ) -> Answer {
        let (recursive, follow) = (request.recursive.unwrap_or(true), follows(request.follow_symlinks));
        let make = move |path: &Path, follow| {
            fs::create_directory(path, recursive, follow)?;
            Ok(Empty {})
        };
        let Some(wish) = wish else {
            return self.quick_change(id, move || make(request.path.path(), follow));
        };
        let access = Access { path: request.path.into_path(), purpose: Purpose::MakeDirectory, follow };
        let make = move |paths: &[PathBuf], _: &View| make(first(paths), false);
        self.narrowed(id, SMALL_CHANGE, (wish, vec![access]), make)
    }

    fn remove(self: &Rc<Self>, id: RequestId, (request, wish): Checked<wire::Remove>) -> Answer {
        let (recursive, force) = (request.recursive.unwrap_or(true), request.force.unwrap_or(true));
        let follow = follows(request.follow_symlinks);
        let remove = move |path: &Path| {
            fs::remove::remove(path, recursive, force, follow)?;
            Ok(Empty {})
        };
        let Some(wish) = wish else {
            return self.long_change(id, TREE_COST_MIB, move || remove(request.path.path()));
        };
        // A link is removed itself in any case.
        let access = Access { path: request.path.into_path(), purpose: Purpose::Remove, follow: false };
        let remove = move |paths: &[PathBuf], _: &View| remove(first(paths));
        self.narrowed(id, Work::Change(TREE_COST_MIB), (wish, vec![access]), remove)
    }

    fn read_directory(self: &Rc<Self>, id: RequestId, (request, wish): Checked<wire::OnPath>) -> Answer {
        let Some(wish) = wish else {
            return self.long_read(id, move || fs::directory::read(request.path.path()));
        };
        let access = Access::to(request.path.path(), Purpose::List);
        let read = |paths: &[PathBuf], _: &View| fs::directory::read(first(paths));
        self.narrowed(id, NAMES, (wish, vec![access]), read)
    }

    fn walk(self: &Rc<Self>, id: RequestId, (request, wish): Checked<wire::Walk>) -> Answer {
        let Some(wish) = wish else {
            return self.long_read(id, move || fs::walk::walk(request.path.path(), &request.options));
        };
        let access = Access::to(request.path.path(), Purpose::List);
        let walk = move |paths: &[PathBuf], view: &View| {
            fs::walk::walk_within(first(paths), &request.options, Some(&|path| view.allows(path)))
        };
        self.narrowed(id, NAMES, (wish, vec![access]), walk)
    }

    fn copy(self: &Rc<Self>, id: RequestId, (request, wish): Checked<wire::Copy>) -> Answer {
        let recursive = request.recursive;
        let copy = move |source: &Path, destination: &Path| {
            fs::copy::copy(source, destination, recursive)?;
            Ok(Empty {})
        };
        let (source, destination) = (request.source_path, request.destination_path);
        let Some(wish) = wish else {
            return self.long_change(id, TREE_COST_MIB, move || copy(source.path(), destination.path()));
        };
        // A link is copied as a link, and then to exactly this name.
        let follow = !source.path().is_symlink();
        let accesses = vec![
            Access { path: source.into_path(), purpose: Purpose::Read, follow: false },
            Access { path: destination.into_path(), purpose: Purpose::Copy, follow },
        ];
        let copy = move |paths: &[PathBuf], _: &View| {
            copy(first(paths), paths.last().map_or(Path::new(""), PathBuf::as_path))
        };
        self.narrowed(id, Work::Change(TREE_COST_MIB), (wish, accesses), copy)
    }

    fn read_file_confined(self: &Rc<Self>, id: RequestId, request: wire::OnPath, wish: Sandbox) -> Answer {
        let follow = follows(request.follow_symlinks);
        let access = Access { path: request.path.into_path(), purpose: Purpose::Read, follow };
        let client = Rc::clone(self);
        later(async move {
            let open = move |paths: &[PathBuf], _: &View| fs::file::open(first(paths), follow);
            let (file, _) = client.run_narrowed(SMALL, (wish, vec![access]), open).await?;
            // What has been opened may be read, wherever that is done.
            let budget = take(Arc::clone(&client.budget), mib(file.cost())).await;
            let text = on_thread(move || file.read(&id)).await?;
            Ok(Reply { text, budget })
        })
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
            let budget = take(budget, mib(file.cost())).await;
            let text = on_thread(move || file.read(&id)).await?;
            Ok(Reply { text, budget })
        })
    }

    fn write_file(self: &Rc<Self>, id: RequestId, (request, wish): Checked<WriteFile<'_>>) -> Answer {
        let content = Chunk::from_base64(&request.data_base64.0);
        let length = content.as_ref().map_or(0, |content| content.0.len());
        let follow = follows(request.follow_symlinks);
        let write = move |path: &Path, follow| {
            // Before anything is touched.
            let content = content.as_ref().map_err(|error| {
                ErrorObject::invalid_request(format!(
                    "fs/writeFile requires valid base64 dataBase64: {error}"
                ))
            })?;
            fs::file::write(path, &content.0, follow)?;
            Ok(Empty {})
        };
        let path = request.path;
        match wish {
            Some(wish) => {
                let access = Access { path: path.into_path(), purpose: Purpose::Write, follow };
                let write = move |paths: &[PathBuf], _: &View| write(first(paths), false);
                self.narrowed(id, Work::Change(mib(length)), (wish, vec![access]), write)
            }
            None if length <= INLINE_FILE_BYTES => self.quick_change(id, move || write(path.path(), follow)),
            None => self.long_change(id, mib(length), move || write(path.path(), follow)),
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

/// What costs next to no memory.
const SMALL: Work = Work::Read(1);
/// See [`SMALL`].
const SMALL_CHANGE: Work = Work::Change(1);

/// The path of an operation that has one.
fn first(paths: &[PathBuf]) -> &Path {
    paths.first().map_or(Path::new(""), PathBuf::as_path)
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
