//! The actions of a step other than requests.
//!
//! Invariant: every wait is bounded by `run::WAIT` or by the step; a wait for absence says what would have come.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::case::Target;
use crate::matcher;
use crate::process::ProcessLog;
use crate::run::{Runner, WAIT};
use crate::server::{self, SERVER_TIMEOUT};
use crate::step::{self, Action};
use crate::wire::{self, Outgoing};

impl Runner<'_> {
    pub(crate) fn other(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Notify(step) => self.notify(&step),
            Action::Raw(step) => {
                let text = self.vars.expand(&step.raw)?;
                self.conn(&step.on)?.send_text(text.as_str().ok_or("raw: want text")?)
            }
            Action::Frames(step) => self.frames(step),
            Action::Process(step) => self.process(&step),
            Action::Note(step) => self.note(&step),
            Action::Silence(step) => self.silence(&step),
            Action::Connect(step) => self.connect_step(&step),
            Action::Dropped(step) => self.dropped(&step.on),
            Action::Drop(step) => self.conn(&step.drop)?.hang_up(step.reset),
            Action::Close(step) => self.close(&step),
            Action::Pong(step) => self.pong(&step),
            Action::Sizes(step) => self.sizes(&step),
            Action::File(step) => self.scratch.check(&step, &self.vars),
            Action::Make(step) => self.scratch.make(&step.make, &self.vars),
            Action::Remove(step) => self.scratch.remove(&step.remove),
            Action::Http(step) => self.http(&step),
            Action::Witness(step) => self.witness(&step),
            Action::Spawn(step) => self.spawn(&step),
            Action::EndStdin(step) => self.end_stdin(&step),
            Action::Restart => self.restart(),
            Action::Call(_) | Action::Start(_) | Action::Response(_) | Action::Repeat(_) => {
                Err("requests are run elsewhere".into())
            }
        }
    }

    fn notify(&mut self, step: &step::Notify) -> Result<(), String> {
        let mut message = json!({"method": step.notify});
        if let Some(params) = &step.params {
            message["params"] = self.vars.expand(params)?;
        }
        self.conn(&step.on)?.send_text(&message.to_string())
    }

    fn frames(&mut self, step: step::Frames) -> Result<(), String> {
        for frame in step.frames {
            let payload = match (frame.bytes, self.vars.expand(&frame.payload)?) {
                (Some(bytes), Value::Null) => bytes,
                (None, Value::String(text)) => text.into_bytes(),
                (None, Value::Null) => Vec::new(),
                _ => return Err("a frame has payload text or bytes".into()),
            };
            let step::FrameSpec { opcode, fin, rsv, masked, .. } = frame;
            self.conn(&step.on)?.send_frame(Outgoing { opcode, fin, rsv, masked, payload })?;
        }
        Ok(())
    }

    fn process(&mut self, step: &step::Process) -> Result<(), String> {
        let until = step.until.clone().unwrap_or_else(|| "closed".into());
        let id = self.vars.text(&step.process)?;
        let reached = |log: &ProcessLog| match &until {
            Value::String(state) if state == "closed" => log.closed(),
            Value::String(state) if state == "exited" => log.exit.is_some(),
            Value::Object(seen) => {
                seen.iter().all(|(stream, text)| log.text(stream).contains(text.as_str().unwrap_or_default()))
            }
            _ => false,
        };
        let conn = self.conn(&step.on)?;
        let found = conn.wait(WAIT, |conn| conn.processes.get(&id).filter(|log| reached(log)).map(|_| ()))?;
        let empty = ProcessLog::default();
        let log = conn.processes.get(&id).unwrap_or(&empty);
        if found.is_none() {
            let bytes: Vec<_> = log.streams.iter().map(|(name, data)| (name, data.len())).collect();
            let seen = format!("{:?}, seq {}, bytes {bytes:?}", log.events, log.last_seq);
            return Err(format!("process {id} did not get to {until}; seen: {seen}"));
        }
        let observed = json!({
            "stdout": log.text("stdout"), "stderr": log.text("stderr"), "pty": log.text("pty"),
            "exitCode": log.exit.as_ref().map(|exit| exit["exitCode"].clone()),
            "sandboxDenied": log.exit.as_ref().map(|exit| exit["sandboxDenied"].clone()),
            "events": log.events, "longestChunk": log.longest_chunk, "lastSeq": log.last_seq,
        });
        let late = log.late_output();
        let observed = self.vars.normalise(&observed);
        // A stream that the case does not mention must have stayed empty, once it is known to be complete.
        let quiet = if until == "closed" { json!("") } else { json!({"$any": true}) };
        let any = json!({"$any": true});
        // The original looks for a denial when the process ends, in the output it has read by then.
        let certain = self.target == Target::Legion || !late;
        let denied = step.sandbox_denied.filter(|_| certain);
        let stream = |expected: &Option<Value>| expected.clone().unwrap_or_else(|| quiet.clone());
        let expected = json!({
            "stdout": stream(&step.stdout), "stderr": stream(&step.stderr), "pty": stream(&step.pty),
            "exitCode": step.exit_code.map_or_else(|| any.clone(), Value::from),
            "sandboxDenied": denied.map_or_else(|| any.clone(), Value::from),
            "events": step.events.as_ref().map_or_else(|| any.clone(), |events| json!(events)),
            "longestChunk": step.chunk_max.map_or_else(|| any.clone(), |max| json!({"$range": [0, max]})),
            "lastSeq": step.last_seq.clone().unwrap_or(any),
        });
        matcher::matches(&self.vars.expectation(&expected)?, &observed, &self.vars)
    }

    fn note(&mut self, step: &step::Note) -> Result<(), String> {
        let conn = self.conn(&step.on)?;
        let note = conn.wait(WAIT, |conn| {
            let at = conn.notes.iter().position(|note| note["method"] == step.note.as_str())?;
            conn.notes.remove(at)
        })?;
        let note = note.ok_or_else(|| format!("no {} arrived", step.note))?;
        let expected = self.vars.expectation(&json!({"method": step.note, "params": step.params}))?;
        let observed = self.vars.normalise(&note);
        matcher::matches(&expected, &observed, &self.vars)
    }

    fn silence(&mut self, step: &step::Silence) -> Result<(), String> {
        let conn = self.conn(&step.on)?;
        let before = conn.received;
        conn.wait(Duration::from_millis(step.silence), |conn| (conn.received > before).then_some(()))?;
        match &conn.ended {
            Some(how) => Err(format!("expected silence, the connection ended: {how}")),
            None if conn.received > before => {
                Err(format!("expected silence ({}), something arrived", step.why))
            }
            None => Ok(()),
        }
    }

    fn connect_step(&mut self, step: &step::Connect) -> Result<(), String> {
        self.connect(&step.connect, &[])?;
        self.conn(&step.connect)?.resumed = step.resuming;
        let resume = step.resume.as_ref().map(|id| self.vars.text(id)).transpose()?;
        if step.handshake.unwrap_or(true) { self.handshake(&step.connect, resume.as_deref()) } else { Ok(()) }
    }

    fn close(&mut self, step: &step::Close) -> Result<(), String> {
        let payload = step.status.map_or_else(Vec::new, |status| status.to_be_bytes().to_vec());
        let conn = self.conn(&step.on)?;
        conn.close_expected = step.answered;
        conn.send_frame(Outgoing { opcode: 8, fin: true, rsv: 0, masked: true, payload })?;
        self.dropped(&step.on)?;
        if self.conn(&step.on)?.close_expected {
            return Err("expected a Close frame in answer, none came".into());
        }
        Ok(())
    }

    fn pong(&mut self, step: &step::Pong) -> Result<(), String> {
        let pong = self.conn(&step.on)?.wait(WAIT, |conn| conn.pongs.pop_front())?;
        match pong {
            Some(payload) if payload == step.pong.as_bytes() => Ok(()),
            other => Err(format!("expected a pong with {:?}, observed {other:?}", step.pong)),
        }
    }

    fn sizes(&mut self, step: &step::Sizes) -> Result<(), String> {
        let conn = self.conn(&step.on)?;
        let observed = json!({
            "largestFrame": conn.largest_frame, "largestMessage": conn.largest_message, "mostFrames": conn.most_frames,
        });
        let any = json!({"$any": true});
        let expected = json!({
            "largestFrame": step.largest_frame.as_ref().unwrap_or(&any),
            "largestMessage": step.largest_message.as_ref().unwrap_or(&any),
            "mostFrames": step.most_frames.as_ref().unwrap_or(&any),
        });
        matcher::matches(&expected, &observed, &self.vars)
    }

    fn http(&mut self, step: &step::Http) -> Result<(), String> {
        let address = self.server.as_ref().ok_or("this group has no server")?.address;
        let requests = step
            .http
            .iter()
            .map(|request| self.http_request(address, request))
            .collect::<Result<Vec<_>, _>>()?;
        let replies = wire::exchange(address, &requests)?;
        for reply in &replies {
            if reply.status == 101 {
                wire::check_upgrade(reply)?;
            }
        }
        let observed: Vec<Value> = replies
            .iter()
            .map(|reply| {
                let headers: serde_json::Map<String, Value> =
                    reply.headers.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
                json!({"status": reply.status, "body": reply.body, "headers": headers})
            })
            .collect();
        let any = json!({"$any": true});
        let expected: Vec<Value> = step
            .replies
            .iter()
            .map(|want| {
                json!({
                    "status": want["status"], "body": want.get("body").unwrap_or(&json!("")),
                    "headers": want.get("headers").map_or_else(|| any.clone(), |headers| json!({"$subset": headers})),
                })
            })
            .collect();
        matcher::matches(&Value::Array(expected), &Value::Array(observed), &self.vars)
    }

    /// A raw request text, or `{"upgrade": target, "headers": [line, …]}`.
    fn http_request(&self, address: std::net::SocketAddr, request: &Value) -> Result<String, String> {
        let request = self.vars.expand(request)?;
        if let Some(text) = request.as_str() {
            return Ok(text.replace('\n', "\r\n"));
        }
        let target = request["upgrade"].as_str().ok_or("http: want text or upgrade")?;
        let lines = request["headers"].as_array().cloned().unwrap_or_default();
        let lines: Vec<String> = lines.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Ok(wire::upgrade_request(address, target, &lines))
    }

    fn witness(&mut self, step: &step::Witness) -> Result<(), String> {
        if step.witness == "connected" {
            let limit = Timespec { tv_sec: WAIT.as_secs().cast_signed(), tv_nsec: 0 };
            let ready =
                poll(&mut [PollFd::from_borrowed_fd(self.witness.as_fd(), PollFlags::IN)], Some(&limit));
            if ready.map_err(|e| e.to_string())? == 0 {
                return Err("the child did not connect to the witness port".into());
            }
            self.witnessed = Some(self.witness.accept().map_err(|e| e.to_string())?.0);
            return Ok(());
        }
        let stream = self.witnessed.as_mut().ok_or("nothing has connected to the witness port")?;
        let alive = match step.witness.as_str() {
            "gone" => {
                stream.set_read_timeout(Some(WAIT)).map_err(|e| e.to_string())?;
                !matches!(stream.read(&mut [0]), Ok(0))
            }
            "alive" => {
                stream.set_nonblocking(true).map_err(|e| e.to_string())?;
                let alive = !matches!(stream.read(&mut [0]), Ok(0));
                stream.set_nonblocking(false).map_err(|e| e.to_string())?;
                alive
            }
            other => return Err(format!("witness: unknown state {other}")),
        };
        let wanted = step.witness == "alive";
        if alive == wanted {
            Ok(())
        } else {
            Err(format!("witness: expected {}, alive is {alive}", step.witness))
        }
    }

    fn spawn(&mut self, step: &step::Spawn) -> Result<(), String> {
        let place = self.servers.place(self.target)?;
        self.vars.add("own", place.path("").trim_end_matches('/'));
        let arguments = step.spawn.iter().map(|a| self.vars.text(a)).collect::<Result<Vec<_>, _>>()?;
        let mut child = server::command(&self.servers.settings, self.target, &place)?
            .args(arguments)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let (stdout, stderr) = child.stdout.take().zip(child.stderr.take()).ok_or("output is piped")?;
        let (stdout, stderr) = (server::read_lines(stdout), server::read_lines(stderr));
        let outcome = self.watch_child(step, &child, &stdout, &stderr);
        if outcome.is_err() {
            // It may still be running; it must not outlive the case.
            let _gone = child.kill();
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        outcome?;
        let exit = status.code().map_or_else(|| json!({ "signal": status.signal() }), Value::from);
        matcher::matches(&step.exit, &exit, &self.vars).map_err(|error| format!("exit: {error}"))
    }

    fn watch_child(
        &mut self,
        step: &step::Spawn,
        child: &std::process::Child,
        stdout: &std::sync::mpsc::Receiver<String>,
        stderr: &std::sync::mpsc::Receiver<String>,
    ) -> Result<(), String> {
        if let Some(expected) = &step.line {
            let line = stdout.recv_timeout(SERVER_TIMEOUT).map_err(|e| format!("no line on stdout: {e}"))?;
            matcher::matches(expected, &line.into(), &self.vars)?;
        }
        match step.signal.as_deref() {
            Some("TERM") => server::signal(child, Signal::TERM)?,
            Some("INT") => server::signal(child, Signal::INT)?,
            Some(other) => return Err(format!("signal {other} is not known here")),
            None => {}
        }
        let rest = server::end_of(stdout, SERVER_TIMEOUT)?.join("\n");
        matcher::matches(&step.stdout, &rest.into(), &self.vars)?;
        let errors = self.vars.normalise_text(&server::end_of(stderr, SERVER_TIMEOUT)?.join("\n"));
        match &step.stderr {
            Some(expected) => matcher::matches(expected, &errors.into(), &self.vars),
            None => Ok(()),
        }
    }

    fn restart(&mut self) -> Result<(), String> {
        let place = self.end_own()?.ok_or("only a case with a server of its own can restart it")?;
        let server = self.servers.start_own(self.target, place)?;
        self.own(server);
        Ok(())
    }

    fn end_stdin(&mut self, step: &step::EndStdin) -> Result<(), String> {
        let conn = self.conn(&step.on)?;
        conn.hang_up(false)?;
        // The end of stdout is the event; the process is reaped right after it.
        conn.ended = None;
        conn.wait(WAIT, |_| None::<()>)?;
        let ended = conn.ended.is_some();
        let child = self.child.as_mut().ok_or("only a stdio case has stdin")?;
        if !ended {
            let _gone = child.kill();
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        self.child = None;
        match status.code() {
            Some(code) if ended && code == step.exit => Ok(()),
            _ => Err(format!(
                "expected exit {} after the end of stdin, observed {status}, ended: {ended}",
                step.exit
            )),
        }
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // A stdio server whose case failed or did not end it.
            let _gone = child.kill();
            let _status = child.wait();
        }
    }
}
