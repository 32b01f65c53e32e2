//! Records in the Open Cybersecurity Schema Framework, for systems that collect such. Pure.
//!
//! What has no place there is kept whole in `unmapped`.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::query::{command_line, host_of};

/// Version of the schema.
const VERSION: &str = "1.5.0";

const FILE_ACTIVITY: u64 = 1001;
const PROCESS_ACTIVITY: u64 = 1007;
const AUTHENTICATION: u64 = 3002;
const HTTP_ACTIVITY: u64 = 4002;
const APPLICATION_LIFECYCLE: u64 = 6002;
const API_ACTIVITY: u64 = 6003;
const OTHER: u64 = 99;

/// One record as an event of the schema; `hash` names it.
pub fn event(record: &Value, hash: &str) -> Value {
    let (class, activity) = class(record);
    let failed = record["decision"] == "deny"
        || record["outcome"]["ok"] == false
        || record["event"] == "handshakeRefused"
        || record["outcome"]["exitCode"].as_i64().is_some_and(|code| code != 0);
    let time = record["time"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let mut event = json!({
        "class_uid": class,
        "category_uid": class / 1000,
        "activity_id": activity,
        "type_uid": class * 100 + activity,
        "time": time.map_or(0, Timestamp::as_millisecond),
        "severity_id": severity(record),
        "status_id": if failed { 2 } else { 1 },
        "metadata": {
            "version": VERSION,
            "profiles": ["security_control"],
            "product": { "name": "Legion", "vendor_name": "Legion", "version": env!("CARGO_PKG_VERSION") },
            "uid": hash,
            "sequence": record["seq"],
            "event_code": record["event"],
            "log_name": "audit",
        },
        "device": { "type_id": 0 },
        "actor": actor(record),
        "unmapped": record,
    });
    if let (Value::Object(event), Value::Object(details)) = (&mut event, details(record, class)) {
        event.extend(details);
    }
    event
}

fn class(record: &Value) -> (u64, u64) {
    let method = record["method"].as_str().unwrap_or_default();
    match (record["event"].as_str().unwrap_or_default(), method) {
        ("call", "process/start") => (PROCESS_ACTIVITY, 1),
        ("outcome", "process/start") => (PROCESS_ACTIVITY, 2),
        ("call" | "outcome", "fs/createDirectory") => (FILE_ACTIVITY, 1),
        ("call" | "outcome", "fs/writeFile" | "fs/writeBlock") => (FILE_ACTIVITY, 3),
        ("call" | "outcome", "fs/remove") => (FILE_ACTIVITY, 4),
        ("call" | "outcome", "fs/open") => (FILE_ACTIVITY, 14),
        ("call" | "outcome", "fs/copy") => (FILE_ACTIVITY, OTHER),
        ("call" | "outcome", method) if method.starts_with("fs/") => (FILE_ACTIVITY, 2),
        ("call" | "outcome", "http/request") => (HTTP_ACTIVITY, http_activity(record)),
        ("sessionStarted" | "connectionOpened" | "handshakeRefused", _) => (AUTHENTICATION, 1),
        ("sessionEnded" | "connectionClosed", _) => (AUTHENTICATION, 2),
        ("controllerStarted" | "sandboxStarted", _) => (APPLICATION_LIFECYCLE, 3),
        ("controllerStopped" | "sandboxEnded", _) => (APPLICATION_LIFECYCLE, 4),
        _ => (API_ACTIVITY, OTHER),
    }
}

fn http_activity(record: &Value) -> u64 {
    let method = record["object"]["url"].as_str().and_then(|url| url.split(' ').next());
    let known = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE"];
    known.iter().position(|name| Some(*name) == method).map_or(OTHER, |index| index as u64 + 1)
}

/// Informational, medium for what was refused, high for what should not be.
fn severity(record: &Value) -> u64 {
    match record["event"].as_str().unwrap_or_default() {
        "violation" | "gap" | "unconfirmed" | "headLost" => 4,
        "handshakeRefused" | "recordsLost" | "clockJumped" => 3,
        _ if record["decision"] == "deny" => 3,
        _ => 1,
    }
}

fn actor(record: &Value) -> Value {
    let mut actor = Map::new();
    if let Some(client) = record["actor"]["client"].as_str() {
        actor.insert("app_name".to_owned(), client.into());
    }
    if let Some(session) = record["session"].as_str() {
        actor.insert("session".to_owned(), json!({ "uid": session }));
    }
    if let Some(uid) = record["actor"]["uid"].as_u64() {
        actor.insert("user".to_owned(), json!({ "uid": uid.to_string(), "type_id": 0 }));
    }
    actor.into()
}

fn details(record: &Value, class: u64) -> Value {
    let object = &record["object"];
    let mut details = match class {
        PROCESS_ACTIVITY => json!({
            "process": {
                "cmd_line": command_line(object),
                "name": object["argv"][0],
                "uid": object["processId"],
                "working_directory": object["cwd"],
            },
        }),
        FILE_ACTIVITY => {
            let path = object["path"].as_str();
            let name = path.and_then(|path| path.rsplit('/').next());
            json!({ "file": { "path": path, "name": name.unwrap_or_default(), "type_id": 0 } })
        }
        HTTP_ACTIVITY => {
            let (method, url) =
                object["url"].as_str().and_then(|url| url.split_once(' ')).unwrap_or_default();
            let host = host_of(url);
            json!({
                "http_request": { "http_method": method, "url": { "url_string": url, "hostname": host } },
                "dst_endpoint": { "hostname": host },
            })
        }
        AUTHENTICATION => json!({ "user": { "uid": record["session"], "type_id": 0 } }),
        APPLICATION_LIFECYCLE => json!({ "app": { "name": "Legion", "type_id": 0 } }),
        _ => json!({ "api": { "operation": record["method"].as_str().or(record["event"].as_str()) } }),
    };
    if let Some(code) = record["outcome"]["exitCode"].as_i64() {
        details["exit_code"] = code.into();
    }
    if let Some(milliseconds) = record["outcome"]["durationMs"].as_u64() {
        details["duration"] = milliseconds.into();
    }
    match record["decision"].as_str() {
        Some("allow") => details["action_id"] = 1.into(),
        Some("deny") => details["action_id"] = 2.into(),
        _ => {}
    }
    if let Some(message) = record["reason"].as_str().or(record["outcome"]["message"].as_str()) {
        details["message"] = message.into();
    }
    details
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denied_command_is_a_denied_launch() {
        let record = json!({
            "seq": 7, "time": "2026-11-29T10:00:00.5Z", "event": "call", "session": "abcdefgh",
            "method": "process/start", "decision": "deny", "reason": "no",
            "object": { "argv": ["git", "push"], "cwd": "/w" }, "actor": { "door": "tcp", "client": "codex" },
        });
        let event = event(&record, "ab");
        assert_eq!((&event["class_uid"], &event["type_uid"]), (&json!(1007), &json!(100_701)));
        assert_eq!((&event["action_id"], &event["status_id"]), (&json!(2), &json!(2)));
        assert_eq!(event["process"]["cmd_line"], "git push");
        assert_eq!(event["time"], 1_795_946_400_500_i64);
        assert_eq!((&event["metadata"]["uid"], &event["unmapped"]["seq"]), (&json!("ab"), &json!(7)));
        assert_eq!(event["actor"]["session"]["uid"], "abcdefgh");
    }

    #[test]
    fn an_exit_and_a_request_have_their_classes() {
        let ended =
            json!({ "seq": 8, "event": "outcome", "method": "process/start", "outcome": { "exitCode": 3 } });
        let ended = event(&ended, "");
        assert_eq!(
            (&ended["type_uid"], &ended["exit_code"], &ended["status_id"]),
            (&json!(100_702), &json!(3), &json!(2))
        );
        let asked = json!({ "event": "call", "method": "http/request", "object": { "url": "GET https://h.example/x" } });
        let asked = event(&asked, "");
        assert_eq!(
            (&asked["type_uid"], &asked["dst_endpoint"]["hostname"]),
            (&json!(400_203), &json!("h.example"))
        );
    }
}
