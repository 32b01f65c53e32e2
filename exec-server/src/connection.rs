//! One connection: messages in, answers and notifications out, all in one task.
//!
//! Invariant: reading goes on while writing is blocked, within bounds: a client that does not read can still terminate a
//! process, but cannot make the queue grow. What is ready is sent together and flushed once nothing more is ready.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use legion_protocol::jsonrpc::error_text;
use legion_protocol::limits::{MAX_REQUESTS_IN_FLIGHT, PING_INTERVAL};
use legion_protocol::{ErrorObject, Frame, Head, RequestId};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::dispatch::{Answer, Client, Reply, Stage};
use crate::error::Outcome;
use crate::limits::{MAX_REQUEST_BYTES_IN_FLIGHT, OUTGOING_PAUSE_BYTES, REQUEST_BATCH};
use crate::outgoing::Message;
use crate::server::Server;
use crate::transport::{Incoming, Lost, Transport};

/// Serves one connection until it ends, is taken over, or violates the protocol.
pub(crate) async fn serve<T: Transport>(server: Rc<Server>, transport: T) {
    let client = Client::new(server);
    let mut connection = Connection {
        client: Rc::clone(&client),
        transport,
        pending: FuturesUnordered::new(),
        in_flight: 0,
        in_flight_bytes: 0,
        last_activity: Instant::now(),
        ping: Box::pin(sleep_until(Instant::now() + PING_INTERVAL)),
    };
    poll_fn(|cx| connection.poll(cx)).await;
    // Requests still being worked on are dropped before the session may be attached elsewhere.
    drop(connection);
    client.detach();
    client.outgoing.end();
}

type Pending = Pin<Box<dyn Future<Output = Done>>>;

/// A request that was not answered at once, when it is.
struct Done {
    id: RequestId,
    bytes: usize,
    outcome: Outcome<Reply>,
}

struct Connection<T> {
    client: Rc<Client>,
    transport: T,
    pending: FuturesUnordered<Pending>,
    /// Requests whose answer has not been handed to the transport, and the bytes of their text.
    in_flight: usize,
    in_flight_bytes: usize,
    last_activity: Instant,
    ping: Pin<Box<Sleep>>,
}

/// Whether the connection goes on.
enum Step {
    /// There may be more to do at once.
    Again,
    /// Nothing more for now.
    Idle,
    /// It is over.
    Over,
}

