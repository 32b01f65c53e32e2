//! A client's lines and what it is told when the exec-server dies.

use serde_json::Value;

use super::*;

fn ledger(up: &[Value], down: &[Value]) -> Ledger {
    let mut ledger = Ledger::default();
    for line in up {
        ledger.up(&line.to_string());
    }
    for text in down {
        ledger.down(&text.to_string());
    }
    ledger
}

fn told(ledger: &mut Ledger) -> Vec<Value> {
    ledger.lost().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn start(id: i64, process: &str) -> Value {
    json!({ "id": id, "method": "process/start", "params": { "processId": process, "argv": ["true"] } })
}

fn note(method: &str, process: &str, seq: u64) -> Value {
    json!({ "method": method, "params": { "processId": process, "seq": seq, "exitCode": 0, "sandboxDenied": false } })
}

#[test]
fn calls_without_an_answer_get_an_error_and_only_once() {
    let texts =
        [r#"{"id":1,"method":"fs/readFile","params":{}}"#, r#"{"id":2,"method":"fs/remove","params":{}}"#];
    let mut ledger = Ledger::default();
    for text in texts {
        ledger.up(text);
    }
    ledger.up(&json!({ "id": "three", "method": "no/such", "params": {} }).to_string());
    ledger.down(r#"{"id":1,"result":{}}"#);
    let lines = told(&mut ledger);
    assert_eq!(lines.iter().map(|line| &line["id"]).collect::<Vec<_>>(), [&json!(2), &json!("three")]);
    assert!(
        lines.iter().all(|line| line["error"] == json!({ "code": -32603, "message": LOST_CALL })),
        "{lines:?}"
    );
    assert_eq!(told(&mut ledger), [] as [Value; 0]);
}

#[test]
fn a_running_process_is_closed_where_its_numbers_stopped() {
    let output = OutputFrameWriter::new("p", Stream::Stdout).frame(7, b"x");
    let mut ledger = ledger(&[start(1, "p")], &[json!({ "id": 1, "result": { "processId": "p" } })]);
    ledger.down(&output);
    let lines = told(&mut ledger);
    let steps: Vec<_> =
        lines.iter().map(|line| (line["method"].as_str(), line["params"]["seq"].as_u64())).collect();
    assert_eq!(
        steps,
        [
            (Some("process/output"), Some(8)),
            (Some("process/exited"), Some(9)),
            (Some("process/closed"), Some(10))
        ]
    );
    assert_eq!(lines[1]["params"]["exitCode"], KILLED);
    assert_eq!(told(&mut ledger), [] as [Value; 0]);
}

#[test]
fn an_exit_that_was_told_is_not_told_again_nor_is_an_end() {
    let answers = [json!({ "id": 1, "result": {} }), json!({ "id": 2, "result": {} })];
    let ends =
        [note("process/exited", "a", 1), note("process/exited", "b", 1), note("process/closed", "b", 2)];
    let mut ledger = ledger(&[start(1, "a"), start(2, "b")], &[&answers[..], &ends].concat());
    let lines = told(&mut ledger);
    assert!(lines.iter().all(|line| line["params"]["processId"] == "a"), "{lines:?}");
    let methods: Vec<_> = lines.iter().filter_map(|line| line["method"].as_str()).collect();
    assert_eq!(methods, ["process/output", "process/closed"]);
}

#[test]
fn a_process_that_did_not_start_has_no_end() {
    let refused = json!({ "error": { "code": -32600, "message": "no" }, "id": 1 });
    assert_eq!(told(&mut ledger(&[start(1, "p")], &[refused])), [] as [Value; 0]);
}

#[test]
fn bodies_and_watches_end_too() {
    let up = [
        json!({ "id": 1, "method": "http/request", "params": { "method": "GET", "url": "http://localhost/", "requestId": "r", "streamResponse": true } }),
        json!({ "id": 2, "method": "http/request", "params": { "method": "GET", "url": "http://localhost/", "requestId": "s", "streamResponse": true } }),
        json!({ "id": 3, "method": "fs/watchMissing", "params": { "watchId": 5, "missing": ["file:///a"], "present": null } }),
    ];
    let delta = |request: &str, seq: u64, done: bool| {
        json!({ "method": "http/request/bodyDelta",
            "params": { "requestId": request, "seq": seq, "deltaBase64": "", "done": done, "error": null } })
    };
    let answers = [1, 2, 3].map(|id| json!({ "id": id, "result": {} }));
    let mut ledger = ledger(&up, &[&answers[..], &[delta("r", 4, false), delta("s", 1, true)]].concat());
    let lines = told(&mut ledger);
    let body = &lines[0]["params"];
    assert_eq!((&body["requestId"], &body["seq"], &body["done"]), (&json!("r"), &json!(5), &json!(true)));
    assert_eq!(lines[1..], [json!({ "method": "fs/missingChanged", "params": { "watchId": 5 } })]);
}

#[test]
fn the_session_is_opened_again_as_the_client_opened_it_but_never_resumed() {
    let initialize = json!({ "id": 1, "method": "initialize",
        "params": { "clientName": "c", "resumeSessionId": "0b7ff0f0-0000-4000-8000-000000000000" } });
    let mut ledger = ledger(&[initialize], &[]);
    assert!(!ledger.is_open() && ledger.handshake().is_none());
    ledger.down(&json!({ "id": 1, "result": { "sessionId": "x" } }).to_string());
    let (request, after) = ledger.handshake().unwrap();
    let request: Value = serde_json::from_str(&request).unwrap();
    assert_eq!(request["params"], json!({ "clientName": "c", "resumeSessionId": null }));
    assert_eq!(after, None);
    ledger.up(r#"{"method":"initialized","params":{}}"#);
    assert_eq!(ledger.handshake().unwrap().1.as_deref(), Some(r#"{"method":"initialized","params":{}}"#));
    assert_eq!(handshake_answer(r#"{"id":"legion-connect","result":{}}"#), Some(Ok(())));
    assert_eq!(handshake_answer(r#"{"id":1,"result":{}}"#), None);
}
