//! Signals that are passed on to a running command.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use legion_protocol::process::AnySignal;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What came.
#[derive(Clone, Copy)]
pub(super) enum Event {
    /// The terminal has another size.
    Resized,
    /// A signal for the command.
    Told(AnySignal),
}

/// Caught from here on; a caught signal no longer ends us by itself.
pub(super) struct Signals([(Event, Signal); 7]);

impl Signals {
    /// Catches them.
    pub(super) fn watch() -> io::Result<Self> {
        let told = |told, kind| Ok::<_, io::Error>((Event::Told(told), signal(kind)?));
        Ok(Self([
            told(AnySignal::Interrupt, SignalKind::interrupt())?,
            told(AnySignal::Quit, SignalKind::quit())?,
            told(AnySignal::Terminate, SignalKind::terminate())?,
            told(AnySignal::Hangup, SignalKind::hangup())?,
            told(AnySignal::User1, SignalKind::user_defined1())?,
            told(AnySignal::User2, SignalKind::user_defined2())?,
            (Event::Resized, signal(SignalKind::window_change())?),
        ]))
    }

    /// The next one that comes.
    pub(super) async fn next(&mut self) -> Event {
        poll_fn(|context| {
            for (event, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*event);
                }
            }
            Poll::Pending
        })
        .await
    }
}
