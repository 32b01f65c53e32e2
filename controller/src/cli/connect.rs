//! `connect`: the exec-server protocol on stdin and stdout, one JSON message a line (SPEC 1.5). What Codex starts with
//! `program = "legion-controller"`, `args = ["connect"]`.

use std::ffi::OsString;

use futures_util::{SinkExt, StreamExt};
use legion_protocol::limits::MAX_MESSAGE_BYTES;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::access::Lease;
use super::{Context, Wanted};
use crate::environment::Environment;
use crate::failure::{Failure, Outcome};
use crate::websocket::to_io;

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
    let bridged = match lease.websocket().await {
        Ok(socket) => until_signal(bridge(socket)).await,
        Err(failure) => Err(failure),
    };
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

async fn bridge(socket: WebSocketStream<UnixStream>) -> Outcome<()> {
    let (mut to_session, mut from_session) = socket.split();
    let up = async {
        let mut stdin = BufReader::with_capacity(1 << 16, tokio::io::stdin());
        while let Some(line) = next_line(&mut stdin).await? {
            if !line.trim_ascii().is_empty() {
                to_session.send(Message::text(line)).await.map_err(to_io)?;
            }
        }
        Ok::<(), std::io::Error>(())
    };
    let down = async {
        let mut stdout = tokio::io::stdout();
        while let Some(message) = from_session.next().await {
            match message.map_err(to_io)? {
                Message::Text(text) => {
                    stdout.write_all(text.as_bytes()).await?;
                    stdout.write_all(b"\n").await?;
                    stdout.flush().await?;
                }
                Message::Close(frame) => {
                    let reason = frame.map(|frame| frame.reason.to_string()).unwrap_or_default();
                    return Err(std::io::Error::other(reason));
                }
                _ => {}
            }
        }
        Err(std::io::Error::other("the session closed the connection"))
    };
    let ended = tokio::select! {
        ended = up => ended,
        ended = down => ended,
    };
    ended.map_err(|error| Failure::unavailable(format_args!("the connection ended: {error}")))
}

/// One line without its line feed; `None` at the end of the input.
async fn next_line<R: AsyncBufReadExt + Unpin>(reader: &mut R) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        let chunk = reader.fill_buf().await?;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(chunk.len(), |end| end + 1);
        line.extend_from_slice(&chunk[..end.unwrap_or(taken)]);
        if taken == 0 && line.is_empty() {
            return Ok(None);
        }
        reader.consume(taken);
        if line.len() > MAX_MESSAGE_BYTES {
            return Err(std::io::Error::other(format!("a message is longer than {MAX_MESSAGE_BYTES} bytes")));
        }
        if end.is_some() || taken == 0 {
            let text =
                String::from_utf8(line).map_err(|_| std::io::Error::other("a message is not UTF-8"))?;
            return Ok(Some(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_split_with_and_without_a_last_line_feed() {
        let mut input = BufReader::with_capacity(3, &b"one\n\ntwo two\nthree"[..]);
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut input).await.unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["one", "", "two two", "three"]);
    }
}
