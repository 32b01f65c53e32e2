//! `read`, `write` and `edit` through MCP, on files of every kind.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use legion_tests::mcp_client::{Answer, McpClient};
use legion_tests::scratch::Scratch;
use serde_json::json;

/// One pixel.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\x9cc\xf8\xff\xff?\0\x05\xfe\x02\xfe\xa7\x9a\xa0\xa0\0\0\0\0IEND\xaeB`\x82";

async fn read(client: &mut McpClient, path: &str) -> Answer {
    client.call("read", json!({ "filePath": path })).await
}

async fn edit(client: &mut McpClient, path: &str, old: &str, new: &str) -> Answer {
    client.call("edit", json!({ "filePath": path, "oldString": old, "newString": new })).await
}

fn bytes(scratch: &Scratch, path: &str) -> Vec<u8> {
    fs::read(scratch.workspace().join(path)).unwrap()
}

#[tokio::test]
async fn lines_are_numbered_and_bounded() {
    let scratch = Scratch::new();
    let file = scratch.write("workspace/f.txt", "one\ntwo\n");
    let many: Vec<_> = (1..=3000).map(|n| format!("line {n}\n")).collect();
    scratch.write("workspace/many", many.concat());
    scratch.write("workspace/wide", format!("{}\nend\n", "x".repeat(5000)));
    scratch.write("workspace/empty", "");
    let mut client = McpClient::start(&scratch, &[]).await;
    let expected = format!(
        "<path>{}</path>\n<type>file</type>\n<content>\n1: one\n2: two\n(the end: 2 lines)\n</content>",
        file.display()
    );
    assert_eq!(read(&mut client, "f.txt").await.output(), expected);
    assert_eq!(read(&mut client, file.to_str().unwrap()).await.output(), expected);
    let first = read(&mut client, "many").await;
    assert!(
        first.output().contains("\n2000: line 2000\n(lines 1 to 2000 of 3000; go on with offset=2001)"),
        "{first:?}"
    );
    let rest = client.call("read", json!({ "filePath": "many", "offset": 2999, "limit": 5 })).await;
    assert!(
        rest.output().contains("<content>\n2999: line 2999\n3000: line 3000\n(the end: 3000 lines)"),
        "{rest:?}"
    );
    let beyond = client.call("read", json!({ "filePath": "many", "offset": 4000 })).await;
    assert!(
        beyond.error().contains("there is no line 4000") && beyond.error().contains("3000 lines"),
        "{beyond:?}"
    );
    let wide = read(&mut client, "wide").await;
    assert!(wide.output().contains("... (3000 more characters in this line)\n2: end\n"), "{wide:?}");
    assert!(read(&mut client, "empty").await.output().contains("(the end: 0 lines)"));
    client.leave().await.assert_success();
}

#[tokio::test]
async fn a_big_file_is_read_as_far_as_asked() {
    /// More than fits into one message.
    const LINES: usize = 6_000_000;
    let scratch = Scratch::new();
    let path = scratch.write("workspace/big", "");
    let file = fs::File::options().append(true).open(&path).unwrap();
    let mut file = std::io::BufWriter::new(file);
    for n in 1..=LINES {
        std::io::Write::write_all(&mut file, format!("{n:015}\n").as_bytes()).unwrap();
    }
    drop(file);
    let mut client = McpClient::start(&scratch, &[]).await;
    let start = client.call("read", json!({ "filePath": "big", "limit": 2 })).await;
    assert!(
        start.output().contains("2: 000000000000002\n(lines 1 to 2; there are more: go on with offset=3)"),
        "{start:?}"
    );
    let end = client.call("read", json!({ "filePath": "big", "offset": LINES })).await;
    assert!(end.output().contains("6000000: 000000006000000\n(the end: 6000000 lines)"), "{end:?}");
    let all = client.call("read", json!({ "filePath": "big", "limit": LINES })).await;
    assert!(
        all.output().len() < 120_000 && all.output().contains("go on with offset="),
        "{}",
        all.output().len()
    );
    let change = edit(&mut client, "big", "000000000000002", "x").await;
    assert!(change.error().contains("change files of 16777216 at most"), "{change:?}");
    client.leave().await.assert_success();
}

#[tokio::test]
async fn what_is_no_text_file() {
    let scratch = Scratch::new();
    scratch.write("workspace/image.png", PNG);
    scratch.write("workspace/program", b"\x7fELF\x02\x01\x01\0\0\0");
    scratch.write("workspace/dir/sub/f", "");
    scratch.write("workspace/dir/Makefile", "");
    scratch.fifo("workspace/pipe");
    let mut client = McpClient::start(&scratch, &[]).await;
    let image = read(&mut client, "image.png").await;
    assert_eq!(image.result["content"][1]["type"], "image");
    assert_eq!(image.result["content"][1]["mimeType"], "image/png");
    let data = image.result["content"][1]["data"].as_str().unwrap();
    assert_eq!(base64::Engine::decode(&base64::engine::general_purpose::STANDARD, data).unwrap(), PNG);
    for tool in ["read", "edit"] {
        let arguments = json!({ "filePath": "program", "oldString": "ELF", "newString": "x" });
        let program = client.call(tool, arguments).await;
        assert!(program.error().contains("binary file"), "{program:?}");
    }
    let directory = read(&mut client, "dir").await;
    assert!(directory.output().contains("<entries>\nMakefile\nsub/\n(the end: 2 entries)"), "{directory:?}");
    assert!(read(&mut client, "pipe").await.error().contains("neither a file nor a directory"));
    let write = client.call("write", json!({ "filePath": "dir", "content": "x" })).await;
    assert!(write.error().contains("not a regular file"), "{write:?}");
    let missing = read(&mut client, "dir/makefile").await;
    let meant = scratch.workspace().join("dir/Makefile");
    assert!(
        missing.error().ends_with(&format!("Did you mean one of these?\n{}", meant.display())),
        "{missing:?}"
    );
    client.leave().await.assert_success();
}