impl<T: Transport> Connection<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.client.outgoing.is_closed() {
                return Poll::Ready(());
            }
            let held_back = self.answer_finished(cx);
            let step = self.receive(cx);
            let paused = self.is_paused();
            match self.poll_send(cx) {
                Poll::Ready(Err(Lost)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
            match step {
                Step::Over => return Poll::Ready(()),
                Step::Again => {}
                // Sending made room to read again, or to answer.
                Step::Idle if (paused && !self.is_paused()) || (held_back && !self.is_full()) => {}
                Step::Idle => break,
            }
        }
        if self.poll_ping(cx).is_err() {
            return Poll::Ready(());
        }
        self.client.outgoing.register(cx.waker());
        Poll::Pending
    }

    /// Queues the answers that have become ready, as long as there is room: one event may finish all requests that
    /// wait for it, each with an answer of its own. `true` when some may be left.
    fn answer_finished(&mut self, cx: &mut Context<'_>) -> bool {
        while !self.is_full() {
            let Poll::Ready(Some(done)) = self.pending.poll_next_unpin(cx) else { return false };
            self.answer(&done.id, done.bytes, done.outcome);
        }
        true
    }

    /// Whether what is queued has to leave before more is added.
    fn is_full(&self) -> bool {
        self.client.outgoing.bytes() >= OUTGOING_PAUSE_BYTES
    }

    /// Whether no more requests are read for now.
    fn is_paused(&self) -> bool {
        self.in_flight >= MAX_REQUESTS_IN_FLIGHT
            || self.in_flight_bytes >= MAX_REQUEST_BYTES_IN_FLIGHT
            || self.is_full()
            || self.client.stage() == Stage::Opening
    }

    fn receive(&mut self, cx: &mut Context<'_>) -> Step {
        for _ in 0..REQUEST_BATCH {
            if self.is_paused() {
                return Step::Idle;
            }
            let Poll::Ready(incoming) = self.transport.poll_incoming(cx) else { return Step::Idle };
            self.last_activity = Instant::now();
            let goes_on = match incoming {
                Incoming::Ended => false,
                Incoming::Garbled(reason) => {
                    self.refuse(&reason);
                    true
                }
                Incoming::Text(text) => self.take(&text, cx),
            };
            if !goes_on {
                return Step::Over;
            }
        }
        Step::Again
    }

    /// Takes one message; `false` ends the connection (SPEC 2.4).
    fn take(&mut self, text: &str, cx: &mut Context<'_>) -> bool {
        self.client.server.trim.moved(text.len());
        let frame = Frame::new(text);
        match frame.head() {
            Ok(Head::Request { id, method, params }) => {
                let answer = self.client.request(id.clone(), &method, params);
                self.in_flight += 1;
                self.in_flight_bytes += text.len();
                self.follow(id, text.len(), answer, cx);
                true
            }
            Ok(Head::Notification { method, .. }) => self.client.notified(&method),
            // This server asks nothing, so nothing can be answered.
            Ok(Head::Response { .. } | Head::Error { .. }) => false,
            Err(error) => {
                self.refuse(&error);
                true
            }
        }
    }

    fn follow(&mut self, id: RequestId, bytes: usize, answer: Answer, cx: &mut Context<'_>) {
        match answer {
            Answer::Now(outcome) => self.answer(&id, bytes, outcome),
            // Polled at once: it takes its place in line before the next request is looked at.
            Answer::Later(mut future) => match future.as_mut().poll(cx) {
                Poll::Ready(outcome) => self.answer(&id, bytes, outcome),
                Poll::Pending => self.pending.push(Box::pin(async move {
                    let outcome = future.await;
                    Done { id, bytes, outcome }
                })),
            },
        }
    }

    fn answer(&self, id: &RequestId, bytes: usize, outcome: Outcome<Reply>) {
        let Reply { text, budget } = match outcome {
            Ok(reply) => reply,
            Err(error) => Reply { text: error_text(id, &error), budget: None },
        };
        self.client.outgoing.answer(text, bytes, budget);
    }

    /// Answers what is no message and goes on (SPEC 2.3).
    fn refuse(&mut self, reason: &str) {
        let error = ErrorObject::unparsable(&self.transport.source().to_string(), reason);
        self.in_flight += 1;
        self.client.outgoing.answer(error_text(&RequestId::UNPARSABLE, &error), 0, None);
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        loop {
            ready!(self.transport.poll_ready(cx))?;
            let Some(Message { text, answers, budget }) = self.client.outgoing.pop() else { break };
            if let Some(bytes) = answers {
                self.in_flight -= 1;
                self.in_flight_bytes -= bytes;
            }
            self.last_activity = Instant::now();
            self.client.server.trim.moved(text.len());
            self.transport.start_send(text)?;
            drop(budget);
        }
        self.transport.poll_flush(cx)
    }

    /// Pings when nothing was sent or received for a while (SPEC 1.4).
    fn poll_ping(&mut self, cx: &mut Context<'_>) -> Result<(), Lost> {
        while self.ping.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if now >= self.last_activity + PING_INTERVAL {
                self.last_activity = now;
                if self.transport.poll_ready(cx).is_ready() {
                    self.transport.ping()?;
                    // What does not leave now is flushed with what follows.
                    if let Poll::Ready(Err(lost)) = self.transport.poll_flush(cx) {
                        return Err(lost);
                    }
                }
            }
            self.ping.as_mut().reset(self.last_activity + PING_INTERVAL);
        }
        Ok(())
    }
}
