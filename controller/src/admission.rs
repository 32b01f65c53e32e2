//! Who waits at a door: peers whose handshake is not over, and those who are refused.
//!
//! Invariant: both are bounded. The oldest handshake gives way to a new one, but not before `HANDSHAKE_GRACE`: peers that
//! say nothing hold nobody up, and whoever speaks at once is heard.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use crate::limits::{HANDSHAKE_GRACE, MAX_PENDING_HANDSHAKES, MAX_WAITING_REFUSALS, REFUSAL_DELAY};

/// The handshakes of one listener, oldest first.
#[derive(Default)]
pub struct Pending {
    places: RefCell<VecDeque<Entry>>,
    entered: Cell<u64>,
    /// Told when a handshake is over.
    left: Notify,
}

struct Entry {
    number: u64,
    since: Instant,
    /// Dropped when its peer has to give way.
    _keeps: oneshot::Sender<()>,
}

/// A place among the pending handshakes, left when dropped.
pub struct Place {
    pending: Rc<Pending>,
    number: u64,
    kept: oneshot::Receiver<()>,
}

impl Pending {
    /// Takes a place for a peer that was accepted just now, once there is one.
    pub async fn enter(self: &Rc<Self>) -> Place {
        while self.places.borrow().len() >= MAX_PENDING_HANDSHAKES {
            self.make_room().await;
        }
        let number = self.entered.get();
        self.entered.set(number + 1);
        let (keeps, kept) = oneshot::channel();
        let entry = Entry { number, since: Instant::now(), _keeps: keeps };
        self.places.borrow_mut().push_back(entry);
        Place { pending: Rc::clone(self), number, kept }
    }

    /// Waits until a handshake is over, or the oldest one has had its time and is dropped.
    async fn make_room(&self) {
        let left = self.left.notified();
        let oldest = self.places.borrow().front().map(|oldest| (oldest.number, oldest.since));
        let Some((number, since)) = oldest else { return };
        tokio::select! {
            () = left => {}
            () = sleep_until(since + HANDSHAKE_GRACE) => self.leave(number),
        }
    }

    fn leave(&self, number: u64) {
        self.places.borrow_mut().retain(|entry| entry.number != number);
        self.left.notify_waiters();
    }
}

impl Place {
    /// Takes a step of the handshake; `None` when the peer had to give way meanwhile.
    pub async fn hold<T>(&mut self, step: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = step => Some(done),
            _ = &mut self.kept => None,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pending.leave(self.number);
    }
}

/// Everybody who was refused waits here, so that guessing is slow for all together.
pub struct Penalty {
    turn: Semaphore,
    waiting: Cell<usize>,
    dropped: Cell<u64>,
}

impl Default for Penalty {
    fn default() -> Self {
        Self { turn: Semaphore::new(1), waiting: Cell::default(), dropped: Cell::default() }
    }
}

impl Penalty {
    /// Waits for one's turn; whether the refusal may be answered at all.
    pub async fn serve(&self) -> bool {
        if self.waiting.get() >= MAX_WAITING_REFUSALS {
            self.count_dropped();
            return false;
        }
        let _waiting = Waiting::new(&self.waiting);
        let turn = self.turn.acquire().await;
        // The wait is the point: it is what an attacker pays.
        sleep(REFUSAL_DELAY).await;
        drop(turn);
        true
    }

    /// Counts a peer that was dropped without an answer.
    pub fn count_dropped(&self) {
        self.dropped.set(self.dropped.get() + 1);
    }

    /// Peers dropped without an answer since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.take()
    }
}

/// Counts one who waits, also when the wait is given up.
struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_oldest_gives_way_after_its_time_and_only_when_there_is_no_room() {
        let door = Rc::<Pending>::default();
        let begun = Instant::now();
        let mut places = VecDeque::new();
        for _ in 0..MAX_PENDING_HANDSHAKES {
            places.push_back(door.enter().await);
        }
        // One who leaves makes room for one who comes.
        drop(places.pop_back());
        places.push_back(door.enter().await);
        assert_eq!(places[0].hold(ready(1)).await, Some(1), "nobody had to give way yet");
        places.push_back(door.enter().await);
        assert!(begun.elapsed() >= HANDSHAKE_GRACE);
        assert_eq!(places[0].hold(pending::<()>()).await, None);
        assert_eq!(door.places.borrow().len(), MAX_PENDING_HANDSHAKES);
        // The next in line is still there, and what is done is done.
        assert_eq!(places[1].hold(ready(2)).await, Some(2));
        places.clear();
        assert!(door.places.borrow().is_empty());
    }

    #[tokio::test]
    async fn who_gives_up_waiting_for_an_answer_is_not_counted_any_more() {
        let penalty = Penalty::default();
        {
            let mut waiting: Vec<_> = (0..MAX_WAITING_REFUSALS).map(|_| Box::pin(penalty.serve())).collect();
            for one in &mut waiting {
                assert_eq!(one.now_or_never(), None, "it takes its time");
            }
            assert!(!penalty.serve().await, "there is a bound");
        }
        assert_eq!((penalty.waiting.get(), penalty.take_dropped(), penalty.take_dropped()), (0, 1, 0));
    }
}
