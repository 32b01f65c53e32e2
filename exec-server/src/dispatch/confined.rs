//! Calls with a `sandbox` object: commands are prepared, file operations run where the wish holds (SPEC 10).

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use legion_protocol::RequestId;
use legion_protocol::capability::{DiscoverRoots, DiscoveredRoot, DiscoveredRoots, Root};
use legion_protocol::process::Start;
use legion_protocol::sandbox::Sandbox;
use serde::Serialize;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit};

use super::files::{on_thread, take};
use super::{Answer, Client, Reply, later, reply};
use crate::confine::operation::{self, Access, Purpose, View};
use crate::confine::{self, Prepared, Wish};
use crate::discover::{self, Allowance};
use crate::error::Outcome;
use crate::limits::TREE_COST_MIB;

/// How a confined operation stands to others of its connection, and what it may cost in memory, in MiB.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    /// Changes nothing.
    Read(u32),
    /// Waits for all earlier ones.
    Change(u32),
}

/// A place in the order of file operations.
enum Turn {
    Read { _held: OwnedRwLockReadGuard<()> },
    Change { _held: OwnedRwLockWriteGuard<()> },
}

impl Client {
    /// What the client wants to be taken from a command.
    pub(super) async fn prepare(&self, start: &Start) -> Outcome<Option<Prepared>> {
        let Some(sandbox) = start.sandbox.clone() else { return Ok(None) };
        let (cwd, tmpdir) = (start.cwd.clone(), self.server.host.tmpdir());
        on_thread(move || {
            let wish = Wish::of(&sandbox, Some(cwd.path()), tmpdir.as_deref())?;
            wish.map(Wish::prepare).transpose()
        })
        .await
    }

    /// An answer from a confined operation.
    pub(super) fn narrowed<R: Serialize + Send + 'static>(
        self: &Rc<Self>,
        id: RequestId,
        work: Work,
        wish: (Sandbox, Vec<Access>),
        operation: impl FnOnce(&[PathBuf], &View) -> Outcome<R> + Send + 'static,
    ) -> Answer {
        let client = Rc::clone(self);
        later(async move {
            let run = move |paths: &[PathBuf], view: &View| Ok(reply(&id, &operation(paths, view)?).text);
            let (text, budget) = client.run_narrowed(work, wish, run).await?;
            Ok(Reply { text, budget })
        })
    }

    /// Runs a confined operation when it is its turn. What it takes of memory is held until its answer is sent.
    pub(super) async fn run_narrowed<T: Send + 'static>(
        &self,
        work: Work,
        (sandbox, accesses): (Sandbox, Vec<Access>),
        operation: impl FnOnce(&[PathBuf], &View) -> Outcome<T> + Send + 'static,
    ) -> Outcome<(T, Option<OwnedSemaphorePermit>)> {
        let order = Arc::clone(&self.order);
        let (turn, mib) = match work {
            Work::Read(mib) => (Turn::Read { _held: order.read_owned().await }, mib),
            Work::Change(mib) => (Turn::Change { _held: order.write_owned().await }, mib),
        };
        let budget = take(Arc::clone(&self.budget), mib).await;
        // Never closed.
        let slot = Arc::clone(&self.operations).acquire_owned().await.ok();
        let run = move |paths: &[PathBuf], view: &View| {
            // They end with the operation, also when the connection ends before it.
            let _held = (turn, slot);
            Ok((operation(paths, view)?, budget))
        };
        operation::run(sandbox, self.server.host.tmpdir(), accesses, run).await
    }

    /// Every root may have a wish of its own.
    pub(super) fn discover_roots(self: &Rc<Self>, id: RequestId, request: DiscoverRoots) -> Outcome<Answer> {
        discover::check_count(request.roots.len())?;
        let client = Rc::clone(self);
        Ok(later(async move {
            let mut roots = Vec::new();
            let mut allowance = Allowance::default();
            for mut root in request.roots {
                let found = match root.sandbox.take().filter(confine::restricts_files) {
                    Some(sandbox) => {
                        let access = Access::to(root.path.path(), Purpose::List);
                        let look = move |_: &[PathBuf], view: &View| {
                            let found =
                                discover::below(root, &mut allowance, Some(&|path| view.allows(path)));
                            Ok((found, allowance))
                        };
                        let work = Work::Read(TREE_COST_MIB);
                        client.run_narrowed(work, (sandbox, vec![access]), look).await?.0
                    }
                    None => client.look_below(root, allowance).await?,
                };
                roots.push(found.0);
                allowance = found.1;
            }
            Ok(reply(&id, &DiscoveredRoots { roots }))
        }))
    }

    async fn look_below(&self, root: Root, mut allowance: Allowance) -> Outcome<(DiscoveredRoot, Allowance)> {
        let _turn = Arc::clone(&self.order).read_owned().await;
        let _budget = take(Arc::clone(&self.budget), TREE_COST_MIB).await;
        on_thread(move || Ok((discover::below(root, &mut allowance, None), allowance))).await
    }
}

/// What a whole directory or tree of names costs.
pub(super) const NAMES: Work = Work::Read(TREE_COST_MIB);
