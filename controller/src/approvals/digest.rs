//! What an answer is bound to: the exact call and the rule that asked.

use ring::digest::{Context, SHA256};
use serde_json::Value;

use crate::audit::chain::hex;
use crate::policy::{Action, Decision, What};

/// SHA-256 over everything that makes a call this call. Each item is preceded by its length, so that no two calls read
/// alike. `frame` is the call itself: an action has no content.
pub fn of(persona: &str, action: &Action, decision: &Decision, frame: &str) -> String {
    let mut context = Context::new(&SHA256);
    let mut put = |item: &[u8]| {
        context.update(&(item.len() as u64).to_be_bytes());
        context.update(item);
    };
    put(persona.as_bytes());
    put(decision.rule().unwrap_or_default().as_bytes());
    put(action.method.as_bytes());
    match &action.what {
        What::Command(command) => {
            put(b"command");
            put(command.alias.as_deref().unwrap_or_default().as_bytes());
            put(&command.argv.len().to_be_bytes());
            command.argv.iter().for_each(|word| put(word.as_bytes()));
            let names = command.cwd.iter().flat_map(|cwd| &cwd.absolute);
            names.for_each(|path| put(path.as_os_str().as_encoded_bytes()));
            command.env.iter().for_each(|name| put(name.as_bytes()));
        }
        What::Files(touches) => {
            put(b"files");
            for touch in touches {
                put(touch.path.as_os_str().as_encoded_bytes());
                put(&[touch.op as u8, u8::from(touch.tree)]);
                // A link that leads elsewhere makes it another call.
                let names = touch.names.iter().flat_map(|names| &names.absolute);
                names.for_each(|path| put(path.as_os_str().as_encoded_bytes()));
            }
            put(params(frame).as_bytes());
        }
        What::Http(http) => {
            put(b"http");
            put(http.method.as_bytes());
            put(http.url.as_bytes());
            put(&[u8::from(http.follows)]);
            put(params(frame).as_bytes());
        }
        What::Other => {
            put(b"other");
            put(params(frame).as_bytes());
        }
    }
    hex(context.finish().as_ref())
}

/// The parameters of a call, without the names that a client gives to each of its calls anew.
fn params(frame: &str) -> String {
    const NAMES: [&str; 3] = ["requestId", "writeId", "handleId"];
    // The gate has parsed it before; what cannot be parsed is only like itself.
    let Ok(mut frame) = serde_json::from_str::<Value>(frame) else { return frame.to_owned() };
    let mut params = frame["params"].take();
    if let Some(params) = params.as_object_mut() {
        params.retain(|name, _| !NAMES.contains(&name.as_str()));
    }
    params.to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::policy::action::{Http, Places, Sight};
    use crate::policy::{Because, Verdict};

    fn digest(argv: &[&str], cwd: &str, env: &[&str], rule: &str) -> String {
        let places = Places::default();
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let what =
            Sight { places: &places, look: None }.command(owned(argv), None, Path::new(cwd), owned(env));
        let because = Because::Rule(rule.to_owned());
        let decision = Decision { verdict: Verdict::Ask, because, message: None, part: None };
        of("default", &Action { method: "process/start", what }, &decision, "{}")
    }

    #[test]
    fn what_a_call_carries_is_part_of_it() {
        let decision =
            Decision { verdict: Verdict::Ask, because: Because::Rule("r".into()), message: None, part: None };
        let http = What::Http(Http::new("POST", "https://example.com/", false));
        for (method, what) in [("process/write", What::Other), ("http/request", http)] {
            let action = Action { method, what };
            let digest = |frame: &str| of("default", &action, &decision, frame);
            let first = digest(r#"{"id":1,"params":{"processId":"7","chunk":"YQ==","writeId":"1"}}"#);
            let again = digest(r#"{"id":2,"params":{"chunk":"YQ==","processId":"7","writeId":"2"}}"#);
            assert_eq!(first, again, "{method}");
            for other in [r#"{"processId":"7","chunk":"Yg=="}"#, r#"{"processId":"8","chunk":"YQ=="}"#] {
                assert_ne!(first, digest(&format!(r#"{{"id":1,"params":{other}}}"#)), "{method} {other}");
            }
        }
    }

    #[test]
    fn a_file_is_its_content_and_where_its_links_lead() {
        use crate::policy::action::{Op, Touch};
        let decision =
            Decision { verdict: Verdict::Ask, because: Because::Rule("r".into()), message: None, part: None };
        let digest = |leads: &str, frame: &str| {
            let names = ["/w/a", leads].map(|path| Places::default().names(Path::new(path))).to_vec();
            let touch = Touch { op: Op::Write, path: "/w/a".into(), names, lost: false, tree: false };
            let action = Action { method: "fs/writeFile", what: What::Files(vec![touch]) };
            of("default", &action, &decision, frame)
        };
        let first = digest("/w/x", r#"{"id":1,"params":{"path":"file:///w/a","dataBase64":"YQ=="}}"#);
        assert_eq!(first, digest("/w/x", r#"{"id":2,"params":{"dataBase64":"YQ==","path":"file:///w/a"}}"#));
        assert_ne!(first, digest("/w/x", r#"{"id":1,"params":{"path":"file:///w/a","dataBase64":"Yg=="}}"#));
        assert_ne!(first, digest("/w/y", r#"{"id":1,"params":{"path":"file:///w/a","dataBase64":"YQ=="}}"#));
    }

    #[test]
    fn a_changed_byte_is_another_call() {
        let first = digest(&["git", "push"], "/w", &["A"], "r");
        assert_eq!(first, digest(&["git", "push"], "/w", &["A"], "r"));
        for other in [
            digest(&["git", "push "], "/w", &["A"], "r"),
            digest(&["gitpush"], "/w", &["A"], "r"),
            digest(&["git", "push", ""], "/w", &["A"], "r"),
            digest(&["git", "push"], "/w2", &["A"], "r"),
            digest(&["git", "push"], "/w", &["A", "B"], "r"),
            digest(&["git", "push"], "/w", &["A"], "s"),
        ] {
            assert_ne!(first, other);
        }
    }
}
