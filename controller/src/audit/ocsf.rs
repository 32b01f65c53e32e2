//! Records in the Open Cybersecurity Schema Framework, for systems that collect such. Pure.
//!
//! What has no place there is kept whole in `unmapped`.

use core::net::SocketAddr;

use jiff::Timestamp;
use serde_json::{Value, json};

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

/// One record as an event of the schema; `hash` names it, and `host` the machine whose log it is from.
pub fn event(record: &Value, hash: &str, host: &str) -> Value {
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
        "activity_name": (activity == OTHER).then(|| name(record)),
        "type_uid": class * 100 + activity,
        "time": time.map_or(0, Timestamp::as_millisecond),
        "severity_id": severity(record),
        "status_id": if failed { 2 } else { 1 },
        "metadata": {
            "version": VERSION,
            "profiles": ["host", "security_control"],
            "product": product(),
            "uid": hash,
            // One number leads from a request to its process, its file and their end.
            "correlation_uid": subject(record).to_string(),
            "sequence": record["seq"],
            "event_code": record["event"],
            "log_name": "audit",
        },
        "device": { "type_id": 0, "hostname": host },
        "actor": actor(record),
    });
    if let (Value::Object(event), Value::Object(details)) = (&mut event, details(record, class)) {
        event.extend(details);
    }
    drop_nulls(&mut event);
    event["unmapped"] = record.clone();
    event
}

/// The schema knows no null.
fn drop_nulls(value: &mut Value) {
    if let Value::Object(members) = value {
        members.retain(|_, member| !member.is_null());
        members.values_mut().for_each(drop_nulls);
    }
}

fn product() -> Value {
    json!({ "name": "Legion", "vendor_name": "Legion", "version": env!("CARGO_PKG_VERSION") })
}

/// Number of the record of the call that a record is of, or whose process or file it is about; else its own.
fn subject(record: &Value) -> u64 {
    let links = ["call", "process", "file", "asked", "seq"];
    links.iter().find_map(|name| record[*name].as_u64()).unwrap_or_default()
}

fn name(record: &Value) -> &str {
    record["method"].as_str().or(record["event"].as_str()).unwrap_or("unknown")
}

