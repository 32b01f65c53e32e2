//! `glob` and `grep` through MCP, in a repository and outside of one.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use legion_tests::child::Child;
use legion_tests::legion;
use legion_tests::mcp_client::McpClient;
use legion_tests::scratch::Scratch;
use serde_json::json;

/// A tree, later files changed later.
fn tree(scratch: &Scratch) {
    let files = [
        ("src/a.rs", "fn alpha() {}\nlet x1 = 1;\n"),
        ("src/deep/b.rs", "fn beta() {}\n"),
        ("src/c.py", "def alpha(): pass\n"),
        ("-dash.rs", "fn dash() {}\n"),
        ("with space.rs", "fn space() {}\n"),
        ("caf\u{e9}.txt", "caf\u{e9} alpha\n"),
        (".hidden.rs", "fn hidden() {}\n"),
        ("ignored.log", "alpha\n"),
        ("out/built.rs", "fn alpha() {}\n"),
        (".gitignore", "*.log\nout/\n"),
    ];
    for (age, (name, content)) in files.iter().rev().enumerate() {
        let path = scratch.write(format!("workspace/{name}"), content);
        let changed = SystemTime::now() - Duration::from_secs(10 * age as u64 + 10);
        fs::File::options().append(true).open(path).unwrap().set_modified(changed).unwrap();
    }
    scratch.write("workspace/latin.txt", b"caf\xe9 alpha\n");
    scratch.write("workspace/binary", b"alpha\0alpha\n");
}

async fn repository(scratch: &Scratch) {
    tree(scratch);
    let mut git = scratch.command("git");
    git.args(["init", "-q"]).current_dir(scratch.workspace());
    Child::spawn("git init", git).finish().await.assert_success();
}

/// The paths that a glob gives, relative to the workspace.
async fn glob(client: &mut McpClient, scratch: &Scratch, pattern: &str) -> Vec<String> {
    let answer = client.call("glob", json!({ "pattern": pattern })).await;
    let root = format!("{}/", scratch.workspace().display());
    let output = answer.output();
    if output == "No files match" {
        return Vec::new();
    }
    output.lines().map(|line| line.strip_prefix(&root).unwrap_or(line).to_owned()).collect()
}

#[tokio::test]
async fn files_are_found_by_name_the_last_changed_first() {
    let scratch = Scratch::new();
    repository(&scratch).await;
    let mut client = McpClient::start(&scratch, &[]).await;
    let rust = [".hidden.rs", "with space.rs", "-dash.rs", "src/deep/b.rs", "src/a.rs"];
    assert_eq!(glob(&mut client, &scratch, "*.rs").await, rust);
    assert_eq!(glob(&mut client, &scratch, "**/*.rs").await, rust);
    assert_eq!(glob(&mut client, &scratch, "src/*.{rs,py}").await, ["src/c.py", "src/a.rs"]);
    assert_eq!(glob(&mut client, &scratch, "src/**/b*").await, ["src/deep/b.rs"]);
    assert_eq!(glob(&mut client, &scratch, "caf?.txt").await, [""; 0]);
    assert_eq!(glob(&mut client, &scratch, "caf\u{e9}.txt").await, ["caf\u{e9}.txt"]);
    assert_eq!(glob(&mut client, &scratch, "*.log").await, [""; 0]);
    assert_eq!(glob(&mut client, &scratch, "config").await, [""; 0], "nothing of .git");
    // In what is ignored, everything is found.
    let out = client.call("glob", json!({ "pattern": "*.rs", "path": "out" })).await;
    assert!(out.output().ends_with("/out/built.rs"), "{out:?}");
    let file = client.call("glob", json!({ "pattern": "*", "path": "src/a.rs" })).await;
    assert!(file.error().contains("is a file"), "{file:?}");
    client.leave().await.assert_success();
}

