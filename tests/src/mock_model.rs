//! A model that says what the test's script says: the Responses API and the Chat Completions API on loopback, as a
//! stream of events. What it says is made of [`crate::model_items`] or of [`crate::chat_model`].
//!
//! Invariant: every request is recorded; a request that the script does not expect is refused and makes
//! [`MockModel::finish`] fail, and so does a step that was never asked for.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::chat_model;
use crate::http1::{HttpRequest, read_request, respond};

type Answer = Pin<Box<dyn Future<Output = Vec<Value>> + Send>>;
type Step = Box<dyn FnOnce(ModelRequest) -> Answer + Send>;

/// What the model will say, one step a request.
#[derive(Default)]
pub struct Script {
    steps: VecDeque<Step>,
}

impl Script {
    /// An empty script.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next answer is these items.
    #[must_use]
    pub fn items(self, items: Vec<Value>) -> Self {
        self.answer(|_| async move { items })
    }

    /// The next answer is this one item.
    #[must_use]
    pub fn item(self, item: Value) -> Self {
        self.items(vec![item])
    }

    /// The next answer is computed from the request it answers, and may wait for something first.
    #[must_use]
    pub fn answer<F, A>(mut self, step: F) -> Self
    where
        F: FnOnce(ModelRequest) -> A + Send + 'static,
        A: Future<Output = Vec<Value>> + Send + 'static,
    {
        self.steps.push_back(Box::new(|request| Box::pin(step(request))));
        self
    }
}

/// One request to the model.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The JSON body.
    pub body: Value,
}

impl ModelRequest {
    /// The output that the model gets for one of its calls. Panics when it is missing: then the client has
    /// not run the tool.
    pub fn output(&self, call_id: &str) -> &Value {
        self.find_output(call_id).unwrap_or_else(|| panic!("no output for {call_id} in {:#}", self.body))
    }

    /// As [`Self::output`], as one text.
    pub fn output_text(&self, call_id: &str) -> String {
        match self.output(call_id) {
            Value::String(text) => text.clone(),
            Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
            other => panic!("unexpected shape of a tool's output: {other}"),
        }
    }

    fn find_output(&self, call_id: &str) -> Option<&Value> {
        if self.body.get("messages").is_some() {
            return chat_model::output(&self.body, call_id);
        }
        let is_output = |item: &&Value| {
            item["call_id"] == call_id && item["type"].as_str().is_some_and(|kind| kind.ends_with("_output"))
        };
        self.body["input"].as_array()?.iter().find(is_output).map(|item| &item["output"])
    }

    /// Everything in the request, for "the model never saw this".
    pub fn text(&self) -> String {
        self.body.to_string()
    }
}

#[derive(Default)]
struct State {
    steps: Mutex<VecDeque<Step>>,
    requests: Mutex<Vec<ModelRequest>>,
    unexpected: Mutex<Vec<String>>,
}

/// The running mock. It ends when dropped.
pub struct MockModel {
    address: SocketAddr,
    state: Arc<State>,
    server: JoinHandle<()>,
}

impl MockModel {
    /// Listens on a free loopback port.
    pub async fn start(script: Script) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State { steps: Mutex::new(script.steps), ..State::default() });
        let server = tokio::spawn(accept(listener, Arc::clone(&state)));
        Self { address, state, server }
    }

    /// `base_url` for the client's configuration.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.state.requests.lock().expect("no holder panics").clone()
    }

    /// All requests, once the script has been played to its end and nothing else was asked.
    pub fn finish(self) -> Vec<ModelRequest> {
        let left = self.state.steps.lock().expect("no holder panics").len();
        let unexpected = self.state.unexpected.lock().expect("no holder panics").clone();
        let requests = self.requests();
        assert!(unexpected.is_empty(), "requests the script does not expect: {unexpected:?}");
        assert_eq!(left, 0, "steps never asked for; last request: {:#?}", requests.last());
        requests
    }
}

impl Drop for MockModel {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    // One client per test: the number of connections is bounded by the steps of its script.
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, Arc::clone(&state)));
    }
}

async fn serve(mut stream: TcpStream, state: Arc<State>) {
    let Ok(request) = read_request(&mut stream).await else { return };
    let path = request.target.split('?').next().unwrap_or_default();
    // A client that has gone away shows in the test's own assertions, so a failing write needs no handling.
    let _ = match (request.method.as_str(), path) {
        ("POST", "/v1/responses") => serve_model(&mut stream, &request, &state, event_stream).await,
        ("POST", "/v1/chat/completions") => {
            serve_model(&mut stream, &request, &state, chat_model::event_stream).await
        }
        ("GET", "/v1/models") => {
            respond(&mut stream, "200 OK", "application/json", br#"{"object":"list","data":[]}"#).await
        }
        _ => refuse(&mut stream, &state, format!("{} {}", request.method, request.target)).await,
    };
}

async fn serve_model(
    stream: &mut TcpStream,
    http: &HttpRequest,
    state: &State,
    event_stream: fn(usize, &[Value]) -> String,
) -> std::io::Result<()> {
    let Ok(body) = serde_json::from_slice(&http.body) else {
        return refuse(stream, state, "a body that is not JSON".to_owned()).await;
    };
    let request = ModelRequest { headers: http.headers.clone(), body };
    let number = {
        let mut requests = state.requests.lock().expect("no holder panics");
        requests.push(request.clone());
        requests.len()
    };
    if chat_model::asks_for_title(&request.body) {
        let events = event_stream(number, &[chat_model::say("A title")]);
        return respond(stream, "200 OK", "text/event-stream", events.as_bytes()).await;
    }
    let step = state.steps.lock().expect("no holder panics").pop_front();
    match step {
        Some(step) => {
            let events = event_stream(number, &step(request).await);
            respond(stream, "200 OK", "text/event-stream", events.as_bytes()).await
        }
        None => refuse(stream, state, format!("request {number} after the end of the script")).await,
    }
}

/// 400 is the answer that Codex does not try again after.
async fn refuse(stream: &mut TcpStream, state: &State, what: String) -> std::io::Result<()> {
    state.unexpected.lock().expect("no holder panics").push(what);
    respond(stream, "400 Bad Request", "application/json", br#"{"error":{"message":"not in the script"}}"#)
        .await
}

fn event_stream(number: usize, items: &[Value]) -> String {
    let id = format!("resp_{number}");
    let usage = json!({ "input_tokens": 1, "input_tokens_details": null, "output_tokens": 1,
        "output_tokens_details": null, "total_tokens": 2 });
    let created = json!({ "type": "response.created", "response": { "id": id } });
    let completed = json!({ "type": "response.completed", "response": { "id": id, "usage": usage } });
    let done = items.iter().map(|item| json!({ "type": "response.output_item.done", "item": item }));
    let events = std::iter::once(created).chain(done).chain(std::iter::once(completed));
    let mut stream = String::new();
    for event in events {
        let kind = event["type"].as_str().unwrap_or_default();
        let _ = write!(stream, "event: {kind}\ndata: {event}\n\n"); // writing into a String cannot fail
    }
    stream
}
