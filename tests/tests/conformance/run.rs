//! Runs one case: its steps in order, each on its connection.
//!
//! Invariant: a case ends without anything unexplained: no response nobody asked for, no stray notification, no
//! broken ordering rule (SPEC 4.2) on any of its connections.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::case::{Case, Profile, Step, Target};
use crate::conn::Conn;
use crate::matcher;
use crate::scratch::Scratch;
use crate::server::{self, Server, Servers};
use crate::step::{self, Action, Expect};
use crate::vars::Vars;

/// Longest wait for anything that is expected to arrive.
pub(crate) const WAIT: Duration = Duration::from_secs(20);

/// `session … is already attached to another connection` (SPEC 3.2), and how long to wait before trying again.
const ATTACHED: i64 = -32010;
const RETRY: Duration = Duration::from_millis(20);

/// Everything a running case holds.
pub(crate) struct Runner<'a> {
    pub(crate) servers: &'a Servers,
    pub(crate) target: Target,
    pub(crate) server: Option<Arc<Server>>,
    /// Whether that server is this case's alone, so that the case stops it.
    owned: bool,
    pub(crate) vars: Vars,
    pub(crate) scratch: Scratch,
    pub(crate) conns: BTreeMap<String, Conn>,
    /// The server of a stdio case.
    pub(crate) child: Option<Child>,
    pub(crate) witness: TcpListener,
    pub(crate) witnessed: Option<TcpStream>,
}

/// Checks the form of a step without running it.
pub(crate) fn check_step(step: &Step) -> Result<(), String> {
    Action::parse(step).map(drop)
}

