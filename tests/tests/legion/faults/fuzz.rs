//! Requests of every method with parameters that are almost right, and frames that are almost frames.
//!
//! Invariant: each request is answered, once, with a result or an error object; whatever was sent, the server goes on.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;

use legion_tests::child::Child;
use legion_tests::legion::Controller;
use legion_tests::random::Random;
use legion_tests::scratch::Scratch;
use legion_tests::settings::settings;
use legion_tests::ws_client::{Endpoint, Upgrade};
use serde_json::{Map, Value, json};
use tokio_tungstenite::tungstenite::Message;

/// Connections unless `LEGION_FUZZ_ROUNDS` asks for more, and requests of each.
const ROUNDS: u64 = 12;
/// See [`ROUNDS`].
const REQUESTS: usize = 150;

const METHODS: [&str; 32] = [
    "initialize",
    "process/start",
    "process/read",
    "process/write",
    "process/signal",
    "process/terminate",
    "legion/closeStdin",
    "legion/resizeTerminal",
    "fs/readFile",
    "fs/writeFile",
    "fs/createDirectory",
    "fs/getMetadata",
    "fs/canonicalize",
    "fs/readDirectory",
    "fs/walk",
    "fs/remove",
    "fs/copy",
    "fs/open",
    "fs/readBlock",
    "fs/writeBlock",
    "fs/close",
    "fs/watchMissing",
    "environment/info",
    "environment/status",
    "environmentConfig/read",
    "capabilities/discoverV2",
    "capabilityRoots/discoverV1",
    "http/request",
    "shell/snapshot",
    "process/start",
    "fs/",
    "",
];

/// Members of parameters, each with values that fit somewhere.
fn members(root: &str) -> Vec<(&'static str, Vec<Value>)> {
    let paths: Vec<Value> =
        ["", "/a", "/a/b", "/link", "/fifo", "/../outside", "/%00", "/%FF", "?", "/a/../a//."]
            .iter()
            .map(|path| json!(format!("file://{root}{path}")))
            .chain([json!("/proc/self/mem"), json!("relative"), json!("file://host/x")])
            .collect();
    let one = |values: Value| values.as_array().expect("a list").clone();
    let sandbox = json!({ "permissions": { "type": "managed", "network": "restricted",
        "file_system": { "type": "restricted", "entries": [
            { "path": { "type": "special", "value": { "kind": "root" } }, "access": "read" },
            { "path": { "type": "path", "path": format!("file://{root}/a") }, "access": "write" },
            { "path": { "type": "glob_pattern", "pattern": "**/*.{a,b}[" }, "access": "deny" }] } },
        "cwd": format!("file://{root}"), "workspaceRoots": [format!("file://{root}")],
        "windowsSandboxLevel": "disabled" });
    vec![
        ("processId", one(json!(["p", "q", "", "p".repeat(2000)]))),
        (
            "argv",
            one(json!([
                ["/bin/true"],
                ["/bin/cat"],
                ["/bin/sh", "-c", "echo out; echo err >&2; exit 3"],
                [],
                [""],
                ["/none"]
            ])),
        ),
        ("cwd", paths.clone()),
        ("path", paths.clone()),
        ("sourcePath", paths.clone()),
        ("destinationPath", paths.clone()),
        ("env", one(json!([{}, { "A": "b" }, { "": "" }, { "A=": "\u{0}" }, []]))),
        (
            "envPolicy",
            one(
                json!([{ "inherit": "all", "ignoreDefaultExcludes": true, "exclude": ["*"], "set": {}, "includeOnly": [] }, null, { "inherit": "core" }]),
            ),
        ),
        ("tty", one(json!([true, false, null]))),
        ("pipeStdin", one(json!([true, false, 1]))),
        ("sandbox", vec![Value::Null, sandbox, json!({}), json!({ "permissions": { "type": "disabled" } })]),
        ("chunk", one(json!(["", "eA==", "eA", "*", "x".repeat(4096)]))),
        ("dataBase64", one(json!(["", "eA==", "eA", "A".repeat(1 << 17)]))),
        ("writeId", one(json!(["1", "2", "", null, "w".repeat(300)]))),
        ("afterSeq", one(json!([0, 1, -1, u64::MAX, null]))),
        ("maxBytes", one(json!([0, 1, 1 << 20, null]))),
        ("waitMs", one(json!([0, 1, 20, null]))),
        ("signal", one(json!(["interrupt", "kill"]))),
        ("rows", one(json!([1, 0, 65_535, 65_536]))),
        ("columns", one(json!([1, 0, 80]))),
        ("recursive", one(json!([true, false]))),
        ("force", one(json!([true, false]))),
        ("followSymlinks", one(json!([true, false, null]))),
        ("handleId", one(json!(["h", "i", "", "h".repeat(40)]))),
        ("mode", one(json!(["read", "replace", "append"]))),
        ("offset", one(json!([0, 1, u64::MAX, i64::MAX]))),
        ("len", one(json!([1, 0, 1 << 20, 1 << 21]))),
        (
            "options",
            one(
                json!([{}, { "maxDepth": 3, "maxDirectories": 5, "maxEntries": 9, "followDirectorySymlinks": true }, { "maxDepth": 1_u64 << 40 }]),
            ),
        ),
        ("watchId", one(json!([1, 2, -1]))),
        ("missing", vec![json!(paths), json!([]), json!([paths[1]])]),
        ("present", paths.clone()),
        ("roots", vec![json!([]), json!([{ "id": "r", "path": paths[0] }])]),
        ("configPaths", one(json!([[], [["mcp_servers"]]]))),
        ("requirementsPaths", one(json!([[], [["mcp_servers"]]]))),
        ("clientName", one(json!(["x"]))),
        ("resumeSessionId", one(json!([null, "", "x"]))),
        ("method", one(json!(["GET", "POST", " "]))),
        ("url", one(json!(["http://127.0.0.1:1/", "file:///etc/passwd", "http://[::1", ""]))),
        ("headers", one(json!([[], [{ "name": "a", "value": "b" }], [{ "name": "\n", "value": "\r\n" }]]))),
        ("requestId", one(json!(["r", ""]))),
        ("timeoutMs", one(json!([1, 0, 50]))),
        ("streamResponse", one(json!([true, false]))),
    ]
}

