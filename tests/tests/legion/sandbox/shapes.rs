//! Repositories of every shape times the commands people use: git goes on working inside.
//!
//! Invariant: a command that fails names itself; afterwards the host's git sees what was done inside and finds it whole.

use legion_tests::legion;
use legion_tests::scratch::Scratch;
use legion_tests::user::Identity;

use super::outside;
use super::repositories::{INIT, Project, Shape};

/// What every shape must be able to do: name and script. They build on one another.
const COMMANDS: &[(&str, &str)] = &[
    ("status", "git status --short"),
    ("add", "echo two > two.txt; git add two.txt"),
    ("commit", "git commit -qm two"),
    ("log", "git log --oneline -1 | grep two"),
    ("branch", "git branch side"),
    (
        "switch",
        "git switch -q -c topic; echo three > three.txt; git add three.txt; git commit -qm three; git switch -q -",
    ),
    ("merge", "git merge -q --no-ff --no-edit topic"),
    (
        "rebase",
        "git switch -q side; echo four > four.txt; git add four.txt; git commit -qm four; git rebase -q -; git switch -q -",
    ),
    (
        "stash",
        "echo changed >> two.txt; git stash -q; git diff --quiet; git stash pop -q; grep changed two.txt",
    ),
    ("restore", "git restore two.txt; git diff --quiet"),
    ("amend", "git commit -q --amend -m 'two, amended'"),
    ("tag", "git tag -a -m tagged v1; git describe"),
    (
        "worktree add",
        "git worktree add -q ./tree; cd tree; echo five > five.txt; git add five.txt; git commit -qm five",
    ),
    ("worktree remove", "git worktree remove ./tree; git merge -q tree"),
    ("gc", "git gc -q"),
    ("fsck", "git fsck --no-dangling"),
];

/// Makes the shape for every kind of user and view, runs all commands inside, and looks at it from outside.
async fn works(shape: Shape) {
    works_after(shape, "").await;
}

/// The same after something was done inside.
async fn works_after(shape: Shape, preparation: &str) {
    let user = [(Identity::User, "minimal"), (Identity::User, "host-ro")].map(Some);
    let root = Identity::root().map(|root| (root, "minimal"));
    for (identity, view) in user.into_iter().chain([root]).flatten() {
        let scratch = Scratch::owned_by(identity);
        let project = shape.make(&scratch).await;
        project.configure(&scratch, view);
        works_in(&scratch, &project, preparation).await;
    }
}

async fn works_in(scratch: &Scratch, project: &Project, preparation: &str) {
    let commands = COMMANDS
        .iter()
        .map(|(name, command)| format!("(set -e; {command}) || {{ echo 'FAILED: {name}' >&2; exit 1; }}\n"));
    let commands: String = commands.collect();
    let script =
        format!("set -e -o pipefail\ncd {}\n{preparation}\n{commands}", project.repository.display());
    let workspace = project.workspace.display().to_string();
    let args = ["exec", "--workspace", &workspace, "--", "bash", "-c", &script];
    let finished = legion::run(scratch, &args).await;
    assert!(finished.status.success(), "{finished:#?}");
    let look = "set -e -o pipefail; git fsck --no-dangling; git status --short; git log --oneline; cat two.txt five.txt";
    let seen = outside(scratch, &project.repository, look).await;
    assert!(seen.status.success(), "{seen:#?}");
    for commit in ["two, amended", "three", "five"] {
        assert!(seen.stdout.contains(commit), "{seen:#?}");
    }
}

#[tokio::test]
async fn a_plain_repository() {
    works(Shape::Plain).await;
}

#[tokio::test]
async fn a_linked_worktree() {
    works(Shape::LinkedWorktree).await;
}

#[tokio::test]
async fn a_worktree_of_a_bare_repository() {
    works(Shape::WorktreeOfBare).await;
}

#[tokio::test]
async fn a_repository_with_a_submodule() {
    works(Shape::Superproject).await;
}

#[tokio::test]
async fn a_submodule_by_itself() {
    works(Shape::Submodule).await;
}

#[tokio::test]
async fn a_git_directory_that_is_a_link_inside() {
    works(Shape::GitLinkInside).await;
}

#[tokio::test]
async fn a_hooks_directory_that_is_a_link() {
    let scratch = Scratch::new();
    let project = Shape::HooksLink.make(&scratch).await;
    works_in(&scratch, &project, "").await;
    works(Shape::HooksLink).await;
    assert!(scratch.read("workspace/hook-ran").is_some(), "the hook of the host has not run inside");
}

#[tokio::test]
async fn a_repository_of_repositories() {
    works(Shape::Monorepo).await;
}

#[tokio::test]
async fn a_repository_within_a_repository() {
    works(Shape::Nested).await;
}

#[tokio::test]
async fn an_empty_directory_that_becomes_a_repository() {
    works_after(Shape::Empty, INIT).await;
}

/// A git directory elsewhere is nobody's business unless the persona says so.
#[tokio::test]
async fn a_git_directory_that_is_a_link_outside() {
    let scratch = Scratch::new();
    let project = Shape::GitLinkOutside.make(&scratch).await;
    let workspace = project.workspace.display().to_string();
    let args = ["exec", "--workspace", &workspace, "--", "git", "status"];
    let finished = legion::run(&scratch, &args).await;
    assert_eq!(finished.code(), 128, "{finished:#?}");
    let data = scratch.outside().join("data").display().to_string();
    assert!(
        finished.stderr.contains(&data) && finished.stderr.contains("outside the workspace"),
        "{finished:#?}"
    );
    works(Shape::GitLinkMounted).await;
}

/// The host has initialised the submodule, as `.git/config` says; what is cloned comes into being inside.
#[tokio::test]
async fn a_submodule_is_updated_from_a_local_repository() {
    let scratch = Scratch::new();
    let project = Shape::Superproject.make(&scratch).await;
    let forget = "set -e; rm -rf library .git/modules; git submodule status";
    outside(&scratch, &project.workspace, forget).await.assert_success();
    let script = "set -e; git -c protocol.file.allow=always submodule --quiet update; cat library/v.txt; git status --short; \
                  cd library; git log --oneline";
    let workspace = project.workspace.display().to_string();
    let finished =
        legion::run(&scratch, &["exec", "--workspace", &workspace, "--", "bash", "-c", script]).await;
    finished.assert_success();
    assert!(finished.stdout.starts_with("v\n"), "{finished:#?}");
    let seen = outside(&scratch, &project.workspace, "git submodule status --recursive; git fsck").await;
    seen.assert_success();
    assert!(seen.stdout.starts_with(' '), "{seen:#?}");
}
