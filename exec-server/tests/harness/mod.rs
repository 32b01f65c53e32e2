//! A server process with an inherited socket, a bootstrap and a lifeline, and a client that files what it receives.
//!
//! Invariant: every wait ends after [`LIMIT`]; sequence numbers are checked on every notification.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use futures_util::{SinkExt, StreamExt};
use legion_protocol::Chunk;
use rustix::process::Pid;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

/// What the servers of these tests ask for.
pub(crate) const TOKEN: &str = "token-of-the-session";

/// Longest wait of a test, for a machine that is busy with others.
const LIMIT: Duration = Duration::from_secs(30);

/// Runs a future that must not take for ever.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it takes too long")
}

/// Bytes that a process has written so far.
pub(crate) fn written_by(pid: Pid) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/io", pid.as_raw_nonzero())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("wchar: "))?.parse().ok()
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    socket: PathBuf,
    lifeline: Option<OwnedFd>,
    _dir: tempfile::TempDir,
}

impl Server {
    /// Starts the server as the controller does, with one descriptor more than it is told of.
    pub(crate) fn start() -> Self {
        Self::start_with(&json!({}))
    }

    /// The same with limits of a persona.
    pub(crate) fn start_with(limits: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let (lifeline_read, lifeline) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let (bootstrap, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        std::fs::File::from(write).write_all(bootstrap_text(limits).as_bytes()).unwrap();
        let extra = std::fs::File::open("/dev/null").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_legion-exec-server"));
        command
            .args(["--listen", "fd:10", "--bootstrap-fd", "11", "--lifeline-fd", "12"])
            .env_clear()
            .stdin(Stdio::null())
            .fd_mappings(vec![
                FdMapping { parent_fd: listener.into(), child_fd: 10 },
                FdMapping { parent_fd: bootstrap, child_fd: 11 },
                FdMapping { parent_fd: lifeline_read, child_fd: 12 },
                FdMapping { parent_fd: extra.into(), child_fd: 20 },
            ])
            .unwrap();
        let child = command.spawn().unwrap();
        Self { child, socket, lifeline: Some(lifeline), _dir: dir }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// A connection that says nothing. Reading from it does not wait; it succeeds once the server has closed it.
    pub(crate) fn silent_peer(&self) -> std::os::unix::net::UnixStream {
        let peer = std::os::unix::net::UnixStream::connect(&self.socket).unwrap();
        peer.set_nonblocking(true).unwrap();
        peer
    }

    pub(crate) fn cut_lifeline(&mut self) {
        self.lifeline = None;
    }

    pub(crate) async fn wait(&mut self) -> ExitStatus {
        within(async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }

    /// Resident bytes.
    pub(crate) fn memory(&self) -> usize {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
    }

    /// Children, zombies included.
    pub(crate) fn children(&self) -> usize {
        let id = self.child.id();
        let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        text.split_whitespace().count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bootstrap_text(limits: &Value) -> String {
    let digest = Sha256::digest(TOKEN.as_bytes());
    let digest = digest.iter().fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"));
    json!({
        "tokenSha256": digest,
        "env": {"PATH": "/usr/bin:/bin", "SECRET_OF_THE_SESSION": "value"},
        "cwd": "file:///", "home": "file:///", "tempDir": "file:///tmp", "limits": limits
    })
    .to_string()
}

/// What is known of one process.
#[derive(Default)]
struct Process {
    output: VecDeque<u8>,
    last_seq: u64,
    exit_code: Option<i64>,
    limit: Option<String>,
    closed: bool,
}

/// One connection.
pub(crate) struct Client {
    socket: WebSocketStream<UnixStream>,
    pub(crate) session: String,
    next_id: i64,
    answers: HashMap<i64, Result<Value, Value>>,
    processes: HashMap<String, Process>,
}

impl Client {
    /// Upgrades; the HTTP status when that is refused.
    pub(crate) async fn connect(server: &Server, token: Option<&str>) -> Result<Self, u16> {
        let mut request = "ws://localhost/".into_client_request().unwrap();
        if let Some(token) = token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let stream = UnixStream::connect(&server.socket).await.unwrap();
        match within(tokio_tungstenite::client_async(request, stream)).await {
            Ok((socket, _)) => Ok(Self {
                socket,
                session: String::new(),
                next_id: 1,
                answers: HashMap::new(),
                processes: HashMap::new(),
            }),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// A connection with a new session.
    pub(crate) async fn open(server: &Server) -> Self {
        let mut client = Self::connect(server, Some(TOKEN)).await.unwrap();
        client.initialize(Value::Null).await.unwrap();
        client
    }

    pub(crate) async fn resume(&mut self, session: &str) -> Result<(), Value> {
        self.initialize(session.into()).await
    }

    async fn initialize(&mut self, resume: Value) -> Result<(), Value> {
        let result =
            self.call("initialize", json!({"clientName": "test", "resumeSessionId": resume})).await?;
        result["sessionId"].as_str().unwrap().clone_into(&mut self.session);
        self.send(json!({"method": "initialized"})).await;
        Ok(())
    }

    async fn send(&mut self, frame: Value) {
        within(self.socket.send(Message::text(frame.to_string()))).await.unwrap();
    }

    /// Sends a request; its answer is taken with [`Client::answer`].
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(json!({"id": id, "method": method, "params": params})).await;
        id
    }

    pub(crate) async fn answer(&mut self, id: i64) -> Result<Value, Value> {
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            assert!(self.receive().await, "the connection ended");
        }
    }

    pub(crate) fn is_answered(&self, id: i64) -> bool {
        self.answers.contains_key(&id)
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.ask(method, params).await;
        self.answer(id).await
    }

    pub(crate) async fn ask_start(&mut self, process: &str, script: &str, more: Value) -> i64 {
        let mut params = json!({
            "processId": process, "argv": ["/bin/sh", "-c", script], "cwd": "file:///",
            "env": {"PATH": "/usr/bin:/bin"}, "tty": false
        });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.ask("process/start", params).await
    }

    pub(crate) async fn start(&mut self, process: &str, script: &str, more: Value) {
        let id = self.ask_start(process, script, more).await;
        self.answer(id).await.unwrap();
    }

    pub(crate) async fn ask_write(&mut self, process: &str, bytes: &[u8], write_id: &str) -> i64 {
        let chunk = Chunk::to_base64(bytes);
        self.ask("process/write", json!({"processId": process, "chunk": chunk, "writeId": write_id})).await
    }

    pub(crate) async fn write(&mut self, process: &str, bytes: &[u8], write_id: &str) {
        let id = self.ask_write(process, bytes, write_id).await;
        assert_eq!(self.answer(id).await.unwrap()["status"], "accepted");
    }

    /// Takes output up to and including `end`.
    pub(crate) async fn output_until(&mut self, process: &str, end: &str) -> String {
        loop {
            let output = &mut self.processes.entry(process.to_owned()).or_default().output;
            let text = String::from_utf8_lossy(output.make_contiguous()).into_owned();
            if let Some(at) = text.find(end) {
                output.drain(..at + end.len());
                return text[..at + end.len()].to_owned();
            }
            assert!(self.receive().await, "the connection ended");
        }
    }

    /// The rest of the output, and the exit code, once the process is closed.
    pub(crate) async fn finish(&mut self, process: &str) -> (String, i64) {
        loop {
            if let Some(known) = self.processes.get_mut(process).filter(|known| known.closed) {
                let output = String::from_utf8_lossy(known.output.make_contiguous()).into_owned();
                return (output, known.exit_code.expect("exited comes before closed"));
            }
            assert!(self.receive().await, "the connection ended");
        }
    }

    /// The limit a finished process was killed for.
    pub(crate) fn limit(&self, process: &str) -> Option<&str> {
        self.processes[process].limit.as_deref()
    }

    /// Whether the server ends the connection.
    pub(crate) async fn ended(&mut self) -> bool {
        while self.receive().await {}
        true
    }

    async fn receive(&mut self) -> bool {
        let message = loop {
            match within(self.socket.next()).await {
                Some(Ok(Message::Text(text))) => break text,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return false,
            }
        };
        let frame: Value = serde_json::from_str(&message).unwrap();
        match frame["id"].as_i64() {
            Some(id) => {
                let answer =
                    if frame["error"].is_null() { Ok(&frame["result"]) } else { Err(&frame["error"]) };
                self.answers.insert(id, answer.cloned().map_err(Value::clone));
            }
            None => self.notified(frame["method"].as_str().unwrap(), &frame["params"]),
        }
        true
    }

    fn notified(&mut self, method: &str, params: &Value) {
        let process = self.processes.entry(params["processId"].as_str().unwrap().to_owned()).or_default();
        let seq = params["seq"].as_u64().unwrap();
        // A resumed session starts in the middle.
        assert!(process.last_seq == 0 || seq == process.last_seq + 1, "{seq} after {}", process.last_seq);
        assert!(!process.closed, "{method} after process/closed");
        process.last_seq = seq;
        match method {
            "process/output" => {
                process.output.extend(Chunk::from_base64(params["chunk"].as_str().unwrap()).unwrap().0);
            }
            "process/exited" => {
                process.exit_code = params["exitCode"].as_i64();
                process.limit = params["legionLimit"].as_str().map(str::to_owned);
            }
            "process/closed" => process.closed = true,
            other => panic!("unexpected {other}"),
        }
    }
}