/// What each kind of method needs, so that many requests get far.
fn needed(method: &str) -> &'static [&'static str] {
    match method {
        "process/start" => &["processId", "argv", "cwd", "env", "tty"],
        "process/read" | "process/terminate" | "legion/closeStdin" => &["processId"],
        "process/write" => &["processId", "chunk", "writeId"],
        "process/signal" => &["processId", "signal"],
        "legion/resizeTerminal" => &["processId", "rows", "columns"],
        "fs/writeFile" => &["path", "dataBase64"],
        "fs/copy" => &["sourcePath", "destinationPath", "recursive"],
        "fs/walk" => &["path", "options"],
        "fs/open" => &["path", "handleId"],
        "fs/readBlock" => &["handleId", "offset", "len"],
        "fs/writeBlock" => &["handleId", "offset", "chunk"],
        "fs/close" => &["handleId"],
        "fs/watchMissing" => &["watchId", "missing", "present"],
        "http/request" => &["method", "url", "headers", "requestId", "timeoutMs"],
        "environmentConfig/read" => &["cwd", "configPaths", "requirementsPaths"],
        "capabilityRoots/discoverV1" => &["roots"],
        name if name.starts_with("fs/") => &["path"],
        _ => &[],
    }
}

struct Fuzz {
    random: Random,
    members: Vec<(&'static str, Vec<Value>)>,
}

impl Fuzz {
    fn value(&mut self, name: &str) -> Value {
        if self.random.once_in(24) {
            return self
                .random
                .pick(&[json!(null), json!(-1), json!(1.5), json!([[]]), json!({ "a": {} })])
                .clone();
        }
        let values = &self.members.iter().find(|(known, _)| *known == name).expect("it is in the list").1;
        self.random.pick(values).clone()
    }

    fn params(&mut self, method: &str) -> Value {
        let mut params = Map::new();
        for name in needed(method) {
            if !self.random.once_in(24) {
                params.insert((*name).to_owned(), self.value(name));
            }
        }
        for _ in 0..self.random.below(3) {
            let name = self.members[self.random.below(self.members.len())].0;
            params.insert(name.to_owned(), self.value(name));
        }
        match self.random.below(40) {
            0 => Value::Null,
            1 => Value::Array(params.into_iter().map(|(_, value)| value).collect()),
            _ => Value::Object(params),
        }
    }

