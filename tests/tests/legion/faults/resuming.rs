//! A client that survives a lost connection as a careful one does: it resumes the session, reads what it has missed, and
//! sends again what was not answered (SPEC 11.7).
//!
//! Invariant: the output of a process is put together by sequence number, each exactly once.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use legion_tests::cut_proxy::{CutProxy, Fate};
use legion_tests::random::Random;
use legion_tests::ws_client::{Endpoint, Upgrade, WsClient};
use serde_json::{Value, json};

/// Bytes that pass before a connection is cut: few in one case of three, so that handshakes are cut; many in another; and
/// few after the handshake in the third, so that what was done is not answered.
const FEW_BYTES: usize = 3_000;
/// See [`FEW_BYTES`].
const MANY_BYTES: usize = 20_000;
/// See [`FEW_BYTES`].
const ANSWER_BYTES: usize = 400;

/// What the server sends in a handshake besides the result of `initialize`.
const HANDSHAKE_BYTES: usize = 160;

/// Longest wait for news of a process in one request.
const WAIT_MS: u64 = 1_000;

/// What is known of a process.
#[derive(Debug, Default)]
struct Known {
    /// Everything up to here has been seen.
    seq: u64,
    output: Vec<u8>,
    code: Option<i64>,
    closed: bool,
}

pub(super) struct Resuming {
    proxy: CutProxy,
    upgrade: Upgrade,
    random: Random,
    client: Option<WsClient>,
    session: Option<String>,
    processes: BTreeMap<String, Known>,
    /// Connections that were lost.
    pub(super) lost: usize,
    /// Starts that were sent again after they had been done.
    pub(super) repeated: usize,
    /// Bytes the server sends before it answers the first call.
    handshake: usize,
    /// From now on connections last.
    calm: bool,
}

impl Resuming {
    pub(super) fn new(proxy: CutProxy, token: &str, seed: u64) -> Self {
        let upgrade = Upgrade::new(Endpoint::of_url(&proxy.url())).token(token);
        let random = Random::new(seed);
        Self {
            proxy,
            upgrade,
            random,
            client: None,
            session: None,
            processes: BTreeMap::new(),
            lost: 0,
            repeated: 0,
            handshake: 0,
            calm: false,
        }
    }

    /// No more connections are cut. The one that is open still meets its fate.
    pub(super) fn calm_down(&mut self) {
        self.calm = true;
    }

    /// An open connection of the session.
    async fn client(&mut self) -> &mut WsClient {
        while self.client.is_none() {
            if !self.calm {
                let fate = self.fate();
                self.proxy.end_next(fate);
            }
            self.client = self.connected().await;
            self.lost += usize::from(self.client.is_none());
        }
        self.client.as_mut().expect("it is open")
    }

    fn fate(&mut self) -> Fate {
        let reset = self.random.once_in(2);
        let mut below = |most| self.random.below(most);
        let (up, down) = match below(3) {
            0 => (below(FEW_BYTES), below(FEW_BYTES)),
            1 => (below(MANY_BYTES), below(MANY_BYTES)),
            _ => (usize::MAX, self.handshake + below(ANSWER_BYTES)),
        };
        Fate { up, down, reset }
    }

    async fn connected(&mut self) -> Option<WsClient> {
        let mut client = self.upgrade.attempt().await.ok()?;
        let params = json!({ "clientName": "resuming", "resumeSessionId": self.session });
        let opened = client.call_or_lose("initialize", params).await?.expect("the session is there");
        self.handshake = HANDSHAKE_BYTES + opened.to_string().len();
        let session = opened["sessionId"].as_str().expect("it has an id").to_owned();
        assert_eq!(self.session.get_or_insert_with(|| session.clone()), &session);
        // Whether this one arrives is seen at the next call.
        client.notify_or_lose("initialized", json!({})).await;
        Some(client)
    }

    /// Sends a request until it is answered.
    pub(super) async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        loop {
            if let Some(answer) = self.client().await.call_or_lose(method, params.clone()).await {
                self.take_notifications();
                return answer;
            }
            self.client = None;
            self.lost += 1;
        }
    }

    /// Starts a process; one that was started by a request whose answer was lost is as good.
    pub(super) async fn start(&mut self, params: Value) {
        let name = params["processId"].as_str().expect("it has a name").to_owned();
        self.processes.insert(name.clone(), Known::default());
        if let Err(error) = self.call("process/start", params).await {
            assert_eq!(error["message"], format!("process {name} already exists"));
            self.repeated += 1;
        }
    }

    /// Waits until `reached` holds of the output of a process; gives the output.
    pub(super) async fn until(&mut self, name: &str, reached: impl Fn(&[u8], bool) -> bool) -> Vec<u8> {
        loop {
            let known = &self.processes[name];
            if reached(&known.output, known.closed) {
                return known.output.clone();
            }
            let params =
                json!({ "processId": name, "afterSeq": known.seq, "maxBytes": null, "waitMs": WAIT_MS });
            let read = self.call("process/read", params).await.expect("the process is there");
            self.take_read(name, &read);
        }
    }

    /// Waits for the end of a process; gives its exit code and its output.
    pub(super) async fn end_of(&mut self, name: &str) -> (Option<i64>, String) {
        let output = self.until(name, |_, closed| closed).await;
        (self.processes[name].code, String::from_utf8(output).expect("text"))
    }

    fn take_read(&mut self, name: &str, read: &Value) {
        for chunk in read["chunks"].as_array().expect("chunks") {
            self.take_output(name, chunk);
        }
        let known = self.processes.get_mut(name).expect("it was started");
        known.code = known.code.or(read["exitCode"].as_i64());
        known.closed |= read["closed"] == true;
    }

    fn take_notifications(&mut self) {
        let Some(client) = &mut self.client else { return };
        for mut message in client.take_notifications() {
            let params = message["params"].take();
            let name = params["processId"].as_str().expect("all are about processes").to_owned();
            match message["method"].as_str() {
                Some("process/output") => self.take_output(&name, &params),
                // What came before may be missing still: `process/read` tells the end in its turn.
                Some("process/exited" | "process/closed") => {}
                other => panic!("{other:?} was not asked for"),
            }
        }
    }

    /// Takes a chunk that is next. What was seen already is the same again; what is ahead will be read.
    fn take_output(&mut self, name: &str, chunk: &Value) {
        let known = self.processes.get_mut(name).expect("it was started");
        if chunk["seq"].as_u64() == Some(known.seq + 1) {
            known.seq += 1;
            known.output.extend(STANDARD.decode(chunk["chunk"].as_str().expect("base64")).expect("base64"));
        }
    }
}
