//! Traps left in a project for the tools of its owner: git's configuration and hooks, rc files, editor tasks, agents' settings.
//!
//! Invariant: each try is made twice, without a sandbox, where it must have its effect, and inside, where it must not. So a
//! try that never worked proves nothing and fails.

use std::path::{Path, PathBuf};

use legion_tests::audit::Audit;
use legion_tests::legion;
use legion_tests::scratch::Scratch;
use legion_tests::user::Identity;

use super::outside;
use super::repositories::{Project, Shape};

/// What becomes of a try inside.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// It fails, or has no effect.
    Refused,
    /// The name did not exist and could not be protected: it is on record.
    Recorded(&'static str),
    /// It lies in a git directory made inside: it is set aside when the sandbox is gone.
    SetAside(&'static str),
    /// It is taken away or put back, and the session is over.
    Ends(&'static str),
}

/// How the effect of a try shows.
#[derive(Debug, Clone, Copy)]
enum Effect {
    /// The owner's git runs the payload.
    GitRunsIt,
    /// This file has other content.
    Changes(&'static str),
}

/// One trap.
struct Try {
    shape: Shape,
    /// What the owner has done before.
    before: &'static str,
    /// The trap, set in the repository. `$PAYLOAD` is a program.
    trap: &'static str,
    effect: Effect,
    fate: Fate,
}

/// A trap in a plain repository that git would fall into.
const fn git(trap: &'static str) -> Try {
    Try { shape: Shape::Plain, before: "", trap, effect: Effect::GitRunsIt, fate: Fate::Refused }
}

/// A trap in a file that exists.
const fn file(path: &'static str, before: &'static str, trap: &'static str) -> Try {
    Try { shape: Shape::Plain, before, trap, effect: Effect::Changes(path), fate: Fate::Refused }
}

impl Try {
    const fn in_a(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    const fn after(self, before: &'static str) -> Self {
        Self { before, ..self }
    }

    const fn recorded(self, path: &'static str) -> Self {
        Self { fate: Fate::Recorded(path), ..self }
    }

    const fn set_aside(self, path: &'static str) -> Self {
        Self { fate: Fate::SetAside(path), ..self }
    }

    const fn ends(self, path: &'static str) -> Self {
        Self { fate: Fate::Ends(path), ..self }
    }

    /// Makes it without and with a sandbox.
    async fn check(self) {
        let control = self.prepare(Identity::User).await;
        outside(&control.scratch, &control.project.repository, &control.script(self.trap)).await;
        control.tour(self.effect).await;
        assert!(self.has_effect(&control), "the trap does not even work without a sandbox");
        self.check_inside(self.prepare(Identity::User).await).await;
        // What lies outside the workspace is mounted in another way when root has started Legion.
        if let Some(root) = Identity::root().filter(|_| self.shape.reaches_outside()) {
            self.check_inside(self.prepare(root).await).await;
        }
    }

    async fn check_inside(&self, scene: Scene) {
        let workspace = scene.project.workspace.display().to_string();
        let script = format!("cd {}; {}", scene.project.repository.display(), scene.script(self.trap));
        // A session that ends early is told by the exit code.
        let ends = matches!(self.fate, Fate::Ends(_));
        let script = if ends { format!("{script}; sleep 300") } else { script };
        let finished = legion::run(
            &scene.scratch,
            &["exec", "--ttl", "50s", "--workspace", &workspace, "--", "bash", "-c", &script],
        )
        .await;
        let audit = Audit::read(&scene.scratch);
        let of_path = |event: &str, path: &str| {
            let path = scene.project.repository.join(path).display().to_string();
            audit.events(event).any(|record| record["object"]["path"] == path)
        };
        match self.fate {
            Fate::Refused => {}
            Fate::Recorded(path) => {
                assert!(of_path("pathCreated", path), "not on record: {:#?}\n{finished:#?}", audit.lines());
                return;
            }
            Fate::SetAside(path) => {
                assert!(of_path("pathSetAside", path), "not set aside: {:#?}\n{finished:#?}", audit.lines());
                assert!(finished.stderr.contains(path), "not told: {finished:#?}");
            }
            Fate::Ends(path) => {
                assert!(of_path("violation", path), "not noticed: {:#?}\n{finished:#?}", audit.lines());
            }
        }
        let told = scene.tour(self.effect).await;
        assert!(!self.has_effect(&scene), "the trap works: {finished:#?}\n{told}");
    }

    async fn prepare(&self, identity: Identity) -> Scene {
        let scratch = Scratch::owned_by(identity);
        let project = self.shape.make(&scratch).await;
        project.configure(&scratch, "minimal");
        let canary = scratch.outside().join("canary");
        // Where the sandbox has it too; what it touches is there on the host only.
        let payload = project.workspace.join("payload");
        let payload = scratch.write(payload, format!("#!/bin/sh\ntouch {}\n", canary.display()));
        outside(&scratch, &project.workspace, "chmod 755 payload").await.assert_success();
        let scene = Scene { scratch, project, payload, canary };
        let before = scene.script(self.before);
        outside(&scene.scratch, &scene.project.repository, &before).await.assert_success();
        scene
    }

    fn has_effect(&self, scene: &Scene) -> bool {
        match self.effect {
            Effect::GitRunsIt => scene.canary.exists(),
            Effect::Changes(path) => {
                let content =
                    std::fs::read_to_string(scene.project.repository.join(path)).unwrap_or_default();
                !content.starts_with("the owner's\n") || content.contains("trap")
            }
        }
    }
}

struct Scene {
    scratch: Scratch,
    project: Project,
    payload: PathBuf,
    canary: PathBuf,
}

impl Scene {
    fn script(&self, text: &str) -> String {
        format!("PAYLOAD={}; set +e; {text}", self.payload.display())
    }

    /// What the owner does afterwards; everything git says.
    async fn tour(&self, effect: Effect) -> String {
        if let Effect::Changes(_) = effect {
            // It shows without git.
            return String::new();
        }
        let script = "echo owner >> one.txt; git status; git st; git submodule update; git add -A; git commit -qm owner; git diff HEAD~1; \
                      git log -1 --stat; git switch -q -c owners; echo more >> one.txt; git stash; git stash pop; \
                      git worktree list; git submodule status; git gc -q --auto; git fetch -q .; \
                      cd sub 2>/dev/null && git status && \
                      git -c user.name=o -c user.email=o commit -q --allow-empty -m owner";
        let finished = outside(&self.scratch, &self.project.repository, script).await;
        format!("{}{}", finished.stdout, finished.stderr)
    }
}

macro_rules! tries {
    ($($name:ident: $try:expr;)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                $try.check().await;
            }
        )*
    };
}

tries! {
    // Hooks.
    a_hook: git("cp $PAYLOAD .git/hooks/pre-commit");
    a_hook_that_was_a_sample: git("mv .git/hooks/pre-commit.sample .git/hooks/pre-commit; cp $PAYLOAD .git/hooks/pre-commit")
        .after("echo '#!/bin/sh' > .git/hooks/pre-commit.sample");
    a_hook_where_there_were_none: git("mkdir .git/hooks; cp $PAYLOAD .git/hooks/pre-commit").after("rm -rf .git/hooks");
    a_hook_in_a_linked_directory: git("cp $PAYLOAD githooks/pre-commit").in_a(Shape::HooksLink);
    a_hooks_directory_in_place_of_the_link: git("rm .git/hooks; mkdir .git/hooks; cp $PAYLOAD .git/hooks/pre-commit")
        .in_a(Shape::HooksLink).ends(".git/hooks");
    a_hook_where_the_configuration_says: git("cp $PAYLOAD .husky/pre-commit")
        .after("mkdir .husky; echo x > .husky/x; git config core.hooksPath .husky");
    a_hook_where_the_configuration_says_and_nothing_is: git("mkdir .husky; cp $PAYLOAD .husky/pre-commit")
        .after("git config core.hooksPath .husky");
    a_hook_where_the_configuration_of_the_user_says: git("cp $PAYLOAD .githooks/pre-commit")
        .after("mkdir .githooks; echo x > .githooks/x; git config --global core.hooksPath .githooks");
    a_hook_of_a_linked_worktree: git("cp $PAYLOAD $(git rev-parse --git-common-dir)/hooks/pre-commit")
        .in_a(Shape::LinkedWorktree);
    a_hook_of_a_bare_repository: git("cp $PAYLOAD $(git rev-parse --git-common-dir)/hooks/pre-commit")
        .in_a(Shape::WorktreeOfBare);
    a_hook_of_a_submodule: git("cp $PAYLOAD $(git rev-parse --git-dir)/hooks/pre-commit").in_a(Shape::Submodule);
    a_hook_of_a_nested_repository: git("cp $PAYLOAD .git/hooks/pre-commit").in_a(Shape::Nested);
    a_hook_behind_a_linked_git_directory: git("cp $PAYLOAD data/hooks/pre-commit").in_a(Shape::GitLinkInside);

    // Configuration.
    fsmonitor: git("git config core.fsmonitor $PAYLOAD");
    fsmonitor_written_by_hand: git("printf '[core]\\n\\tfsmonitor = %s\\n' $PAYLOAD >> .git/config");
    fsmonitor_by_replacing_the_file: git("cp .git/config new; git config -f new core.fsmonitor $PAYLOAD; mv -f new .git/config");
    hooks_path: git("mkdir mine; cp $PAYLOAD mine/pre-commit; git config core.hooksPath mine");
    an_alias: git("git config alias.st \"!$PAYLOAD\"");
    a_filter: git("git config filter.x.clean \"$PAYLOAD\"; echo '*.txt filter=x' > .gitattributes");
    a_textconv: git("git config diff.x.textconv $PAYLOAD; echo '*.txt diff=x' > .gitattributes");
    an_external_diff: git("git config diff.external $PAYLOAD");
    an_include: git("printf '[core]\\n\\tfsmonitor = %s\\n' $PAYLOAD > more; git config include.path ../more");
    an_included_file_of_the_workspace: git("printf '[core]\\n\\tfsmonitor = %s\\n' $PAYLOAD >> shared.gitconfig")
        .after("echo '[user]' > shared.gitconfig; git config include.path ../shared.gitconfig");
    an_included_file_that_is_not_there: git("printf '[core]\\n\\tfsmonitor = %s\\n' $PAYLOAD >> shared.gitconfig")
        .after("git config include.path ../shared.gitconfig").ends("shared.gitconfig");
    a_program_of_the_configuration: git("cp $PAYLOAD tools/clean")
        .after("mkdir tools; printf '#!/bin/sh\\ncat\\n' > tools/clean; chmod 755 tools/clean; \
                git config filter.x.clean 'sh tools/clean %f'; echo '*.txt filter=x' > .gitattributes");
    a_hook_of_a_bare_repository_in_the_tree: git("cp $PAYLOAD sub/hooks/post-commit; git -C sub config core.fsmonitor $PAYLOAD")
        .after("git init -q --bare sub; git -C sub config core.bare false; git -C sub config core.worktree ..; mkdir -p sub/hooks");
    a_hook_of_a_mounted_git_directory: git("cp $PAYLOAD .git/hooks/pre-commit").in_a(Shape::GitLinkMounted);
    the_configuration_of_a_mounted_git_directory: git("git config core.fsmonitor $PAYLOAD").in_a(Shape::GitLinkMounted);
    the_configuration_of_a_worktree: git("printf '[core]\\n\\tfsmonitor = %s\\n' $PAYLOAD > .git/config.worktree")
        .after("git config extensions.worktreeConfig true").ends(".git/config.worktree");
    the_configuration_of_a_nested_repository: git("git config core.fsmonitor $PAYLOAD").in_a(Shape::Nested);
    the_configuration_of_a_submodule: git("git config core.fsmonitor $PAYLOAD").in_a(Shape::Submodule);
    the_configuration_of_a_submodule_from_above: git("git -C library config core.fsmonitor $PAYLOAD").in_a(Shape::Superproject);
    the_configuration_of_the_main_repository: git("git config core.fsmonitor $PAYLOAD").in_a(Shape::LinkedWorktree);
    the_configuration_by_a_hard_link: git("ln .git/config mine && git config -f mine core.fsmonitor $PAYLOAD; \
        printf '[core]\\n\\tfsmonitor = %s\\n' $PAYLOAD >> .git/config");
    the_attributes_of_the_repository: git("git config -f ~/x filter.x.clean true; \
        mkdir -p .git/info; echo '*.txt filter=owners' > .git/info/attributes")
        .after("git config filter.owners.clean \"$PAYLOAD\"");
    a_submodule_command: git("git config submodule.library.update \"!$PAYLOAD\"").in_a(Shape::Superproject)
        .after("git -C library -c user.name=x -c user.email=x commit -q --allow-empty -m ahead");

    // Where git looks for it all.
    a_git_directory_by_renaming: git("cp -r .git evil; git config -f evil/config core.fsmonitor $PAYLOAD; mv .git old; mv evil .git");
    a_git_directory_by_exchange: git("cp -r .git evil; git config -f evil/config core.fsmonitor $PAYLOAD; \
        rm -rf .git; mv evil .git");
    a_git_file_for_a_git_directory: git("cp -r .git evil; git config -f evil/config core.fsmonitor $PAYLOAD; \
        mv .git old; echo 'gitdir: evil' > .git");
    a_git_file_that_names_another: git("d=$(git rev-parse --git-common-dir); cp -r $d evil; \
        git config -f evil/config core.fsmonitor $PAYLOAD; git config -f evil/config --unset core.bare; \
        rm -f .git; echo 'gitdir: evil' > .git").in_a(Shape::LinkedWorktree);
    a_git_link_that_leads_elsewhere: git("cp -r data evil; git config -f evil/config core.fsmonitor $PAYLOAD; ln -sfn evil .git")
        .in_a(Shape::GitLinkInside).ends(".git");
    a_common_directory: git("cp -r .git evil; git config -f evil/config core.fsmonitor $PAYLOAD; echo ../evil > .git/commondir")
        .ends(".git/commondir");
    the_common_directory_of_a_worktree: git("d=$(git rev-parse --git-dir); cp -r $(git rev-parse --git-common-dir) evil; \
        git config -f evil/config core.fsmonitor $PAYLOAD; echo $PWD/evil > $d/commondir").in_a(Shape::LinkedWorktree);
    a_parent_moved_away: git("cd ..; mv api old; cp -r old api; git config -f api/.git/config core.fsmonitor $PAYLOAD")
        .in_a(Shape::Nested);

    // Files of other tools.
    an_envrc: file(".envrc", "echo \"the owner's\" > .envrc", "echo trap >> .envrc");
    a_bashrc: file(".bashrc", "echo \"the owner's\" > .bashrc", "echo trap >> .bashrc");
    a_profile_by_renaming: file(".profile", "echo \"the owner's\" > .profile", "echo trap > x; mv -f x .profile");
    the_servers_of_an_agent: file(".mcp.json", "echo \"the owner's\" > .mcp.json", "rm .mcp.json; echo trap > .mcp.json");
    the_tasks_of_an_editor: file(".vscode/tasks.json", "mkdir .vscode; echo \"the owner's\" > .vscode/tasks.json",
        "mv .vscode old; mkdir .vscode; echo trap > .vscode/tasks.json; echo trap > old/tasks.json");
    the_runs_of_an_ide: file(".idea/workspace.xml", "mkdir .idea; echo \"the owner's\" > .idea/workspace.xml",
        "sed -i s/owner/trap/ .idea/workspace.xml");
    a_dev_container: file(".devcontainer/devcontainer.json",
        "mkdir .devcontainer; echo \"the owner's\" > .devcontainer/devcontainer.json", "echo trap > .devcontainer/devcontainer.json");
    the_settings_of_claude: file(".claude/settings.json", "mkdir .claude; echo \"the owner's\" > .claude/settings.json",
        "mv .claude old; mkdir .claude; echo trap > .claude/settings.json; echo trap > old/settings.json");
    the_settings_of_opencode: file("opencode.json", "echo \"the owner's\" > opencode.json", "echo trap > opencode.json");
    the_settings_of_codex: file(".codex/config.toml", "mkdir .codex; echo \"the owner's\" > .codex/config.toml",
        "echo trap > .codex/config.toml");
    the_modules_of_git: file(".gitmodules", "echo \"the owner's\" > .gitmodules", "echo trap > .gitmodules");
    a_file_of_a_package_in_a_monorepo: file("packages/web/.envrc",
        "mkdir -p packages/web; echo \"the owner's\" > packages/web/.envrc",
        "mv packages old; mkdir -p packages/web; echo trap > packages/web/.envrc; echo trap > old/web/.envrc");

    // Names that are not there yet.
    a_new_envrc: file(".envrc", "", "echo trap > .envrc").recorded(".envrc");
    new_servers_of_an_agent: file(".mcp.json", "", "echo trap > x; mv x .mcp.json").recorded(".mcp.json");
    new_tasks_of_an_editor: file(".vscode/tasks.json", "", "mkdir .vscode; echo trap > .vscode/tasks.json").recorded(".vscode");
    a_new_link: file(".mcp.json", "", "echo trap > x; ln -s x .mcp.json").recorded(".mcp.json");
    new_settings_of_claude: file(".claude/settings.json", "", "mkdir .claude; echo trap > .claude/settings.json")
        .recorded(".claude");
    new_settings_beside_old_notes: file(".claude/settings.json", "mkdir .claude; echo x > .claude/notes.md",
        "echo trap > .claude/settings.json").recorded(".claude/settings.json");
    a_new_envrc_deep_inside: file("packages/web/.envrc", "mkdir -p packages/web", "echo trap > packages/web/.envrc")
        .recorded("packages/web/.envrc");
    a_new_repository: git("mkdir sub; cd sub; git init -q; git config core.fsmonitor $PAYLOAD").set_aside("sub/.git/config");
    a_new_repository_in_the_index: git("mkdir new; cd new; git init -q; git config user.name x; git config user.email x; \
        echo x > x; git add x; git commit -qm x; git config core.fsmonitor $PAYLOAD; cd ..; git add new").set_aside("new/.git/config");
    a_new_submodule: git("git init -q --bare .git/modules/new; git -C .git/modules/new config core.bare false; mkdir new; \
        git -C .git/modules/new config core.worktree ../../../new; echo 'gitdir: ../.git/modules/new' > new/.git; cd new; \
        git config user.name x; git config user.email x; echo x > x; git add x; git commit -qm x; \
        git config core.fsmonitor $PAYLOAD; cd ..; git add new").set_aside(".git/modules/new/config");
    a_new_bare_repository: git("mkdir sub; cd sub; git init -q --bare; git config core.bare false; git config core.worktree ..; \
        git config core.fsmonitor $PAYLOAD").set_aside("sub/config");
    a_new_worktree: git("git worktree add -q sub; cp -r .git evil; git config -f evil/config core.fsmonitor $PAYLOAD; \
        echo $PWD/evil > .git/worktrees/sub/commondir").set_aside("evil/config");
    a_hook_of_a_new_repository: git("mkdir sub; cd sub; git init -q; mkdir -p .git/hooks; cp $PAYLOAD .git/hooks/pre-commit")
        .set_aside("sub/.git/hooks/pre-commit");
    linked_hooks_of_a_new_repository: git("mkdir sub; cd sub; git init -q; rm -rf .git/hooks; mkdir x; \
        cp $PAYLOAD x/pre-commit; ln -s ../x .git/hooks").set_aside("sub/.git/hooks");
    a_new_repository_without_a_back_pointer: git("git init -q x; mv x/.git odd; mkdir sub; echo 'gitdir: ../odd' > sub/.git; \
        git -C sub config core.fsmonitor $PAYLOAD").set_aside("odd/config");
}

/// The last thing before the end is noticed too.
#[tokio::test]
async fn a_trap_set_at_the_very_end() {
    for number in 0..8 {
        let scratch = Scratch::new();
        let project = Shape::Plain.make(&scratch).await;
        let workspace = project.workspace.display().to_string();
        let script = "echo x > .envrc; echo ../evil > .git/commondir";
        legion::run(&scratch, &["exec", "--workspace", &workspace, "--", "bash", "-c", script]).await;
        let audit = Audit::read(&scratch);
        assert_eq!(audit.events("violation").count(), 1, "try {number}: {:#?}", audit.lines());
        assert_eq!(audit.events("pathCreated").count(), 1, "try {number}: {:#?}", audit.lines());
        assert!(!Path::new(&workspace).join(".git/commondir").exists(), "try {number}");
    }
}

/// Work with git that sets no trap leaves repositories as they are.
#[tokio::test]
async fn honest_repositories_are_left_alone() {
    let scratch = Scratch::new();
    let project = Shape::Plain.make(&scratch).await;
    let workspace = project.workspace.display().to_string();
    let script = "git init -q new && cd new && git config user.name x && git config user.email x@example.org && echo x > x && \
                  git add x && git commit -qm x && git switch -qc topic && git worktree add -q ../tree && cd .. && \
                  git clone -q new clone && git -c protocol.file.allow=always submodule add -q ./new module; \
                  cat new/.git/config clone/.git/config";
    let finished =
        legion::run(&scratch, &["exec", "--workspace", &workspace, "--", "bash", "-c", script]).await;
    finished.assert_success();
    let audit = Audit::read(&scratch);
    assert_eq!(audit.events("pathSetAside").count(), 0, "{:#?}", audit.lines());
    let after = outside(&scratch, &project.workspace, "cat new/.git/config clone/.git/config").await;
    assert_eq!(after.stdout, finished.stdout);
    assert!(finished.stdout.contains("[remote \"origin\"]"), "{finished:#?}");
}

/// What is found where a repository should be may be anything: looking at it ends.
#[tokio::test]
async fn pipes_and_devices_in_place_of_repositories_hold_nothing_up() {
    let scratch = Scratch::new();
    let project = Shape::Plain.make(&scratch).await;
    let workspace = project.workspace.display().to_string();
    let script = "mkdir a b c; mkfifo a/.git; ln -s /dev/zero b/.git; git init -q c; mkfifo c/.git/commondir";
    for script in [script, "true"] {
        let finished =
            legion::run(&scratch, &["exec", "--workspace", &workspace, "--", "bash", "-c", script]).await;
        finished.assert_success();
    }
}

/// However many there are, each is looked at.
#[tokio::test]
async fn a_trap_behind_hundreds_of_repositories() {
    let scratch = Scratch::new();
    let project = Shape::Plain.make(&scratch).await;
    let workspace = project.workspace.display().to_string();
    let script = "mkdir -p a/{001..300}/.git; git init -q z; git -C z config core.fsmonitor /x";
    let finished =
        legion::run(&scratch, &["exec", "--workspace", &workspace, "--", "bash", "-c", script]).await;
    finished.assert_success();
    let config = std::fs::read_to_string(project.workspace.join("z/.git/config")).unwrap();
    assert!(!config.contains("fsmonitor"), "{config}");
}
