//! What README.md promises: its commands exist, its configuration is accepted and does what it says.
//!
//! Invariant: everything here is read from the file itself, so it cannot go stale.

mod clients;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use legion_tests::certificate::Certificates;
use legion_tests::legion::{self, Controller};
use legion_tests::mcp_client::McpClient;
use legion_tests::scratch::Scratch;
use serde_json::{Value, json};

/// Exit code for a command line that makes no sense (design.md, after sysexits).
const USAGE: i32 = 64;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn readme() -> String {
    fs::read_to_string(repository().join("README.md")).unwrap()
}

/// Code in the text: language and content of each block. A span within a line has no language.
fn code(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (number, part) in text.split("```").enumerate() {
        if number % 2 == 1 {
            let (language, block) = part.split_once('\n').unwrap();
            found.push((language.to_owned(), block.to_owned()));
        } else {
            found.extend(part.split('`').skip(1).step_by(2).map(|span| (String::new(), span.to_owned())));
        }
    }
    found
}

/// The arguments of every `legion-controller …` and what `scripts/start` passes on, comments removed.
fn commands(text: &str) -> Vec<Vec<String>> {
    let lines: Vec<String> = code(text)
        .iter()
        .filter(|(language, _)| language.is_empty())
        .flat_map(|(_, block)| {
            block.lines().map(|line| line.split(" #").next().unwrap_or_default().trim().to_owned())
        })
        .collect();
    let direct = lines.iter().filter_map(|line| line.strip_prefix("legion-controller "));
    let scripts = lines
        .iter()
        .filter_map(|line| line.split_once("scripts/start"))
        .map(|(_, rest)| format!("start{rest}"));
    direct.map(str::to_owned).chain(scripts).map(|line| words(&line)).collect()
}

/// Words as a shell splits them; these lines have single quotes at most.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (number, part) in line.split('\'').enumerate() {
        let pieces: Vec<_> = if number % 2 == 1 { vec![part] } else { part.split_whitespace().collect() };
        let breaks = number % 2 == 0 && part.starts_with(' ');
        for (index, piece) in pieces.into_iter().enumerate() {
            match words.last_mut() {
                Some(last) if index == 0 && !breaks => last.push_str(piece),
                _ => words.push(piece.to_owned()),
            }
        }
        if number % 2 == 0 && part.ends_with(' ') {
            words.push(String::new());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The same command line, asking for help before the part that is the user's own command.
fn asking_for_help(words: &[String]) -> Vec<&str> {
    let takes_command =
        matches!(words.first().map(String::as_str), Some("codex" | "exec" | "opencode" | "run"));
    let first_plain =
        || words.iter().skip(1).position(|word| !word.starts_with('-')).map(|position| position + 1);
    let end =
        words.iter().position(|word| word == "--").or_else(|| takes_command.then(first_plain).flatten());
    let end = end.unwrap_or(words.len());
    words[..end].iter().map(String::as_str).chain(["--help"]).collect()
}

/// All blocks of configuration.
fn configurations() -> Vec<String> {
    let code = code(&readme()).into_iter().filter(|(language, _)| language == "toml");
    code.map(|(_, toml)| toml).collect()
}

/// The example configuration: the first block.
fn configuration() -> String {
    configurations().swap_remove(0)
}

/// What the example refers to, relative to where the controller starts, which is the home directory.
fn with_configuration(toml: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("home/.env", "OPENAI_API_KEY=named\nOTHER=unnamed\n");
    scratch.write("home/roles/reviewer.md", "Review.\n");
    legion::configure(&scratch, toml);
    scratch
}

#[tokio::test]
async fn every_command_exists() {
    let scratch = Scratch::new();
    let commands = commands(&readme());
    for needed in ["start", "exec", "setup", "token", "audit", "session"] {
        assert!(commands.iter().any(|words| words[0] == needed), "no {needed} among {commands:?}");
    }
    for words in &commands {
        let finished = legion::run(&scratch, &asking_for_help(words)).await;
        assert_eq!(finished.code(), 0, "{words:?}: {finished:#?}");
        assert!(finished.stdout.contains("Usage: legion-controller"), "{words:?}: {finished:#?}");
    }
    // Asking for help does not hide a mistake.
    for wrong in ["start --lisen x", "token isue", "exec --ttty bash", "audit tail -z"] {
        let finished = legion::run(&scratch, &asking_for_help(&words(wrong))).await;
        assert_eq!(finished.code(), USAGE, "{wrong}: {finished:#?}");
    }
}

#[tokio::test]
async fn the_example_rules_do_what_they_say() {
    let blocks = configurations();
    let scratch = with_configuration(&blocks[1..].join("\n"));
    let workspace = scratch.workspace().display().to_string();
    let checked = legion::run(&scratch, &["policy", "check", "--workspace", &workspace]).await;
    assert_eq!((checked.code(), checked.stdout.as_str()), (0, "1 tests, 0 failed\n"), "{checked:#?}");
}

#[test]
fn every_script_exists() {
    let text = readme();
    let names: Vec<_> = text
        .split(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c)))
        .filter_map(|word| word.split_once("scripts/").map(|(_, name)| name))
        .collect();
    assert!(names.contains(&"start") && names.contains(&"test"), "{names:?}");
    for name in names {
        let file = repository().join("scripts").join(name);
        let mode = fs::metadata(&file).unwrap_or_else(|error| panic!("{name}: {error}")).permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{name} cannot be run");
    }
}

