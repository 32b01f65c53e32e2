//! Repositories as people have them, made on the host by the host's git.
//!
//! Invariant: every repository has one commit on `main`, an identity of its own, and lies below the test's scratch.

use std::path::PathBuf;

use legion_tests::legion;
use legion_tests::scratch::Scratch;

use super::outside;

/// A project in one of the shapes there are.
#[derive(Debug)]
pub(super) struct Project {
    /// What a session is given.
    pub(super) workspace: PathBuf,
    /// Where git is used: the workspace or something in it.
    pub(super) repository: PathBuf,
    /// A line of the persona, where it takes one.
    mounts: String,
}

impl Project {
    /// Writes the configuration of a persona for it, with this view.
    pub(super) fn configure(&self, scratch: &Scratch, view: &str) {
        legion::configure(scratch, &format!("[persona.default]\nview = {view:?}\n{}", self.mounts));
    }
}

/// Makes a repository out of the directory it runs in.
pub(super) const INIT: &str = "git init -q -b main; git config user.name Tester; git config user.email t@example.com; \
                               echo one > one.txt; git add one.txt; git commit -qm one;";

/// The shapes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Plain,
    LinkedWorktree,
    WorktreeOfBare,
    Superproject,
    Submodule,
    GitLinkInside,
    GitLinkOutside,
    /// The same, and the persona mounts the target.
    GitLinkMounted,
    HooksLink,
    Monorepo,
    Nested,
    Empty,
}

impl Shape {
    /// Whether its git directory, or a part of it, lies outside the workspace.
    pub(super) fn reaches_outside(self) -> bool {
        matches!(self, Self::LinkedWorktree | Self::WorktreeOfBare | Self::Submodule | Self::GitLinkMounted)
    }

    /// Makes a project of this shape in a fresh scratch directory.
    pub(super) async fn make(self, scratch: &Scratch) -> Project {
        let workspace = scratch.workspace();
        let (script, workspace, repository) = match self {
            Self::Plain => (INIT.to_owned(), workspace.clone(), workspace),
            Self::LinkedWorktree => {
                let script = format!(
                    "mkdir ../outside/main; cd ../outside/main; {INIT} git worktree add -q ../../workspace"
                );
                (script, workspace.clone(), workspace)
            }
            Self::WorktreeOfBare => {
                let script = format!(
                    "mkdir ../outside/first; cd ../outside/first; {INIT} git clone -q --bare . ../project.git; \
                     cd ../project.git; git config user.name Tester; git config user.email t@example.com; \
                     git worktree add -q -b work ../../workspace"
                );
                (script, workspace.clone(), workspace)
            }
            Self::Superproject => {
                let script = format!("{INIT} {SUBMODULE}");
                (script, workspace.clone(), workspace)
            }
            Self::Submodule => {
                let script =
                    format!("mkdir ../outside/super; cd ../outside/super; {INIT} {SUBMODULE} {IN_SUBMODULE}");
                let library = scratch.outside().join("super/library");
                (script, library.clone(), library)
            }
            Self::GitLinkInside => (
                format!("{INIT} mv .git data; ln -s data .git; echo /data >> .git/info/exclude"),
                workspace.clone(),
                workspace,
            ),
            Self::GitLinkOutside | Self::GitLinkMounted => {
                let script = format!("{INIT} mv .git ../outside/data; ln -s ../outside/data .git");
                (script, workspace.clone(), workspace)
            }
            Self::HooksLink => {
                let script = format!(
                    "{INIT} mkdir githooks; printf '#!/bin/sh\\necho ran >> hook-ran\\n' > githooks/post-commit; \
                     chmod +x githooks/post-commit; rm -rf .git/hooks; ln -s ../githooks .git/hooks"
                );
                (script, workspace.clone(), workspace)
            }
            Self::Monorepo | Self::Nested => {
                let script = format!(
                    "{INIT} mkdir -p services/api libraries/deep/down; (cd services/api; {INIT}); \
                     (cd libraries/deep/down; {INIT})"
                );
                let nested = workspace.join("services/api");
                (script, workspace.clone(), if matches!(self, Self::Nested) { nested } else { workspace })
            }
            Self::Empty => (String::new(), workspace.clone(), workspace),
        };
        let script = format!("set -e; {script}");
        outside(scratch, &scratch.workspace(), &script).await.assert_success();
        let data = scratch.outside().join("data").display().to_string();
        let mounts = match self {
            Self::GitLinkMounted => {
                format!("mounts = [{{ mode = \"rw\", from = {data:?}, to = {data:?} }}]\n")
            }
            _ => String::new(),
        };
        Project { workspace, repository, mounts }
    }
}

/// A submodule `library` that comes from a repository in the same tree.
const SUBMODULE: &str = "mkdir vendored; (cd vendored; git init -q -b main; git config user.name Tester; \
                         git config user.email t@example.com; echo v > v.txt; git add v.txt; git commit -qm v); \
                         mv vendored/.git vendored.git; rm -r vendored; git -C vendored.git config core.bare true; \
                         echo /vendored.git >> .git/info/exclude; \
                         git -c protocol.file.allow=always submodule --quiet add ./vendored.git library; \
                         git commit -qm submodule;";

const IN_SUBMODULE: &str = "cd library; git config user.name Tester; git config user.email t@example.com;";
