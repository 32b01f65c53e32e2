//! The lines of README.md that start a client: each is carried out with the real client and a model that plays a script,
//! here or in a test that is named here.

use legion_tests::child::{Child, Finished};
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::scratch::Scratch;
use legion_tests::{chat_model, model_items, opencode};
use serde_json::json;

use super::{commands, readme, repository};
use crate::{codex_command, opencode_command, opencode_inside};

/// Lines that take more than a few words after them: the file and the test that carry them out.
const ELSEWHERE: [(&str, &str, &str); 6] = [
    ("setup codex", "setup.rs", "codex_starts_legion_by_itself"),
    ("setup codex --url", "setup.rs", "codex_uses_the_url_of_the_running_controller"),
    ("setup opencode", "setup_opencode.rs", "opencode_has_the_tools_of_legion"),
    (
        "run --persona opencode -- opencode serve --port 4096",
        "opencode_inside.rs",
        "it_serves_from_inside_to_an_opencode_outside",
    ),
    (
        "run --persona codex-client -- codex",
        "sandbox/setups.rs",
        "codex_in_one_sandbox_and_its_commands_in_another",
    ),
    ("mcp", "mcp/opencode.rs", "every_tool_works_in_the_session_and_no_other_is_offered"),
];

/// The lines that start or set up a client.
fn lines() -> Vec<Vec<String>> {
    let clients = ["codex", "opencode", "mcp"];
    let mut lines = commands(&readme());
    lines.retain(|words| words.iter().any(|word| clients.contains(&word.as_str())));
    lines.sort();
    lines.dedup();
    lines
}

/// What Codex is asked after the words of a line, and what its model does.
async fn with_codex(words: &[&str]) -> (Scratch, Finished) {
    let item = model_items::exec("c1", "echo inside > made");
    let model = MockModel::start(Script::new().item(item).item(model_items::say("done"))).await;
    let scratch = codex_command::user_of(&model);
    let args = [&words[1..], &["exec", "--skip-git-repo-check", "Do what the script says."]].concat();
    let finished =
        Child::spawn("legion-controller codex", codex_command::command(&scratch, &args)).finish().await;
    drop(model);
    (scratch, finished)
}

/// The same for OpenCode.
async fn with_opencode(user_of: fn(&MockModel) -> Scratch, words: &[&str]) -> (Scratch, Finished) {
    let run = json!({ "command": "echo inside > made", "description": "a step" });
    let script = Script::new().item(chat_model::call("c1", "bash", &run)).item(chat_model::say("done"));
    let model = MockModel::start(script).await;
    let scratch = user_of(&model);
    let finished = opencode::run(&scratch, &[words, &["run", "Do what the script says."]].concat()).await;
    drop(model);
    (scratch, finished)
}

#[tokio::test]
async fn every_client_is_started_as_the_lines_say() {
    let mut elsewhere = ELSEWHERE.to_vec();
    let mut here = 0;
    for line in lines() {
        let words: Vec<_> = line.iter().map(String::as_str).collect();
        let (scratch, finished) = match words[..] {
            ["codex"] | ["codex", "--boxed"] => with_codex(&words).await,
            ["opencode"] => with_opencode(opencode_command::user_of, &words).await,
            ["run", "--persona", "opencode", "--", "opencode"] => {
                with_opencode(opencode_inside::project, &words).await
            }
            _ => {
                let known = elsewhere.iter().position(|(known, ..)| *known == words.join(" "));
                let known = known.unwrap_or_else(|| panic!("nothing carries out {words:?}"));
                let (_, file, test) = elsewhere.swap_remove(known);
                let path = repository().join("tests/tests/legion").join(file);
                let source = std::fs::read_to_string(path).unwrap();
                assert!(source.contains(&format!("async fn {test}(")), "no {test} in {file}");
                continue;
            }
        };
        finished.assert_success();
        assert_eq!(scratch.read("workspace/made").as_deref(), Some("inside\n"), "{words:?}: {finished:#?}");
        here += 1;
    }
    assert_eq!((here, &elsewhere[..]), (4, &[][..]), "README.md has changed");
}
