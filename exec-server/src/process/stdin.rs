//! The bounded queue in front of a child's stdin or terminal (SPEC 7.5).
//!
//! Invariant: bytes reach the child in the order in which their requests arrived. A semaphore whose waiters form a line
//! gives out the room, and a `writeId` is remembered in the same step in which its bytes enter the queue: a request
//! that was dropped while it waited has written nothing, one that was answered is never written again.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use legion_protocol::process::WriteStatus;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, spawn_local};

use crate::limits::{MAX_WRITE_IDS, STDIN_QUEUE_BYTES, STDIN_QUEUE_WRITES, WRITE_ID_OVERHEAD_BYTES};

/// What a write costs at least, so that the number of queued writes is bounded as well.
const LEAST_COST: u32 = STDIN_QUEUE_BYTES / STDIN_QUEUE_WRITES;

/// See the module.
pub(crate) struct Stdin {
    queue: mpsc::UnboundedSender<Queued>,
    room: Arc<Semaphore>,
    written: RefCell<WriteIds>,
    closing: Cell<bool>,
    writer: AbortHandle,
}

/// Bytes for the child. The room they take is given back when the kernel has them; `None` closes the pipe.
struct Queued {
    bytes: Option<Vec<u8>>,
    _room: OwnedSemaphorePermit,
}

impl Stdin {
    /// Starts the task that writes to `descriptor`.
    pub(crate) fn new(descriptor: Rc<AsyncFd<OwnedFd>>) -> Self {
        // Bounded by the semaphore: nothing enters without its permits.
        let (queue, queued) = mpsc::unbounded_channel();
        Self {
            queue,
            room: Arc::new(Semaphore::new(STDIN_QUEUE_BYTES as usize)),
            written: RefCell::default(),
            closing: Cell::new(false),
            writer: spawn_local(feed(descriptor, queued)).abort_handle(),
        }
    }

    /// Queues `bytes`, once for each `write_id`, waiting in line for room.
    /// A repeated id is fine at any time: its bytes are on their way or were.
    pub(crate) async fn write(&self, bytes: Vec<u8>, write_id: Option<String>) -> WriteStatus {
        if self.is_repeated(write_id.as_deref()) {
            return WriteStatus::Accepted;
        }
        let cost = u32::try_from(bytes.len()).unwrap_or(u32::MAX).clamp(LEAST_COST, STDIN_QUEUE_BYTES);
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(cost).await else {
            return WriteStatus::StdinClosed;
        };
        // The same id may have been ahead in the line.
        if self.is_repeated(write_id.as_deref()) {
            return WriteStatus::Accepted;
        }
        if self.closing.get() {
            return WriteStatus::StdinClosed;
        }
        if let Some(id) = write_id {
            self.written.borrow_mut().remember(id);
        }
        self.enqueue(Some(bytes), room)
    }

    /// Closes the pipe once everything queued so far has been written.
    pub(crate) async fn close(&self) -> WriteStatus {
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(LEAST_COST).await else {
            return WriteStatus::StdinClosed;
        };
        if self.closing.replace(true) {
            return WriteStatus::StdinClosed;
        }
        self.enqueue(None, room)
    }

    fn enqueue(&self, bytes: Option<Vec<u8>>, room: OwnedSemaphorePermit) -> WriteStatus {
        match self.queue.send(Queued { bytes, _room: room }) {
            Ok(()) => WriteStatus::Accepted,
            Err(_) => WriteStatus::StdinClosed,
        }
    }

    fn is_repeated(&self, write_id: Option<&str>) -> bool {
        write_id.is_some_and(|id| self.written.borrow().contains(id))
    }

    /// Memory that remembered ids take.
    pub(crate) fn remembered(&self) -> usize {
        self.written.borrow().memory
    }

    /// The child has exited: nothing more is taken. What is queued is still written, and the pipe stays open: children
    /// it left behind may read on.
    pub(crate) fn refuse(&self) {
        self.closing.set(true);
        self.room.close();
    }

    /// Nobody reads any more.
    pub(crate) fn end(&self) {
        self.refuse();
        self.writer.abort();
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.end();
    }
}

async fn feed(descriptor: Rc<AsyncFd<OwnedFd>>, mut queued: mpsc::UnboundedReceiver<Queued>) {
    let mut broken = false;
    while let Some(Queued { bytes: Some(bytes), _room }) = queued.recv().await {
        // A child that closed its stdin still gets its writes accepted, into the void (SPEC 7.5).
        broken = broken || write_all(&descriptor, &bytes).await.is_err();
    }
    // Dropping the last reference closes the pipe.
}

