//! What is no ordinary file, through the file methods of the protocol: nothing blocks, nothing is endless, nothing leads out.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;

use legion_tests::audit::Audit;
use legion_tests::process_table::resident;
use legion_tests::scratch::Scratch;
use serde_json::{Value, json};

use super::{Connected, uri};

/// Larger than any answer may be.
const SPARSE_BYTES: u64 = 10 << 30;

/// Most resident memory a tier may have after all this: a debug build and a few buffers.
const MOST_RESIDENT: u64 = 96 << 20;

async fn read(session: &mut Connected, path: &Path) -> Result<Value, Value> {
    session.client.call("fs/readFile", json!({ "path": uri(path) })).await
}

#[tokio::test]
async fn what_is_no_ordinary_file_is_refused_at_once() {
    let scratch = Scratch::new();
    let workspace = scratch.workspace();
    let fifo = scratch.fifo("workspace/fifo");
    File::create(workspace.join("sparse")).unwrap().set_len(SPARSE_BYTES).unwrap();
    scratch.identity().own(&workspace.join("sparse"));
    for (name, target) in
        [("zero", "/dev/zero"), ("random", "/dev/urandom"), ("tty", "/dev/tty"), ("to-fifo", "fifo")]
    {
        symlink(target, workspace.join(name)).unwrap();
    }
    let mut session = Connected::new(&scratch, &[]).await;
    for name in ["fifo", "sparse", "zero", "random", "tty", "to-fifo"] {
        let refused = read(&mut session, &workspace.join(name)).await;
        assert!(refused.is_err(), "{name} was read");
        let open = json!({ "path": uri(&workspace.join(name)), "handleId": name });
        if session.client.call("fs/open", open).await.is_ok() {
            let block = json!({ "handleId": name, "offset": 0, "len": 1 << 20 });
            // A block has a bound, so what is endless ends here.
            let _ = session.client.call("fs/readBlock", block).await;
        }
        let write = json!({ "path": uri(&workspace.join(name)), "dataBase64": "eA==" });
        if name != "sparse" {
            let _ = session.client.call("fs/writeFile", write).await;
        }
        let meta = json!({ "path": uri(&workspace.join(name)) });
        assert!(session.client.call("fs/getMetadata", meta).await.is_ok(), "{name}");
    }
    // Nothing of this has blocked the session or filled it up.
    assert_eq!(session.run(&scratch, "echo alive").await.output, "alive\n");
    let resident = resident(session.controller.pid().unwrap());
    assert!(resident < MOST_RESIDENT, "the controller has {resident} bytes");
    drop(fifo);
}

#[tokio::test]
async fn a_link_leads_nowhere_outside() {
    let scratch = Scratch::new();
    let secret = scratch.write("outside/secret", "outside-secret-5521");
    let workspace = scratch.workspace();
    symlink(&secret, workspace.join("absolute")).unwrap();
    symlink("../outside/secret", workspace.join("relative")).unwrap();
    symlink("../outside", workspace.join("directory")).unwrap();
    let mut session = Connected::new(&scratch, &[]).await;
    for path in ["absolute", "relative", "directory/secret", "../outside/secret"] {
        let refused = read(&mut session, &workspace.join(path)).await;
        assert_eq!(refused.as_ref().map_err(|error| error["code"].clone()), Err(json!(-32004)), "{path}");
        let write = json!({ "path": uri(&workspace.join(path)), "dataBase64": "eA==" });
        let _ = session.client.call("fs/writeFile", write).await;
        let copy = json!({ "sourcePath": uri(&workspace.join(path)),
            "destinationPath": uri(&workspace.join("copy")), "recursive": true });
        let _ = session.client.call("fs/copy", copy).await;
    }
    assert_eq!(scratch.read("outside/secret").as_deref(), Some("outside-secret-5521"));
    assert_eq!(scratch.read("outside/copy"), None);
    for path in ["/proc/1/environ", "/proc/1/root/etc/passwd", "/proc/1/mem"] {
        // The exec-server itself makes this call, and may look at itself; what is there is nobody's secret.
        if let Ok(content) = read(&mut session, Path::new(path)).await {
            assert!(!content.to_string().contains(&session.controller.token), "{path}");
        }
    }
}

/// What `/proc` shows of a process to itself alone.
const ITS_OWN: [&str; 8] = ["environ", "mem", "maps", "smaps", "auxv", "io", "task/1/mem", "task/1/maps"];