#[tokio::test]
async fn lines_are_found_by_content() {
    let scratch = Scratch::new();
    repository(&scratch).await;
    let mut client = McpClient::start(&scratch, &[]).await;
    let at = |name: &str| scratch.workspace().join(name).display().to_string();
    let found = client.call("grep", json!({ "pattern": "fn (alpha|beta)\\(\\)|x\\d" })).await;
    let expected = format!(
        "Found 3 matches\n\n{}:\n  Line 1: fn beta() {{}}\n\n{}:\n  Line 1: fn alpha() {{}}\n  Line 2: let x1 = 1;",
        at("src/deep/b.rs"),
        at("src/a.rs")
    );
    assert_eq!(found.output(), expected);
    let names = |output: &str| {
        let lines = output.lines().filter(|line| line.ends_with(':'));
        let mut names: Vec<_> = lines.map(|line| line.trim_end_matches(':').to_owned()).collect();
        names.sort();
        names
    };
    let alpha = client.call("grep", json!({ "pattern": "alpha" })).await;
    assert_eq!(names(alpha.output()), [at("caf\u{e9}.txt"), at("latin.txt"), at("src/a.rs"), at("src/c.py")]);
    let included = client.call("grep", json!({ "pattern": "alpha", "include": "*.{py,txt}" })).await;
    assert_eq!(names(included.output()), [at("caf\u{e9}.txt"), at("latin.txt"), at("src/c.py")]);
    let below = client.call("grep", json!({ "pattern": "alpha", "path": "src", "include": "*.rs" })).await;
    assert_eq!(names(below.output()), [at("src/a.rs")]);
    let one = client.call("grep", json!({ "pattern": "al.ha", "path": "ignored.log" })).await;
    assert_eq!(names(one.output()), [at("ignored.log")]);
    let accented = client.call("grep", json!({ "pattern": "caf[\u{e9}]" })).await;
    assert_eq!(names(accented.output()), [at("caf\u{e9}.txt")]);
    let dash = client.call("grep", json!({ "pattern": "-?dash\\(", "path": "-dash.rs" })).await;
    assert_eq!(names(dash.output()), [at("-dash.rs")]);
    assert_eq!(client.call("grep", json!({ "pattern": "nothing here" })).await.output(), "No matches");
    let wrong = client.call("grep", json!({ "pattern": "(" })).await;
    assert!(wrong.error().contains("missing closing parenthesis"), "{wrong:?}");
    client.leave().await.assert_success();
}

/// A repository's configuration changes what git prints, not what the tools make of it.
#[tokio::test]
async fn the_configuration_of_a_repository_makes_no_difference() {
    let scratch = Scratch::new();
    repository(&scratch).await;
    let config = scratch.workspace().join(".git/config");
    let mut text = fs::read_to_string(&config).unwrap();
    text += "[grep]\n\tcolumn = true\n\tfullName = true\n\tlineNumber = false\n\tpatternType = fixed\n";
    text += "[submodule]\n\trecurse = true\n[color]\n\tui = always\n[core]\n\tquotePath = true\n";
    fs::write(&config, text).unwrap();
    let mut client = McpClient::start(&scratch, &[]).await;
    for path in ["src", "src/a.rs"] {
        let found = client.call("grep", json!({ "pattern": "x\\d", "path": path })).await;
        let file = scratch.workspace().join("src/a.rs");
        let expected = format!("Found 1 matches\n\n{}:\n  Line 2: let x1 = 1;", file.display());
        assert_eq!(found.output(), expected, "{path}");
    }
    assert_eq!(glob(&mut client, &scratch, "caf*").await, ["caf\u{e9}.txt"]);
    client.leave().await.assert_success();
}

#[tokio::test]
async fn a_directory_that_is_no_repository_is_searched_too() {
    let scratch = Scratch::new();
    tree(&scratch);
    let mut client = McpClient::start(&scratch, &[]).await;
    assert_eq!(glob(&mut client, &scratch, "*.log").await, ["ignored.log"]);
    assert_eq!(glob(&mut client, &scratch, "src/**").await, ["src/c.py", "src/deep/b.rs", "src/a.rs"]);
    let found = client.call("grep", json!({ "pattern": "built|hidden" })).await;
    assert!(found.output().contains("/.hidden.rs:\n  Line 1: fn hidden() {}"), "{found:?}");
    client.leave().await.assert_success();
}