async fn write_all(descriptor: &AsyncFd<OwnedFd>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = descriptor
            .async_io(Interest::WRITABLE, |descriptor| Ok(rustix::io::write(descriptor, bytes)?))
            .await?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// The newest `MAX_WRITE_IDS` ids.
#[derive(Default)]
struct WriteIds {
    known: HashSet<Rc<str>>,
    order: VecDeque<Rc<str>>,
    memory: usize,
}

impl WriteIds {
    fn contains(&self, id: &str) -> bool {
        self.known.contains(id)
    }

    fn remember(&mut self, id: String) {
        let id: Rc<str> = id.into();
        if !self.known.insert(Rc::clone(&id)) {
            return;
        }
        self.memory += cost(&id);
        self.order.push_back(id);
        if self.order.len() > MAX_WRITE_IDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
            self.memory -= cost(&oldest);
        }
    }
}

fn cost(id: &str) -> usize {
    id.len() + WRITE_ID_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::Poll;

    use rustix::pipe::{PipeFlags, pipe_with};
    use tokio::task::LocalSet;

    use super::*;
    use crate::sys;

    fn pipe() -> (OwnedFd, Rc<AsyncFd<OwnedFd>>) {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        (read, Rc::new(sys::register(write, Interest::WRITABLE).unwrap()))
    }

    async fn polled<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
    }

    /// Reads to the end of the pipe.
    async fn rest(read: OwnedFd) -> Vec<u8> {
        let read = sys::register(read, Interest::READABLE).unwrap();
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let length = read
                .async_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut buffer[..])?))
                .await
                .unwrap();
            if length == 0 {
                return all;
            }
            all.extend(&buffer[..length]);
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_id_is_written_once_and_order_is_kept_while_the_pipe_is_full() {
        LocalSet::new()
            .run_until(async {
                let (read, write) = pipe();
                let stdin = Stdin::new(write);
                let big = vec![b'x'; STDIN_QUEUE_BYTES as usize];
                assert_eq!(stdin.write(big.clone(), Some("1".into())).await, WriteStatus::Accepted);
                let mut second = Box::pin(stdin.write(b"second".to_vec(), Some("2".into())));
                let mut again = Box::pin(stdin.write(b"other".to_vec(), Some("2".into())));
                let mut third = Box::pin(stdin.write(b"third".to_vec(), None));
                let mut dropped = Box::pin(stdin.write(b"dropped".to_vec(), Some("4".into())));
                let mut close = Box::pin(stdin.close());
                assert!(polled(second.as_mut()).await.is_pending());
                assert!(polled(again.as_mut()).await.is_pending());
                assert!(polled(third.as_mut()).await.is_pending());
                assert!(polled(dropped.as_mut()).await.is_pending());
                assert!(polled(close.as_mut()).await.is_pending());
                drop(dropped);
                let all = spawn_local(rest(read));
                assert_eq!(second.await, WriteStatus::Accepted);
                assert_eq!(again.await, WriteStatus::Accepted);
                assert_eq!(third.await, WriteStatus::Accepted);
                assert_eq!(close.await, WriteStatus::Accepted);
                assert_eq!(stdin.write(b"late".to_vec(), None).await, WriteStatus::StdinClosed);
                let all = all.await.unwrap();
                assert_eq!(&all[big.len()..], b"secondthird");
            })
            .await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_end_of_the_process_answers_what_waits() {
        LocalSet::new()
            .run_until(async {
                let (read, write) = pipe();
                let stdin = Stdin::new(write);
                let big = vec![b'x'; STDIN_QUEUE_BYTES as usize];
                assert_eq!(stdin.write(big, None).await, WriteStatus::Accepted);
                let mut waiting = Box::pin(stdin.write(b"x".to_vec(), None));
                assert!(polled(waiting.as_mut()).await.is_pending());
                stdin.refuse();
                assert_eq!(waiting.await, WriteStatus::StdinClosed);
                drop(read);
            })
            .await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn writes_to_a_closed_reader_are_accepted() {
        LocalSet::new()
            .run_until(async {
                let (read, write) = pipe();
                drop(read);
                let stdin = Stdin::new(write);
                for _ in 0..2 * STDIN_QUEUE_WRITES {
                    assert_eq!(stdin.write(b"x".to_vec(), None).await, WriteStatus::Accepted);
                }
            })
            .await;
    }

    #[test]
    fn only_the_newest_ids_are_remembered() {
        let mut ids = WriteIds::default();
        for id in 0..=MAX_WRITE_IDS {
            ids.remember(id.to_string());
        }
        assert!(!ids.contains("0") && ids.contains("1") && ids.contains(&MAX_WRITE_IDS.to_string()));
        assert_eq!(ids.known.len(), MAX_WRITE_IDS);
        let memory: usize = ids.order.iter().map(|id| cost(id)).sum();
        assert_eq!(ids.memory, memory);
    }
}
