//! `connect`: the exec-server protocol on stdin and stdout, one JSON message a line (SPEC 1.5). What Codex starts with
//! `program = "legion-controller"`, `args = ["connect"]`.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fmt::Display;
use std::io;

use futures_util::{SinkExt, StreamExt};
use legion_protocol::limits::MAX_MESSAGE_BYTES;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader, Stdin, Stdout};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::access::Lease;
use super::{Context, Wanted};
use crate::environment::Environment;
use crate::failure::{Failure, Outcome};
use crate::limits::SESSION_CONNECT_TIMEOUT;
use crate::websocket::to_io;

mod ledger;

use ledger::{Ledger, handshake_answer};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
}

/// Names the variable through which `codex` gives options to the `connect` that Codex starts: the configuration that
/// says how to start it is the same for all runs. A JSON array; options on the command line come after these.
pub(super) const OPTIONS: &str = "LEGION_CONNECT_OPTIONS";

/// The variable's value.
pub(super) fn options_variable(options: &[String]) -> Outcome<String> {
    serde_json::to_string(options).map_err(Failure::internal)
}

/// The arguments of this process with those of the variable put before them.
pub(super) fn with_options(environment: &Environment, mut args: Vec<OsString>) -> Outcome<Vec<OsString>> {
    if args.get(1).is_some_and(|command| command == "connect")
        && let Some(text) = environment.var(OPTIONS)
    {
        let options: Vec<String> = serde_json::from_str(text).map_err(|error| {
            Failure::usage(format_args!("{OPTIONS} is no JSON array of options: {error}"))
        })?;
        args.splice(2..2, options.into_iter().map(OsString::from));
    }
    Ok(args)
}

pub(super) async fn run(context: Context, args: Args) -> Outcome<u8> {
    let lease = Lease::open(&context, &args.wanted).await?;
    let bridged = until_signal(bridge(&lease)).await;
    lease.release().await;
    bridged.map(|()| 0)
}

/// A signal ends the bridge in good order.
pub(super) async fn until_signal(bridge: impl Future<Output = Outcome<()>>) -> Outcome<()> {
    let watch =
        |kind| signal(kind).map_err(|error| Failure::internal(format_args!("cannot watch signals: {error}")));
    let (mut interrupt, mut terminate) = (watch(SignalKind::interrupt())?, watch(SignalKind::terminate())?);
    let mut hangup = watch(SignalKind::hangup())?;
    tokio::select! {
        bridged = bridge => bridged,
        _ = hangup.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

/// The client's session, in one sandbox after the other.
async fn bridge(lease: &Lease) -> Outcome<()> {
    let mut lines = Lines::new(tokio::io::stdin());
    let ledger = RefCell::<Ledger>::default();
    let mut socket = lease.websocket().await?;
    loop {
        match pass_on(socket, &mut lines, &ledger).await.map_err(ended)? {
            Ended::Client => return Ok(()),
            Ended::Session(reason) => return Err(ended(reason)),
            Ended::Died => {}
        }
        let lost = ledger.borrow_mut().lost();
        let mut stdout = tokio::io::stdout();
        for line in lost {
            print_line(&mut stdout, &line).await.map_err(ended)?;
        }
        // Not before it is needed: one that dies at once does not start again and again.
        if !lines.wait().await.map_err(ended)? {
            return Ok(());
        }
        socket = timeout(SESSION_CONNECT_TIMEOUT, open_again(lease, &ledger))
            .await
            .map_err(|_| ended("the new sandbox does not answer"))??;
    }
}

fn ended(why: impl Display) -> Failure {
    Failure::unavailable(format_args!("the connection ended: {why}"))
}

/// What is said of a session that says nothing.
const CLOSED: &str = "the session closed the connection";

/// Who or what ended the passing on of messages.
enum Ended {
    /// The client has left.
    Client,
    /// The session, with its reason.
    Session(String),
    /// The exec-server has died, and the client can go on in a new sandbox.
    Died,
}

/// Passes messages on in both directions until one side leaves.
async fn pass_on(
    socket: WebSocketStream<UnixStream>,
    lines: &mut Lines<Stdin>,
    ledger: &RefCell<Ledger>,
) -> io::Result<Ended> {
    let (mut to_session, mut from_session) = socket.split();
    let up = async {
        while let Some(line) = lines.next().await? {
            ledger.borrow_mut().up(&line);
            if to_session.send(Message::text(line)).await.is_err() {
                // The other direction says why.
                return std::future::pending().await;
            }
        }
        Ok::<_, io::Error>(Ended::Client)
    };
    let down = async {
        let mut stdout = tokio::io::stdout();
        while let Some(message) = from_session.next().await {
            match message.map_err(to_io)? {
                Message::Text(text) => {
                    ledger.borrow_mut().down(&text);
                    print_line(&mut stdout, &text).await?;
                }
                Message::Close(Some(frame)) if frame.code == CloseCode::Away && ledger.borrow().is_open() => {
                    return Ok(Ended::Died);
                }
                Message::Close(frame) => return Ok(Ended::Session(reason(frame))),
                _ => {}
            }
        }
        Ok(Ended::Session(CLOSED.to_owned()))
    };
    tokio::select! {
        ended = up => ended,
        ended = down => ended,
    }
}

/// The client's session in a new sandbox; the client sees nothing of how it is opened.
async fn open_again(lease: &Lease, ledger: &RefCell<Ledger>) -> Outcome<WebSocketStream<UnixStream>> {
    let (request, initialized) =
        ledger.borrow().handshake().ok_or_else(|| ended("the client has no session"))?;
    let mut socket = lease.websocket().await?;
    let sent = |error| ended(to_io(error));
    socket.send(Message::text(request)).await.map_err(sent)?;
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => match handshake_answer(&text) {
                Some(Ok(())) => break,
                Some(Err(error)) => return Err(ended(error)),
                None => {}
            },
            Some(Ok(Message::Close(frame))) => return Err(ended(reason(frame))),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(sent(error)),
            None => return Err(ended(CLOSED)),
        }
    }
    if let Some(text) = initialized {
        socket.send(Message::text(text)).await.map_err(sent)?;
    }
    Ok(socket)
}