#[tokio::test]
async fn many_files_and_long_lines_are_bounded() {
    const FILES: usize = 2500;
    let scratch = Scratch::new();
    for n in 0..FILES {
        scratch.write(format!("workspace/d{}/f{n}.txt", n % 50), "needle\nneedle\n");
    }
    scratch.write("workspace/wide", format!("{}needle{}\n", "x".repeat(100_000), "y".repeat(100_000)));
    let mut client = McpClient::start(&scratch, &[]).await;
    let files = client.call("glob", json!({ "pattern": "*.txt" })).await;
    assert_eq!(files.output().lines().count(), 101, "{files:?}");
    assert!(files.output().contains("(the 100 last changed; there are more"), "{files:?}");
    assert_eq!(files.fact("truncated"), &json!(true));
    let lines = client.call("grep", json!({ "pattern": "^needle" })).await;
    assert!(lines.output().starts_with("Found more than 100 matches"), "{lines:?}");
    let wide = client.call("grep", json!({ "pattern": "needle", "path": "wide" })).await;
    assert!(
        wide.output().contains("more characters in this line)") && wide.output().len() < 4000,
        "{wide:?}"
    );
    client.leave().await.assert_success();
}

/// What is ignored is found, too, then; everything else is as ever.
#[tokio::test]
async fn without_git_everything_is_searched() {
    let scratch = Scratch::new();
    repository(&scratch).await;
    scratch.make_directory("bin");
    for program in ["find", "grep", "stat"] {
        symlink(format!("/usr/bin/{program}"), scratch.root().join("bin").join(program)).unwrap();
    }
    let toml = format!(
        "[persona.default]\nmounts = [{{ mode = \"ro\", from = \"{}\", to = \"/tools\" }}]\n[persona.default.env]\nset = {{ PATH = \"/tools\" }}\n",
        scratch.root().join("bin").display()
    );
    legion::configure(&scratch, &toml);
    let mut client = McpClient::start(&scratch, &[]).await;
    let git = client.call("bash", json!({ "command": "git --version" })).await;
    assert!(git.output().ends_with("[exit code 127]"), "{git:?}");
    assert_eq!(glob(&mut client, &scratch, "*.log").await, ["ignored.log"]);
    assert_eq!(glob(&mut client, &scratch, "src/*.{rs,py}").await, ["src/c.py", "src/a.rs"]);
    assert_eq!(glob(&mut client, &scratch, "config").await, [""; 0], "nothing of .git");
    let at = |name: &str| scratch.workspace().join(name).display().to_string();
    let found =
        client.call("grep", json!({ "pattern": "fn (alpha|beta)\\(\\)|x\\d", "include": "*.rs" })).await;
    for (name, lines) in [
        ("src/deep/b.rs", "  Line 1: fn beta() {}"),
        ("src/a.rs", "  Line 1: fn alpha() {}\n  Line 2: let x1 = 1;"),
        ("out/built.rs", "  Line 1: fn alpha() {}"),
    ] {
        assert!(found.output().contains(&format!("\n{}:\n{lines}", at(name))), "{name}: {found:?}");
    }
    assert!(found.output().starts_with("Found 4 matches\n"), "{found:?}");
    let one = client.call("grep", json!({ "pattern": "alpha", "path": "src/a.rs" })).await;
    assert_eq!(one.output(), format!("Found 1 matches\n\n{}:\n  Line 1: fn alpha() {{}}", at("src/a.rs")));
    assert_eq!(client.call("grep", json!({ "pattern": "nothing here" })).await.output(), "No matches");
    let wrong = client.call("grep", json!({ "pattern": "(" })).await;
    assert!(wrong.error().contains("missing closing parenthesis"), "{wrong:?}");
    client.leave().await.assert_success();
}