fn class(record: &Value) -> (u64, u64) {
    let method = record["method"].as_str().unwrap_or_default();
    match (record["event"].as_str().unwrap_or_default(), method) {
        ("call", "process/start") => (PROCESS_ACTIVITY, 1),
        // What was not started has not ended either.
        ("outcome", "process/start") if record["outcome"]["error"].is_i64() => (PROCESS_ACTIVITY, 1),
        ("outcome", "process/start") => (PROCESS_ACTIVITY, 2),
        ("call" | "outcome", "fs/createDirectory") => (FILE_ACTIVITY, 1),
        ("call" | "outcome", "fs/writeFile" | "fs/writeBlock") => (FILE_ACTIVITY, 3),
        ("call" | "outcome", "fs/remove") => (FILE_ACTIVITY, 4),
        ("call" | "outcome", "fs/getMetadata") => (FILE_ACTIVITY, 8),
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
    let uid = record["actor"]["uid"].as_u64();
    json!({
        // What nobody asked for is the controller's own.
        "app_name": record["actor"]["client"].as_str().unwrap_or("legion-controller"),
        "session": record["session"].as_str().map(|session| json!({ "uid": session })),
        "user": uid.map(|uid| json!({ "uid": uid.to_string(), "type_id": 0 })),
    })
}

/// Where a request came from.
fn source(record: &Value) -> Value {
    let address = record["actor"]["address"].as_str().and_then(|text| text.parse::<SocketAddr>().ok());
    match address {
        Some(address) => json!({ "ip": address.ip().to_string(), "port": address.port() }),
        None => json!({ "name": record["actor"]["door"].as_str().unwrap_or("controller") }),
    }
}

fn file(path: &Value) -> Value {
    let path = path.as_str();
    // It must have a name; of some calls none is known.
    let name = path.and_then(|path| path.rsplit('/').find(|name| !name.is_empty())).or(path);
    json!({ "path": path, "name": name.unwrap_or("unknown"), "type_id": 0 })
}

fn details(record: &Value, class: u64) -> Value {
    let object = &record["object"];
    let mut details = match class {
        PROCESS_ACTIVITY => json!({
            "process": {
                "cmd_line": command_line(object),
                "name": object["argv"][0],
                "uid": subject(record).to_string(),
                "working_directory": object["cwd"],
            },
        }),
        FILE_ACTIVITY => json!({
            "file": file(&object["path"]),
            "file_result": object["destination"].is_string().then(|| file(&object["destination"])),
        }),
        HTTP_ACTIVITY => {
            let (method, url) =
                object["url"].as_str().and_then(|url| url.split_once(' ')).unwrap_or_default();
            let host = host_of(url);
            json!({
                "http_request": { "http_method": method, "url": { "url_string": url, "hostname": host } },
                "dst_endpoint": { "hostname": host, "name": if host.is_none() { Some("unknown") } else { None } },
            })
        }
        AUTHENTICATION => json!({
            "user": { "uid": record["session"].as_str().unwrap_or("unknown"), "type_id": 0 },
            "service": { "name": "legion-controller" },
            "src_endpoint": source(record),
        }),
        APPLICATION_LIFECYCLE => json!({ "app": product() }),
        _ => json!({ "api": { "operation": name(record) }, "src_endpoint": source(record) }),
    };
    if class == PROCESS_ACTIVITY {
        details["exit_code"] = record["outcome"]["exitCode"].clone();
    }
    details["duration"] = record["outcome"]["durationMs"].clone();
    let action = match record["decision"].as_str() {
        Some("allow") => 1,
        Some("deny") => 2,
        _ => 0,
    };
    // Allowed, blocked: the numbers of the dispositions are the same.
    (details["action_id"], details["disposition_id"]) = (action.into(), action.into());
    details["message"] = [&record["reason"], &record["outcome"]["message"]]
        .into_iter()
        .find(|text| text.is_string())
        .cloned()
        .unwrap_or_default();
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
        let event = event(&record, "ab", "box");
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
        let ended = event(&ended, "", "box");
        assert_eq!(
            (&ended["type_uid"], &ended["exit_code"], &ended["status_id"]),
            (&json!(100_702), &json!(3), &json!(2))
        );
        let asked = json!({ "event": "call", "method": "http/request", "object": { "url": "GET https://h.example/x" } });
        let asked = event(&asked, "", "box");
        assert_eq!(
            (&asked["type_uid"], &asked["dst_endpoint"]["hostname"]),
            (&json!(400_203), &json!("h.example"))
        );
    }

    /// What the schema demands of a class, by the name of a member or of alternatives.
    fn demanded(class: u64) -> &'static [&'static [&'static str]] {
        match class {
            PROCESS_ACTIVITY => &[&["process.uid"]],
            FILE_ACTIVITY => &[&["file.name"], &["file.type_id"]],
            HTTP_ACTIVITY => &[&["http_request"], &["dst_endpoint.hostname", "dst_endpoint.name"]],
            AUTHENTICATION => &[&["user.uid"], &["service.name"], &["src_endpoint.ip", "src_endpoint.name"]],
            APPLICATION_LIFECYCLE => &[&["app.name"], &["app.vendor_name"]],
            _ => &[&["api.operation"], &["src_endpoint.ip", "src_endpoint.name"]],
        }
    }

    fn has_null(value: &Value) -> bool {
        match value {
            Value::Object(members) => members.values().any(has_null),
            Value::Array(items) => items.iter().any(has_null),
            other => other.is_null(),
        }
    }

    #[test]
    fn every_event_has_what_its_class_demands_whatever_its_record_lacks() {
        let kinds = [
            "call",
            "outcome",
            "violation",
            "gap",
            "checkpoint",
            "sessionStarted",
            "connectionClosed",
            "handshakeRefused",
            "sandboxStarted",
            "controllerStopped",
            "policyAdopted",
            "approval",
        ];
        let methods =
            ["process/start", "process/write", "fs/writeBlock", "fs/copy", "fs/open", "http/request", "x/y"];
        let objects = [
            json!({}),
            json!({ "path": "/w/a", "destination": "/w/b", "url": "GET https://h.example/x",
            "argv": ["a"], "cwd": "/w", "processId": "p" }),
            json!({ "url": "nonsense", "path": "/" }),
        ];
        let both = kinds.iter().flat_map(|kind| methods.iter().map(move |method| (kind, method)));
        let all = both.flat_map(|pair| objects.iter().map(move |object| (pair, object)));
        for ((kind, method), object) in all {
            let record = json!({ "seq": 9, "time": "2026-11-29T10:00:00Z", "event": kind, "method": method, "object": object,
                "call": 7, "actor": { "door": "tcp", "address": "[::1]:7" } });
            let mut event = event(&record, "ab", "box");
            assert_eq!(event["unmapped"].take(), record);
            event.as_object_mut().unwrap().remove("unmapped");
            assert!(!has_null(&event), "{event}");
            let common = [
                &["metadata.product.vendor_name"][..],
                &["metadata.version"],
                &["severity_id"],
                &["actor.app_name"],
                &["device.hostname"],
                &["device.type_id"],
            ];
            let class = event["class_uid"].as_u64().unwrap();
            for alternatives in common.iter().chain(demanded(class)) {
                let is_there = |name: &&str| event.pointer(&format!("/{}", name.replace('.', "/"))).is_some();
                assert!(alternatives.iter().any(is_there), "{alternatives:?}: {event}");
            }
            assert_eq!(event["activity_id"] == OTHER, event["activity_name"].is_string(), "{event}");
            assert_eq!(event["metadata"]["correlation_uid"], "7");
        }
    }
}
