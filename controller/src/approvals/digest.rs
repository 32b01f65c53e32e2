//! What an answer is bound to: the exact call and the rule that asked.

use ring::digest::{Context, SHA256};

use crate::audit::chain::hex;
use crate::policy::{Action, Decision, What};

/// SHA-256 over everything that makes a call this call. Each item is preceded by its length, so that no two calls read
/// alike.
pub fn of(persona: &str, action: &Action, decision: &Decision) -> String {
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
            command.cwd.absolute.iter().for_each(|path| put(path.as_os_str().as_encoded_bytes()));
            command.env.iter().for_each(|name| put(name.as_bytes()));
        }
        What::Files(touches) => {
            put(b"files");
            for touch in touches {
                put(touch.path.as_os_str().as_encoded_bytes());
                put(&[touch.op as u8, u8::from(touch.tree)]);
            }
        }
        What::Http(http) => {
            put(b"http");
            put(http.method.as_bytes());
            put(http.url.as_bytes());
            put(&[u8::from(http.follows)]);
        }
        What::Other => put(b"other"),
    }
    hex(context.finish().as_ref())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::policy::action::{Places, Sight};
    use crate::policy::{Because, Verdict};

    fn digest(argv: &[&str], cwd: &str, env: &[&str], rule: &str) -> String {
        let places = Places::default();
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let what =
            Sight { places: &places, look: None }.command(owned(argv), None, Path::new(cwd), owned(env));
        let because = Because::Rule(rule.to_owned());
        let decision = Decision { verdict: Verdict::Ask, because, message: None, part: None };
        of("default", &Action { method: "process/start", what }, &decision)
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