/// Descriptors that are tried: more than an exec-server with one client has.
const DESCRIPTORS: usize = 64;

/// The file methods run in the exec-server itself: what is its own in `/proc` must be as closed to them as to a command.
#[tokio::test]
async fn the_exec_server_is_not_turned_on_itself() {
    let scratch = Scratch::new();
    symlink("/proc/self", scratch.workspace().join("itself")).unwrap();
    let mut session = Connected::new(&scratch, &[]).await;
    let workspace = scratch.workspace();
    let itself = workspace.join("itself");
    for process in [Path::new("/proc/self"), Path::new("/proc/1"), Path::new("/proc/thread-self"), &itself] {
        for file in ITS_OWN {
            let path = process.join(file);
            let (name, target) = (path.display().to_string(), uri(&path));
            let handle = json!({ "path": target, "handleId": "read" });
            let replaced = json!({ "path": target, "handleId": "replace", "mode": "replace" });
            for (method, params) in [
                ("fs/readFile", json!({ "path": target })),
                ("fs/open", handle),
                ("fs/open", replaced),
                ("fs/writeFile", json!({ "path": target, "dataBase64": "eA==" })),
                (
                    "fs/copy",
                    json!({ "sourcePath": target, "recursive": false,
                    "destinationPath": uri(&workspace.join("copy")) }),
                ),
                (
                    "fs/copy",
                    json!({ "sourcePath": uri(&workspace.join("mine")), "recursive": false,
                    "destinationPath": target }),
                ),
            ] {
                scratch.write("workspace/mine", "mine");
                let answer = session.client.call(method, params).await;
                assert!(answer.is_err(), "{method} of {name}: {answer:?}");
            }
        }
    }
    // Its descriptors have names, too: what can be written there says nothing to it.
    for descriptor in 0..DESCRIPTORS {
        let target = uri(&Path::new("/proc/self/fd").join(descriptor.to_string()));
        let handle = json!({ "path": target, "handleId": descriptor.to_string(), "mode": "replace" });
        let _ = session.client.call("fs/open", handle).await;
        let write = json!({ "path": target, "dataBase64": "eA==" });
        let _ = session.client.call("fs/writeFile", write).await;
        if let Ok(content) = session.client.call("fs/readFile", json!({ "path": target })).await {
            assert!(!content.to_string().contains(&session.controller.token), "descriptor {descriptor}");
        }
    }
    assert_eq!(session.run(&scratch, "echo alive").await.output, "alive\n");
    session.controller.stop().await.assert_success();
    let audit = Audit::read(&scratch);
    assert_eq!(audit.events("sandboxStarted").count(), 1, "it did not survive");
}

#[tokio::test]
async fn protected_paths_are_protected_from_the_file_methods_too() {
    let scratch = Scratch::new();
    scratch.write("workspace/.env", "KEY=workspace-secret-5522\n");
    scratch.write("workspace/.envrc", "the user's own\n");
    scratch.write("workspace/.git/config", "[core]\n");
    scratch.write("workspace/.git/HEAD", "ref: refs/heads/main\n");
    let workspace = scratch.workspace();
    let mut session = Connected::new(&scratch, &[]).await;
    let content = read(&mut session, &workspace.join(".env")).await.unwrap();
    assert_eq!(content["dataBase64"], "");
    for path in [".env", ".envrc", ".git/config", ".git/hooks/post-commit"] {
        let write = json!({ "path": uri(&workspace.join(path)), "dataBase64": "eA==" });
        assert!(session.client.call("fs/writeFile", write).await.is_err(), "{path} was written");
        let remove = json!({ "path": uri(&workspace.join(path)), "recursive": true, "force": false });
        assert!(session.client.call("fs/remove", remove).await.is_err(), "{path} was removed");
    }
    for path in [".git", ".git/hooks", ".git/config"] {
        let remove = json!({ "path": uri(&workspace.join(path)), "recursive": true, "force": true });
        let _ = session.client.call("fs/remove", remove).await;
    }
    assert_eq!(scratch.read("workspace/.env").as_deref(), Some("KEY=workspace-secret-5522\n"));
    assert_eq!(scratch.read("workspace/.envrc").as_deref(), Some("the user's own\n"));
    assert_eq!(scratch.read("workspace/.git/config").as_deref(), Some("[core]\n"));
}
