//! The outgoing queue of one connection: what handlers and process tasks hand over, and the connection's task sends.
//!
//! Invariant: order of entry is order on the wire. Output enters only while there is room (`has_room`), so a client that
//! does not read stops the pipes of its processes; answers always enter, and are bounded because the connection stops
//! reading requests above `OUTGOING_PAUSE_BYTES`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Waker;

use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::limits::OUTPUT_HIGH_WATER_BYTES;

/// One message to send.
pub(crate) struct Message {
    /// The frame's text.
    pub(crate) text: Utf8Bytes,
    /// The bytes of the request it answers; `None` for a notification.
    pub(crate) answers: Option<usize>,
    /// Memory budget given back once the message has been handed to the socket.
    pub(crate) budget: Option<OwnedSemaphorePermit>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Outgoing {
    queue: RefCell<VecDeque<Message>>,
    bytes: Cell<usize>,
    closed: Cell<bool>,
    /// Of the connection's task, while it waits for something to send.
    sender: Cell<Option<Waker>>,
    /// Told when there is room again, and when the connection ends.
    room: Notify,
    /// Told when the connection's task is done.
    ended: Notify,
    has_ended: Cell<bool>,
}

impl Outgoing {
    /// Queues the answer to a request whose text had `request_bytes`.
    pub(crate) fn answer(&self, text: String, request_bytes: usize, budget: Option<OwnedSemaphorePermit>) {
        self.push(Message { text: text.into(), answers: Some(request_bytes), budget });
    }

    /// Queues a notification.
    pub(crate) fn notify(&self, text: String) {
        self.push(Message { text: text.into(), answers: None, budget: None });
    }

    fn push(&self, message: Message) {
        if self.closed.get() {
            return;
        }
        self.bytes.set(self.bytes.get() + message.text.len());
        self.queue.borrow_mut().push_back(message);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.sender.take() {
            waker.wake();
        }
    }

    /// The next message to send.
    pub(crate) fn pop(&self) -> Option<Message> {
        let message = self.queue.borrow_mut().pop_front()?;
        let full = !self.has_room();
        self.bytes.set(self.bytes.get() - message.text.len());
        if full && self.has_room() {
            self.room.notify_waiters();
        }
        Some(message)
    }

    /// Queued bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Whether process output may enter.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes.get() < OUTPUT_HIGH_WATER_BYTES
    }

    /// Waits until `has_room` may have changed. Take the future before looking at `has_room`.
    pub(crate) fn room_changed(&self) -> impl Future<Output = ()> + '_ {
        self.room.notified()
    }

    /// Remembers whom to wake for the next message.
    pub(crate) fn register(&self, waker: &Waker) {
        self.sender.set(Some(waker.clone()));
    }

    /// Ends the connection: nothing enters any more, its task stops.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.room.notify_waiters();
        self.wake();
    }

    /// Whether `close` was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Called once by the connection's task when it has let go of its session.
    pub(crate) fn end(&self) {
        self.close();
        self.has_ended.set(true);
        self.ended.notify_waiters();
    }

    /// Waits for `end`.
    pub(crate) async fn wait_ended(&self) {
        let ended = self.ended.notified();
        if !self.has_ended.get() {
            ended.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_back_when_the_queue_drains() {
        let outgoing = Outgoing::default();
        outgoing.notify("x".repeat(OUTPUT_HIGH_WATER_BYTES));
        assert!(!outgoing.has_room());
        outgoing.answer("answer".into(), 3, None);
        assert_eq!(outgoing.pop().unwrap().answers, None);
        assert!(outgoing.has_room());
        assert_eq!(outgoing.pop().unwrap().answers, Some(3));
        assert!(outgoing.pop().is_none());
        assert_eq!(outgoing.bytes(), 0);
    }

    #[test]
    fn nothing_enters_a_closed_queue() {
        let outgoing = Outgoing::default();
        outgoing.close();
        outgoing.notify("x".into());
        assert!(outgoing.pop().is_none());
        assert_eq!(outgoing.bytes(), 0);
    }
}
