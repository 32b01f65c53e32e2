//! One inotify instance for all sandboxes of a controller: a user has few of them.
//!
//! Two sandboxes may watch one directory; the kernel then gives both the same watch, and each gets every event.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::limits::MAX_QUEUED_CHANGES;
use crate::sys;

const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ONLYDIR)
    // Who shares a watch must not take events from the others.
    .union(WatchFlags::MASK_ADD);

/// See the module.
pub struct Hub {
    inotify: AsyncFd<OwnedFd>,
    queues: RefCell<HashMap<i32, Vec<Rc<Queue>>>>,
}

/// What has changed in the directories one sandbox watches.
#[derive(Default)]
pub struct Queue {
    /// Whether changes of content count, too.
    writes: bool,
    changes: RefCell<Vec<(i32, OsString)>>,
    lost: Cell<bool>,
    changed: Notify,
}

impl Queue {
    /// A queue that hears of files that were written, too.
    pub fn of_writes() -> Self {
        Self { writes: true, ..Self::default() }
    }

    fn push(&self, watch: i32, name: OsString) {
        if self.changes.borrow().len() < MAX_QUEUED_CHANGES {
            self.changes.borrow_mut().push((watch, name));
        } else {
            self.lost.set(true);
        }
        self.changed.notify_one();
    }

    /// Takes what is there: watch and name of each change, and whether some were lost.
    pub fn take(&self) -> (Vec<(i32, OsString)>, bool) {
        (self.changes.take(), self.lost.take())
    }

    /// Resolves when there is something to take.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Hub {
    /// Opens the instance and starts the task that reads it for ever.
    pub fn open() -> io::Result<Rc<Self>> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let hub = Rc::new(Self { inotify: sys::watch_fd(fd)?, queues: RefCell::default() });
        let reading = Rc::clone(&hub);
        tokio::task::spawn_local(async move {
            while let Ok(mut ready) = reading.inotify.readable().await {
                ready.clear_ready();
                reading.read();
            }
        });
        Ok(hub)
    }

    /// Watches a directory for names that come and go; returns the watch.
    pub fn watch(&self, directory: &Path, queue: &Rc<Queue>) -> io::Result<i32> {
        let events = if queue.writes { EVENTS | WatchFlags::CLOSE_WRITE } else { EVENTS };
        let watch = inotify::add_watch(self.inotify.get_ref(), directory, events)?;
        let mut queues = self.queues.borrow_mut();
        let watchers = queues.entry(watch).or_default();
        if !watchers.iter().any(|known| Rc::ptr_eq(known, queue)) {
            watchers.push(Rc::clone(queue));
        }
        Ok(watch)
    }

    /// Ends one sandbox's interest in a watch.
    pub fn unwatch(&self, watch: i32, queue: &Rc<Queue>) {
        let mut queues = self.queues.borrow_mut();
        let Some(watchers) = queues.get_mut(&watch) else { return };
        watchers.retain(|known| !Rc::ptr_eq(known, queue));
        if watchers.is_empty() {
            queues.remove(&watch);
            // A directory that is gone has taken its watch along.
            let _ = inotify::remove_watch(self.inotify.get_ref(), watch);
        }
    }

    /// Hands out all events that are there.
    pub fn read(&self) {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => self.all_lost(),
                Ok(event) => {
                    let Some(name) = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes())) else {
                        continue;
                    };
                    let is_write = event.events().contains(ReadFlags::CLOSE_WRITE);
                    let queues = self.queues.borrow();
                    let concerned = queues.get(&event.wd()).into_iter().flatten();
                    for queue in concerned.filter(|queue| queue.writes || !is_write) {
                        queue.push(event.wd(), name.to_owned());
                    }
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "changes of workspaces cannot be read");
                    return self.all_lost();
                }
            }
        }
    }

    fn all_lost(&self) {
        for queue in self.queues.borrow().values().flatten() {
            queue.lost.set(true);
            queue.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_watchers_of_one_directory_each_hear_of_every_change() {
        let base = tempfile::tempdir().unwrap();
        tokio::task::LocalSet::new()
            .run_until(async {
                let hub = Hub::open().unwrap();
                let (one, two) = (Rc::<Queue>::default(), Rc::<Queue>::default());
                let watch = hub.watch(base.path(), &one).unwrap();
                assert_eq!(hub.watch(base.path(), &two).unwrap(), watch);
                std::fs::write(base.path().join("a"), "").unwrap();
                for queue in [&one, &two] {
                    queue.changed().await;
                    assert_eq!(queue.take(), (vec![(watch, OsString::from("a"))], false));
                }
                // Content concerns only who asked for it.
                let writes = Rc::new(Queue::of_writes());
                assert_eq!(hub.watch(base.path(), &writes).unwrap(), watch);
                std::fs::write(base.path().join("a"), "new").unwrap();
                writes.changed().await;
                assert_eq!(writes.take(), (vec![(watch, OsString::from("a"))], false));
                assert_eq!(one.take().0, []);
                hub.unwatch(watch, &writes);
                hub.unwatch(watch, &one);
                std::fs::write(base.path().join("b"), "").unwrap();
                two.changed().await;
                assert_eq!(one.take().0, []);
                hub.unwatch(watch, &two);
                assert!(hub.queues.borrow().is_empty());
            })
            .await;
    }
}