#[tokio::test]
async fn the_example_configuration_does_what_it_says() {
    let scratch = with_configuration(&configuration());
    let workspace = scratch.workspace().display().to_string();
    let script = "cat /roles/reviewer.md; echo $NODE_ENV $LANG $OPENAI_API_KEY $OTHER; (: > /roles/new) 2>/dev/null || echo kept";
    let finished =
        legion::run(&scratch, &["exec", "--workspace", &workspace, "--", "sh", "-c", script]).await;
    finished.assert_success();
    assert_eq!(finished.stdout, "Review.\nproduction C.UTF-8 named\nkept\n", "{finished:#?}");
    Controller::start(&scratch, &[]).await.stop().await.assert_success();
}

#[tokio::test]
async fn what_is_commented_out_in_it_is_accepted_too() {
    let toml =
        configuration().replacen("# tls", "tls", 1).replacen("ws://127.0.0.1:0", "wss://127.0.0.1:0", 1);
    let scratch = with_configuration(&toml);
    let certificates = Certificates::generate();
    scratch.write("home/cert.pem", &certificates.certificate);
    scratch.write("home/key.pem", &certificates.key);
    let controller = Controller::start(&scratch, &[]).await;
    assert!(controller.ready.url.starts_with("wss://"), "{:?}", controller.ready);
    controller.stop().await.assert_success();
}

#[tokio::test]
async fn the_example_for_clients_of_mcp_works() {
    let found: Vec<_> = code(&readme()).into_iter().filter(|(language, _)| language == "json").collect();
    let [(_, json)] = &found[..] else { panic!("{} blocks of JSON", found.len()) };
    let example: Value = serde_json::from_str(json).unwrap();
    let server = &example["mcpServers"]["legion"];
    let args: Vec<_> = server["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    let scratch = Scratch::new();
    let mut client = McpClient::configured(&scratch, server["command"].as_str().unwrap(), &args);
    let arguments = json!({ "command": "pwd; touch made" });
    let expected = format!("{}\n[exit code 0]", scratch.workspace().display());
    assert_eq!(client.call("bash", arguments).await.output(), expected);
    client.leave().await.assert_success();
    assert_eq!(scratch.read("workspace/made").as_deref(), Some(""));
}

#[test]
fn words_are_split_as_a_shell_does() {
    assert_eq!(words("start  --listen 'ws://h:0?a b' x"), ["start", "--listen", "ws://h:0?a b", "x"]);
    assert_eq!(words("--a='b c'd e"), ["--a=b cd", "e"]);
}