    /// A frame that is none: a good one with a few bytes changed. It has no `method` any more that could be carried out.
    fn garbage(&mut self, frame: &str) -> String {
        let mut text: Vec<char> = frame.replace("method", "m").chars().collect();
        for _ in 0..=self.random.below(4) {
            if text.len() < 2 {
                break;
            }
            let at = self.random.below(text.len());
            match self.random.below(3) {
                0 => drop(text.remove(at)),
                1 => text.insert(at, *self.random.pick(&['{', '}', '[', ']', '"', '\\', ',', ':', '0', 'é'])),
                _ => text.truncate(at.max(1)),
            }
        }
        text.into_iter().collect()
    }
}

/// One connection: many requests in flight, all of them answered.
async fn round(endpoint: &Endpoint, token: Option<&str>, root: &str, seed: u64) {
    let mut fuzz = Fuzz { random: Random::new(seed), members: members(root) };
    let mut upgrade = Upgrade::new(endpoint.clone());
    if let Some(token) = token {
        upgrade = upgrade.token(token);
    }
    let mut client = upgrade.connect().await.unwrap();
    client.initialize(None).await.unwrap();
    let (mut open, mut garbage) = (BTreeSet::new(), 0_usize);
    for number in 0..REQUESTS {
        let method = *fuzz.random.pick(&METHODS);
        let id = format!("fuzz-{number}");
        let frame = json!({ "id": id, "method": method, "params": fuzz.params(method) }).to_string();
        if fuzz.random.once_in(10) {
            let text = fuzz.garbage(&frame);
            client.send(Message::text(text)).await.unwrap();
            garbage += 1;
        } else {
            client.send(Message::text(frame)).await.unwrap();
            open.insert(id);
        }
    }
    while !(open.is_empty() && garbage == 0) {
        let message = client.notification().await;
        let message =
            message.unwrap_or_else(|| panic!("the connection ended, {open:?} are open, seed {seed}"));
        if message.get("method").is_some() {
            continue;
        }
        let is_answer = message.get("result").is_some() != message["error"]["code"].is_i64();
        assert!(is_answer, "{message}, seed {seed}");
        match message["id"].as_str() {
            Some(id) => assert!(open.remove(id), "answered twice, or never asked: {message}, seed {seed}"),
            None => garbage = garbage.checked_sub(1).unwrap_or_else(|| panic!("{message}, seed {seed}")),
        }
    }
    let status = client.call("environment/status", Value::Null).await;
    assert_eq!(status, Ok(json!({ "status": "ready" })), "seed {seed}");
}

/// Puts the workspace in order again.
fn furnish(scratch: &Scratch) {
    let workspace = scratch.workspace();
    if !workspace.is_dir() {
        // It may be a file by now.
        let _ = fs::remove_file(&workspace);
        scratch.make_directory(&workspace);
    }
    for name in ["a", "link", "fifo"] {
        let path = workspace.join(name);
        // Whatever it has become.
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
    scratch.write("workspace/a/b", "content");
    symlink("a/b", workspace.join("link")).unwrap();
    scratch.fifo("workspace/fifo");
}

#[tokio::test]
async fn the_whole_path_answers_everything() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let endpoint = Endpoint::of_url(&controller.ready.url);
    let root = scratch.workspace().display().to_string();
    for seed in 0..settings().fuzz_rounds.unwrap_or(ROUNDS) {
        furnish(&scratch);
        round(&endpoint, Some(&controller.token), &root, seed).await;
    }
    controller.stop().await.assert_success();
}

#[tokio::test]
async fn the_exec_server_answers_everything_by_itself() {
    let scratch = Scratch::new();
    let mut command = scratch.command(settings().legion_binary("legion-exec-server"));
    command.args(["--listen", "ws://127.0.0.1:0"]).current_dir(scratch.workspace());
    let mut server = Child::spawn("legion-exec-server", command);
    let endpoint = Endpoint::of_url(&server.first_line().await);
    let root = scratch.workspace().display().to_string();
    for seed in 0..settings().fuzz_rounds.unwrap_or(ROUNDS) {
        furnish(&scratch);
        round(&endpoint, None, &root, seed).await;
    }
    server.stop().await.assert_success();
}