#[tokio::test]
async fn a_file_is_written_with_its_directories() {
    let scratch = Scratch::new();
    let script = scratch.write("workspace/run.sh", "old\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    scratch.write("workspace/target", "old\n");
    symlink("target", scratch.workspace().join("link")).unwrap();
    let mut client = McpClient::start(&scratch, &[]).await;
    for (path, content) in
        [("a/b c/d.txt", "new\r\n\u{e9}"), ("run.sh", "new\n"), ("link", ""), ("z/empty", "")]
    {
        let answer = client.call("write", json!({ "filePath": path, "content": content })).await;
        let verb = if path.contains('/') { "Created" } else { "Replaced" };
        assert!(answer.output().starts_with(verb), "{answer:?}");
        assert_eq!(bytes(&scratch, path), content.as_bytes(), "{path}");
    }
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(fs::symlink_metadata(scratch.workspace().join("link")).unwrap().is_symlink());
    let long = "0123456789abcdef".repeat(1 << 19);
    client.call("write", json!({ "filePath": "long", "content": long })).await.output();
    assert_eq!(bytes(&scratch, "long"), long.as_bytes());
    client.leave().await.assert_success();
}

#[tokio::test]
async fn an_edit_changes_one_place() {
    let scratch = Scratch::new();
    scratch.write("workspace/f", "fn a() {\n\tone();\n}\nfn b() {\n\tone();\n}\n");
    let mut client = McpClient::start(&scratch, &[]).await;
    edit(&mut client, "f", "a() {\n\tone", "a() {\n\ttwo").await.output();
    let once = "fn a() {\n\ttwo();\n}\nfn b() {\n\tone();\n}\n";
    assert_eq!(bytes(&scratch, "f"), once.as_bytes());
    for (old, new, what) in [
        ("three", "x", "oldString is not in it"),
        ("fn a() {\n    two();", "x", "from line 1 on differs from it in white space only"),
        ("();", "x", "is in it 2 times, at the lines 2, 5"),
        ("same", "same", "nothing to change"),
        ("", "x", "is not empty"),
    ] {
        let answer = edit(&mut client, "f", old, new).await;
        assert!(answer.error().contains(what), "{old:?}: {answer:?}");
        assert_eq!(bytes(&scratch, "f"), once.as_bytes(), "{old:?}");
    }
    assert!(edit(&mut client, "g", "a", "b").await.error().contains("does not exist"));
    assert_eq!(edit(&mut client, "new/g", "", "made\n").await.fact("replacements"), &json!(0));
    assert_eq!(bytes(&scratch, "new/g"), b"made\n");
    let everywhere =
        json!({ "filePath": "f", "oldString": "fn ", "newString": "pub fn ", "replaceAll": true });
    assert_eq!(client.call("edit", everywhere).await.fact("replacements"), &json!(2));
    assert_eq!(bytes(&scratch, "f"), b"pub fn a() {\n\ttwo();\n}\npub fn b() {\n\tone();\n}\n");
    client.leave().await.assert_success();
}

#[tokio::test]
async fn an_edit_keeps_every_other_byte() {
    let scratch = Scratch::new();
    for (name, before) in [
        ("crlf", &b"one\r\ntwo\r\nthree\r\n"[..]),
        ("no-end", b"one\ntwo\nthree"),
        ("latin-1", b"caf\xe9\none\ntwo\nthree\xff\n"),
        ("bom", b"\xef\xbb\xbfone\ntwo\nthree\n"),
        ("mixed", b"zero\none\ntwo\nthree\r\n"),
    ] {
        scratch.write(format!("workspace/{name}"), before);
    }
    let mut client = McpClient::start(&scratch, &[]).await;
    for (name, after) in [
        ("crlf", &b"1\r\n2\r\nthree\r\n"[..]),
        ("no-end", b"1\n2\nthree"),
        ("latin-1", b"caf\xe9\n1\n2\nthree\xff\n"),
        ("bom", b"\xef\xbb\xbf1\n2\nthree\n"),
        ("mixed", b"zero\n1\n2\nthree\r\n"),
    ] {
        edit(&mut client, name, "one\ntwo", "1\n2").await.output();
        assert_eq!(bytes(&scratch, name), after, "{name}");
    }
    let shown = read(&mut client, "latin-1").await;
    assert!(shown.output().contains("bytes that are not UTF-8 are shown as"), "{shown:?}");
    let shown = read(&mut client, "crlf").await;
    assert!(
        shown.output().contains("1: 1\n2: 2\n3: three\n(the end: 3 lines; lines end with CRLF)"),
        "{shown:?}"
    );
    client.leave().await.assert_success();
}

#[tokio::test]
async fn edits_at_once_are_all_made() {
    const FILES: usize = 20;
    let scratch = Scratch::new();
    let lines: Vec<_> = (0..FILES).map(|n| format!("<{n}>\n")).collect();
    scratch.write("workspace/f", lines.concat());
    let mut client = McpClient::start(&scratch, &[]).await;
    let mut calls = Vec::new();
    for n in 0..FILES {
        let arguments =
            json!({ "filePath": "f", "oldString": format!("<{n}>"), "newString": format!("[{n}]") });
        calls.push(client.begin("edit", arguments).await);
    }
    for call in calls {
        client.answer(call).await.output();
    }
    let expected: Vec<_> = (0..FILES).map(|n| format!("[{n}]\n")).collect();
    assert_eq!(bytes(&scratch, "f"), expected.concat().as_bytes());
    client.leave().await.assert_success();
}