fn reason(frame: Option<CloseFrame>) -> String {
    frame.map_or_else(|| CLOSED.to_owned(), |frame| frame.reason.to_string())
}

async fn print_line(stdout: &mut Stdout, text: &str) -> io::Result<()> {
    stdout.write_all(text.as_bytes()).await?;
    stdout.write_all(b"\n").await?;
    stdout.flush().await
}

/// The lines of an input that say something, without their line feeds. Dropping a future of it loses nothing.
struct Lines<R> {
    input: BufReader<R>,
    /// The line that is being read.
    partial: Vec<u8>,
    /// One that was waited for and not yet taken.
    complete: Option<String>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(input: R) -> Self {
        Self { input: BufReader::with_capacity(1 << 16, input), partial: Vec::new(), complete: None }
    }

    /// `None` at the end of the input.
    async fn next(&mut self) -> io::Result<Option<String>> {
        self.wait().await?;
        Ok(self.complete.take())
    }

    /// Waits until there is a line; false at the end of the input.
    async fn wait(&mut self) -> io::Result<bool> {
        while self.complete.is_none() {
            let chunk = self.input.fill_buf().await?;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(chunk.len(), |end| end + 1);
            self.partial.extend_from_slice(&chunk[..end.unwrap_or(taken)]);
            if taken == 0 && self.partial.is_empty() {
                return Ok(false);
            }
            self.input.consume(taken);
            if self.partial.len() > MAX_MESSAGE_BYTES {
                return Err(io::Error::other(format!("a message is longer than {MAX_MESSAGE_BYTES} bytes")));
            }
            if end.is_some() || taken == 0 {
                let line = String::from_utf8(std::mem::take(&mut self.partial))
                    .map_err(|_| io::Error::other("a message is not UTF-8"))?;
                self.complete = Some(line).filter(|line| !line.trim_ascii().is_empty());
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn lines_are_split_with_and_without_a_last_line_feed() {
        let mut input = Lines::new(&b"one\n\ntwo two\n \nthree"[..]);
        let mut lines = Vec::new();
        while let Some(line) = input.next().await.unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["one", "two two", "three"]);
        assert!(!input.wait().await.unwrap());
    }

    #[tokio::test]
    async fn a_line_that_comes_in_pieces_outlives_those_who_wait_for_it() {
        let (mut writer, reader) = tokio::io::duplex(64);
        let mut input = Lines::new(reader);
        for piece in ["he", "llo"] {
            writer.write_all(piece.as_bytes()).await.unwrap();
            assert!(input.next().now_or_never().is_none());
        }
        writer.write_all(b"\n").await.unwrap();
        assert!(input.wait().await.unwrap());
        assert_eq!(input.next().await.unwrap().as_deref(), Some("hello"));
    }
}