/// Runs `case` and describes what went wrong, with the exchange; writes the exchange to `record` if given.
pub(crate) fn run(
    servers: &Servers,
    target: Target,
    profile: Profile,
    case: &Case,
    web: SocketAddr,
    scratch: Scratch,
    record: Option<&Path>,
) -> Result<(), String> {
    let witness = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    let mut runner = Runner {
        servers,
        target,
        server: None,
        owned: false,
        vars: Vars::default(),
        scratch,
        conns: BTreeMap::new(),
        child: None,
        witness,
        witnessed: None,
    };
    let result = runner.play(profile, case, web);
    let result = result.and(runner.end_own().map(drop));
    let trace = runner.conns.iter().fold(String::new(), |trace, (name, conn)| {
        let state = conn.ended.as_deref().unwrap_or("open");
        trace + &format!("connection {name} ({state})\n") + &conn.trace(&runner.vars)
    });
    if let Some(path) = record {
        std::fs::write(path, &trace).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    result.map_err(|e| format!("{e}\n{trace}"))
}

impl Runner<'_> {
    fn play(&mut self, profile: Profile, case: &Case, web: SocketAddr) -> Result<(), String> {
        self.prepare(profile, case, web)?;
        for (number, step) in case.steps(self.target).iter().enumerate() {
            self.step(step).map_err(|e| {
                format!("step {}: {e}\n  in {}", number + 1, matcher::short(&Value::Object(step.clone())))
            })?;
        }
        self.conns.iter().try_for_each(|(name, conn)| {
            if let Some(violation) = conn.violations.first() {
                return Err(format!("connection {name}: {violation}"));
            }
            if let Some((id, _)) = conn.processes.iter().find(|(_, log)| log.has_gap()) {
                return Err(format!(
                    "connection {name}: a notification of process {id} never came (SPEC 4.2)"
                ));
            }
            match conn.unclaimed().or(conn.notes.front()) {
                Some(stray) => {
                    Err(format!("connection {name}: not expected by the case: {}", matcher::short(stray)))
                }
                None => Ok(()),
            }
        })
    }

    fn prepare(&mut self, profile: Profile, case: &Case, web: SocketAddr) -> Result<(), String> {
        self.vars.add("ws", &self.scratch.path_text());
        self.vars.add("http", &format!("http://{web}"));
        let port = self.witness.local_addr().map_err(|e| e.to_string())?.port();
        self.vars.bind("witness", port.into());
        self.vars.bind("fileToken", server::FILE_TOKEN.into());
        self.vars.bind("digestToken", server::DIGEST_TOKEN.into());
        self.vars.bind("jwtSecret", server::JWT_SECRET.into());
        match profile {
            Profile::Stdio => self.start_stdio()?,
            Profile::None => {
                let place = self.servers.place(self.target)?;
                self.name_place(&place);
            }
            Profile::Own => {
                let server = self.servers.start_own(self.target, self.servers.place(self.target)?)?;
                self.own(server);
            }
            _ => {
                let server = self.servers.get(self.target, profile)?;
                self.use_server(server);
            }
        }
        self.scratch.make(&case.files, &self.vars)?;
        if case.connect && self.server.is_some() {
            self.connect("a", &[])?;
        }
        if case.connect && case.handshake && profile != Profile::None {
            self.handshake("a", None)?;
        }
        Ok(())
    }

    /// Takes a server that this case has started.
    pub(crate) fn own(&mut self, server: Arc<Server>) {
        self.owned = true;
        self.use_server(server);
    }

    fn use_server(&mut self, server: Arc<Server>) {
        self.vars.add("server", &server.address.to_string());
        self.name_place(&server.place);
        self.server = Some(server);
    }

    /// Stops the case's own server, if it has one, and returns its directories.
    pub(crate) fn end_own(&mut self) -> Result<Option<server::Place>, String> {
        if !std::mem::take(&mut self.owned) {
            return Ok(None);
        }
        let server = self.server.take().ok_or("a server that is owned is there")?;
        server.stop()?;
        Ok(Some(server.place.clone()))
    }

    fn name_place(&mut self, place: &server::Place) {
        for (name, dir) in
            [("home", "home"), ("codexHome", "codex-home"), ("tmp", "tmp"), ("cwd", "cwd"), ("place", "")]
        {
            self.vars.add(name, place.path(dir).trim_end_matches('/'));
        }
    }

    fn start_stdio(&mut self) -> Result<(), String> {
        let place = self.servers.place(self.target)?;
        self.name_place(&place);
        let mut child = server::command(&self.servers.settings, self.target, &place)?
            .args(["--listen", "stdio"])
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .map_err(|e| e.to_string())?;
        let (stdin, stdout) = child.stdin.take().zip(child.stdout.take()).ok_or("stdio is piped")?;
        self.conns.insert("a".into(), Conn::stdio(stdin, server::read_messages(stdout)));
        self.child = Some(child);
        Ok(())
    }

    pub(crate) fn connect(&mut self, name: &str, headers: &[String]) -> Result<(), String> {
        let server = self.server.as_ref().ok_or("this group has no server")?;
        let (mut conn, local) = Conn::open(server.address, headers)?;
        conn.strict_order = self.target == Target::Legion;
        self.vars.add(&suffixed("peer", name), &local.to_string());
        self.conns.insert(name.to_owned(), conn);
        Ok(())
    }

    pub(crate) fn handshake(&mut self, name: &str, resume: Option<&str>) -> Result<(), String> {
        if resume.is_some() {
            self.conn(name)?.resumed = true;
        }
        let params = json!({"clientName": "conformance", "resumeSessionId": resume});
        let answer = self.request(name, "initialize", &params, resume.map(|_| ATTACHED))?;
        let session = answer["result"]["sessionId"].as_str().filter(|id| matcher::is_uuid4(id));
        let session = session.ok_or_else(|| format!("initialize failed: {answer}"))?;
        if resume.is_none() {
            self.vars.add(&suffixed("session", name), session);
        }
        self.conn(name)?.send_text(&json!({"method": "initialized", "params": {}}).to_string())
    }

    pub(crate) fn conn(&mut self, name: &str) -> Result<&mut Conn, String> {
        self.conns.get_mut(name).ok_or_else(|| format!("no connection {name}"))
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match Action::parse(step)? {
            Action::Call(call) => self.call(&call),
            Action::Start(start) => self.start(&start),
            Action::Response(response) => {
                let expect = step::expectation(response.result.as_ref(), response.error.as_ref(), None)?;
                let id = self.vars.expand(&response.response)?;
                self.answer(&response.on, &id, &expect, response.takes_ms)
            }
            Action::Repeat(repeat) => (0..repeat.repeat).try_for_each(|i| {
                self.vars.bind("i", i.into());
                repeat
                    .steps
                    .iter()
                    .try_for_each(|step| self.step(step))
                    .map_err(|e| format!("round {i}: {e}"))
            }),
            other => self.other(other),
        }
    }

    fn call(&mut self, call: &step::Call) -> Result<(), String> {
        let params = call.params.as_ref().map(|params| self.vars.expand(params)).transpose()?;
        let extra = call.envelope.clone().unwrap_or_default();
        let expect = step::expectation(call.result.as_ref(), call.error.as_ref(), call.dropped)?;
        if call.retry_on.is_some() {
            let params = params.unwrap_or_default();
            let response = self.request(&call.on, &call.call, &params, call.retry_on)?;
            return self.compare(&call.on, &response["id"], &expect, &response);
        }
        let id = call.id.as_ref().map(|id| self.vars.expand(id)).transpose()?;
        let id = self.send_request(&call.on, &call.call, params, id, &extra)?;
        if call.pending { Ok(()) } else { self.answer(&call.on, &id, &expect, call.takes_ms) }
    }

    fn start(&mut self, start: &step::Start) -> Result<(), String> {
        let argv = match (&start.sh, &start.bash, &start.argv) {
            (Some(script), None, None) => json!(["/bin/sh", "-c", script]),
            (None, Some(script), None) => json!(["/bin/bash", "-c", script]),
            (None, None, Some(argv)) => argv.clone(),
            _ => return Err("want one of sh, bash, argv".into()),
        };
        let mut params = json!({
            "processId": start.start, "argv": argv, "cwd": "file://${ws}", "env": {}, "tty": false, "pipeStdin": false,
            "envPolicy": {"inherit": "all", "ignoreDefaultExcludes": true, "exclude": [], "set": {}, "includeOnly": []},
        });
        if let Some(params) = params.as_object_mut() {
            params.extend(start.with.clone());
            params.retain(|name, _| !start.without.contains(name));
        }
        let params = self.vars.expand(&params)?;
        let expect = match step::expectation(start.result.as_ref(), start.error.as_ref(), start.dropped)? {
            Expect::Nothing => Expect::Result(json!({"processId": start.start, "sandboxType": "none"})),
            other => other,
        };
        let expect = match expect {
            Expect::Result(result) if result["processId"].is_string() => {
                Expect::Result(self.vars.expand(&result)?)
            }
            other => other,
        };
        let id = start.id.as_ref().map(|id| self.vars.expand(id)).transpose()?;
        let id = self.send_request(&start.on, "process/start", Some(params), id, &Map::new())?;
        if start.pending { Ok(()) } else { self.answer(&start.on, &id, &expect, None) }
    }

    /// Sends a request and returns its id.
    fn send_request(
        &mut self,
        on: &str,
        method: &str,
        params: Option<Value>,
        id: Option<Value>,
        extra: &Map<String, Value>,
    ) -> Result<Value, String> {
        let conn = self.conn(on)?;
        let id = id.unwrap_or_else(|| conn.take_id());
        if let Some(process) = params.as_ref().filter(|_| method == "process/start") {
            conn.expect_start(&id, process["processId"].as_str().unwrap_or_default());
        }
        let mut request = extra.clone();
        request.insert("id".into(), id.clone());
        request.insert("method".into(), method.into());
        if let Some(params) = params {
            request.insert("params".into(), params);
        }
        conn.send_text(&Value::Object(request).to_string())?;
        Ok(id)
    }

    /// Sends a request until the answer is not the error `retry_on`.
    ///
    /// A server learns of a dropped connection a moment after we dropped it, so the attempts are bounded by time.
    fn request(
        &mut self,
        on: &str,
        method: &str,
        params: &Value,
        retry_on: Option<i64>,
    ) -> Result<Value, String> {
        let deadline = Instant::now() + WAIT;
        loop {
            let id = self.send_request(on, method, Some(params.clone()), None, &Map::new())?;
            let conn = self.conn(on)?;
            let Some(response) = conn.wait(WAIT, |conn| conn.response(&id))? else {
                return Err(format!("no response to {method} ({})", conn.ended.as_deref().unwrap_or("open")));
            };
            let again = retry_on.is_some() && response["error"]["code"].as_i64() == retry_on;
            if !again || Instant::now() > deadline {
                return Ok(response);
            }
            conn.wait(RETRY, |_| None::<()>)?;
        }
    }

    /// Waits for the response to `id` and compares it.
    fn answer(
        &mut self,
        on: &str,
        id: &Value,
        expect: &Expect,
        takes: Option<[u64; 2]>,
    ) -> Result<(), String> {
        let begun = Instant::now();
        let conn = self.conn(on)?;
        if matches!(expect, Expect::Dropped) {
            return self.dropped(on);
        }
        let Some(response) = conn.wait(WAIT, |conn| conn.response(id))? else {
            return Err(format!("no response to id {id} ({})", conn.ended.as_deref().unwrap_or("open")));
        };
        let took = begun.elapsed().as_millis();
        self.compare(on, id, expect, &response)?;
        match takes {
            Some([low, high]) if took < u128::from(low) || took > u128::from(high) => {
                Err(format!("the response took {took} ms, expected {low} to {high}"))
            }
            _ => Ok(()),
        }
    }

    fn compare(&mut self, on: &str, id: &Value, expect: &Expect, response: &Value) -> Result<(), String> {
        if let Some(session) = response["result"]["sessionId"].as_str()
            && matcher::is_uuid4(session)
            && !self.conn(on)?.resumed
        {
            self.vars.add(&suffixed("session", on), session);
        }
        let observed = self.vars.normalise(response);
        // The id is echoed, so it is normalised like the rest of the observation.
        let id = self.vars.normalise(id);
        let expected = match expect {
            Expect::Result(result) => json!({"id": id, "result": self.vars.expectation(result)?}),
            Expect::Error(error) => json!({"id": id, "error": self.vars.expectation(error)?}),
            Expect::Either(result, error) => json!({"$oneOf": [
                {"id": id, "result": self.vars.expectation(result)?}, {"id": id, "error": self.vars.expectation(error)?}
            ]}),
            _ => return Err("a response needs result or error".into()),
        };
        matcher::matches(&expected, &observed, &self.vars)
    }

    /// Waits for the server to drop a connection; anything it sends before fails the case in the end.
    pub(crate) fn dropped(&mut self, on: &str) -> Result<(), String> {
        let conn = self.conn(on)?;
        conn.wait(WAIT, |_| None::<()>)?;
        match &conn.ended {
            Some(how) if how == "end of stream" || how.contains("reset") => Ok(()),
            Some(how) => Err(format!("expected a dropped connection, observed {how}")),
            None => Err("expected a dropped connection, it is still open".into()),
        }
    }
}

/// `${name}` of the first connection, `${name_b}` of connection `b`.
pub(crate) fn suffixed(name: &str, conn: &str) -> String {
    if conn == "a" { name.to_owned() } else { format!("{name}_{conn}") }
}
