//! A call out of its record, for the policy to decide on once more.
//!
//! Invariant: either the action is the one that was decided on then, or there is none: what was redacted or cut is not guessed.

use std::path::Path;

use legion_protocol::Method;
use serde_json::Value;

use super::call::copied;
use crate::policy::action::{Http, Op, Sight};
use crate::policy::{Action, What};

/// What stands in a record for something that was taken out of it.
const GAPS: [&str; 4] = ["<redacted:", "…[", " bytes cut, sha256 ", "\u{fffd}"];

/// The action of a `call` record; `None` when the record does not hold all of it.
pub fn action(record: &Value, sight: Sight<'_>) -> Option<Action> {
    let method = Method::from_name(record["method"].as_str()?)?;
    let object = record.get("object").filter(|object| is_whole(object))?;
    Some(Action { method: method.name(), what: what(method, object, sight)? })
}

fn is_whole(value: &Value) -> bool {
    match value {
        Value::String(text) => !GAPS.iter().any(|gap| text.contains(gap)),
        Value::Array(items) => items.iter().all(is_whole),
        Value::Object(map) => map.values().all(is_whole),
        _ => true,
    }
}

fn what(method: Method, object: &Value, sight: Sight<'_>) -> Option<What> {
    let path = |name: &str| object[name].as_str().map(Path::new);
    let flag = |name: &str| object[name].as_bool().unwrap_or(false);
    let touch = |op: Op, tree: bool| {
        let others = object["others"].as_array().into_iter().flatten();
        let all = path("path").into_iter().chain(others.filter_map(|other| other.as_str().map(Path::new)));
        Some(What::Files(all.map(|path| sight.touch(op, path, tree)).collect()))
    };
    match method {
        Method::ProcessStart => {
            let words = |name: &str| {
                let items = object[name].as_array()?.iter();
                items.map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
            };
            Some(sight.command(words("argv")?, object["arg0"].as_str(), path("cwd")?, words("env")?))
        }
        Method::ProcessWrite
        | Method::ProcessSignal
        | Method::ProcessTerminate
        | Method::LegionCloseStdin
        | Method::FsWriteBlock => Some(What::Other),
        Method::HttpRequest => {
            let (verb, url) = object["url"].as_str()?.split_once(' ')?;
            Some(What::Http(Http::new(verb, url, object["follows"].as_bool()?)))
        }
        Method::FsWriteFile | Method::FsCreateDirectory => touch(Op::Write, false),
        Method::FsRemove => touch(Op::Remove, flag("recursive")),
        Method::FsCopy => {
            Some(What::Files(copied(sight, path("path")?, path("destination")?, flag("recursive"))))
        }
        Method::FsOpen => touch(if flag("write") { Op::Write } else { Op::Read }, false),
        Method::FsWalk | Method::CapabilitiesDiscover | Method::CapabilityRootsDiscover => {
            touch(Op::Read, true)
        }
        _ => touch(Op::Read, false),
    }
}
