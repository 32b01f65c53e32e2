//! A client's own wish for less (SPEC 10) in a workspace that has two names: its path on the host, and `/workspace`.
//!
//! Invariant: what is given or taken away under one name is so under the other, for commands and for file methods.

use std::path::{Path, PathBuf};

use legion_tests::scratch::Scratch;
use serde_json::{Value, json};

use super::{Connected, uri};

/// Where the workspace is, too.
const ALIAS: &str = "/workspace";

/// The directories, and whether each may be read and written.
const DIRECTORIES: [(&str, bool, bool); 5] = [
    ("free", true, true),
    ("free/kept", true, false),
    ("kept", true, false),
    ("kept/free", true, true),
    ("hidden", false, false),
];

/// [`DIRECTORIES`] as a wish: what is given under the names below `root`, what is taken away under those below `taken`.
fn wish(root: &Path, taken: &Path) -> Value {
    let path = |path: PathBuf, access: &str| json!({ "path": { "type": "path", "path": uri(&path) }, "access": access });
    let roots = |kind: &str, access: &str| json!({ "path": { "type": "special", "value": { "kind": kind } }, "access": access });
    let entries = [
        roots("root", "read"),
        roots("project_roots", "write"),
        path(taken.join("free/kept"), "read"),
        path(taken.join("kept"), "read"),
        path(root.join("kept/free"), "write"),
        path(taken.join("hidden"), "none"),
    ];
    json!({
        "permissions": { "type": "managed", "network": "restricted",
            "file_system": { "type": "restricted", "entries": entries } },
        "cwd": uri(root), "workspaceRoots": [uri(root)], "windowsSandboxLevel": "disabled",
        "windowsSandboxProxySettingsMode": "reconcile", "useLegacyLandlock": false,
    })
}

struct Scene {
    scratch: Scratch,
    session: Connected,
    /// Both.
    names: [PathBuf; 2],
}

impl Scene {
    async fn new() -> Self {
        let scratch = Scratch::new();
        for (name, ..) in DIRECTORIES {
            scratch.write(format!("workspace/{name}/file"), name);
        }
        let names = [scratch.workspace(), PathBuf::from(ALIAS)];
        let session = Connected::new(&scratch, &[]).await;
        Self { scratch, session, names }
    }

    /// Whether a confined command succeeds.
    async fn runs(&mut self, sandbox: &Value, number: &mut u32, script: &str) -> bool {
        *number += 1;
        let name = format!("confined-{number}");
        let start = json!({ "processId": name, "argv": ["/bin/sh", "-c", script], "tty": false,
            "env": { "PATH": "/usr/bin:/bin" }, "cwd": uri(&self.names[0]), "sandbox": sandbox });
        let started = self.session.client.call("process/start", start).await;
        assert_eq!(started.expect("it starts")["sandboxType"], "linuxSeccomp");
        self.session.end_of(&name).await.code == 0
    }

    async fn works(&mut self, method: &str, mut params: Value, sandbox: &Value) -> bool {
        params["sandbox"] = sandbox.clone();
        self.session.client.call(method, params).await.is_ok()
    }
}

#[tokio::test]
async fn a_place_is_one_place_under_both_of_its_names() {
    let mut scene = Scene::new().await;
    let mut number = 0;
    let [host, alias] = scene.names.clone();
    for (given, taken) in [(&host, &host), (&host, &alias), (&alias, &host), (&alias, &alias)] {
        let sandbox = wish(given, taken);
        for used in [&host, &alias] {
            for (directory, reads, writes) in DIRECTORIES {
                let about = format!(
                    "{directory} at {}, given at {}, taken at {}",
                    used.display(),
                    given.display(),
                    taken.display()
                );
                let file = used.join(directory).join("file");
                let shown = file.display();
                let script = format!("cat {shown}");
                assert_eq!(scene.runs(&sandbox, &mut number, &script).await, reads, "cat {about}");
                let script = format!("printf {directory} > {shown}");
                assert_eq!(scene.runs(&sandbox, &mut number, &script).await, writes, "write {about}");
                let script = format!("mv {shown} {shown}.new && mv {shown}.new {shown}");
                assert_eq!(scene.runs(&sandbox, &mut number, &script).await, writes, "rename {about}");
                let path = json!({ "path": uri(&file) });
                assert_eq!(scene.works("fs/readFile", path, &sandbox).await, reads, "readFile {about}");
                let open = json!({ "path": uri(&file), "handleId": number.to_string() });
                assert_eq!(scene.works("fs/open", open, &sandbox).await, reads, "open {about}");
                let write = json!({ "path": uri(&file), "dataBase64": "eA==" });
                assert_eq!(scene.works("fs/writeFile", write, &sandbox).await, writes, "writeFile {about}");
                let new = used.join(directory).join("new");
                let make = json!({ "path": uri(&new), "recursive": false });
                assert_eq!(scene.works("fs/createDirectory", make, &sandbox).await, writes, "make {about}");
                let remove = json!({ "path": uri(&new), "recursive": true, "force": false });
                assert_eq!(scene.works("fs/remove", remove, &sandbox).await, writes, "remove {about}");
                scene.scratch.write(format!("workspace/{directory}/file"), directory);
            }
        }
    }
    scene.session.controller.stop().await.assert_success();
}
