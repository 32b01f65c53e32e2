//! A client's own wish for less (SPEC 10) in a workspace that has two names: its path on the host, and `/workspace`.
//!
//! Invariant: what is taken away under one name is taken away under the other, for commands and for file methods.

use std::path::{Path, PathBuf};

use legion_tests::scratch::Scratch;
use serde_json::{Value, json};

use super::{Connected, uri};

/// Where the workspace is, too.
const ALIAS: &str = "/workspace";

/// A workspace that may be written but for `kept`, with `hidden` out of reach, all under the names below `root`.
fn wish(root: &Path) -> Value {
    let path = |name: &str, access: &str| json!({ "path": { "type": "path", "path": uri(&root.join(name)) }, "access": access });
    let roots = |kind: &str, access: &str| json!({ "path": { "type": "special", "value": { "kind": kind } }, "access": access });
    let entries = [
        roots("root", "read"),
        roots("project_roots", "write"),
        path("kept", "read"),
        path("hidden", "none"),
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
        for name in ["free", "kept", "hidden"] {
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
async fn what_is_taken_away_under_one_name_is_taken_away_under_the_other() {
    let mut scene = Scene::new().await;
    let mut number = 0;
    for wished in scene.names.clone() {
        let sandbox = wish(&wished);
        for used in scene.names.clone() {
            for (directory, reads, writes) in
                [("free", true, true), ("kept", true, false), ("hidden", false, false)]
            {
                // What is given under one name need not be given under the other.
                if writes && used != wished {
                    continue;
                }
                let about = format!("{directory} at {}, wished at {}", used.display(), wished.display());
                let file = used.join(directory).join("file");
                let shown = file.display();
                assert_eq!(
                    scene.runs(&sandbox, &mut number, &format!("cat {shown}")).await,
                    reads,
                    "cat {about}"
                );
                let script = format!("printf {directory} > {shown}");
                assert_eq!(scene.runs(&sandbox, &mut number, &script).await, writes, "write {about}");
                let script = format!("mv {shown} {shown}.new && mv {shown}.new {shown}");
                assert_eq!(scene.runs(&sandbox, &mut number, &script).await, writes, "rename {about}");
                let path = json!({ "path": uri(&file) });
                assert_eq!(
                    scene.works("fs/readFile", path.clone(), &sandbox).await,
                    reads,
                    "readFile {about}"
                );
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
    for name in ["kept", "hidden"] {
        assert_eq!(scene.scratch.read(format!("workspace/{name}/file")).as_deref(), Some(name));
    }
    scene.session.controller.stop().await.assert_success();
}
