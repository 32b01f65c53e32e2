//! What is decided, by examples.

use std::path::Path;
use std::rc::Rc;

use super::action::{Command, Http, Op, Places, Touch};
use super::rule::RuleFile;
use super::*;

fn places() -> Places {
    Places { workspace: vec!["/srv/p".into(), "/workspace".into()] }
}

fn policy(text: &str) -> Policy {
    #[derive(serde::Deserialize)]
    struct File {
        #[serde(default)]
        rule: Vec<RuleFile>,
        default: Option<Verdict>,
        opaque: Option<Verdict>,
    }
    let file: File = toml::from_str(text).unwrap();
    let default = file.default.unwrap_or(Verdict::Allow);
    let rules = file.rule.into_iter().map(|rule| Rule::build(rule).unwrap()).collect();
    Policy { rules, default, opaque: file.opaque.unwrap_or(default) }
}

fn action(argv: &[&str]) -> Action {
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    let command = Command::new(argv, None, places().names(Path::new("/srv/p")), Vec::new());
    Action { method: "process/start", what: What::Command(Box::new(command)) }
}

fn bash(script: &str) -> Action {
    action(&["/bin/bash", "-lc", script])
}

fn touch(op: Op, path: &str, tree: bool) -> Action {
    let names = places().names(Path::new(path));
    let touch = Touch { op, path: path.into(), names: vec![names], lost: false, tree };
    Action { method: "fs/remove", what: What::Files(vec![touch]) }
}

const GIT: &str = r#"
    default = "deny"
    opaque = "ask"
    [[rule]]
    id = "git"
    command = ["git"]
    decision = "allow"
    [[rule]]
    id = "no-push"
    command = ["git", "push"]
    decision = "deny"
    message = "pushes leave the machine"
    [[rule]]
    id = "ask-rebase"
    command = ["git", "rebase"]
    decision = "ask"
"#;

#[test]
fn deny_wins_over_ask_over_allow_over_the_default() {
    let policy = policy(GIT);
    let decide = |script: &str| policy.decide(&bash(script));
    assert_eq!(decide("git status").rule(), Some("git"));
    assert_eq!(decide("git rebase main").verdict, Verdict::Ask);
    let denied = decide("git rebase main && git push");
    assert_eq!((denied.verdict, denied.rule()), (Verdict::Deny, Some("no-push")));
    assert_eq!(denied.message.as_deref(), Some("pushes leave the machine"));
    assert_eq!(denied.part.as_deref(), Some("git push"));
    assert_eq!(decide("ls").because, Because::Default);
    assert_eq!(decide("git status; ls").verdict, Verdict::Deny);
    assert_eq!(decide("git log $(x)").verdict, Verdict::Ask);
    assert_eq!(decide("git log $x").rule(), Some("git"));
    assert!(matches!(decide("git $x").because, Because::Opaque(_)));
}

#[test]
fn what_is_visible_of_an_opaque_command_is_still_denied() {
    let policy = policy(GIT);
    for script in
        ["echo $(git push)", "git push $x", "eval 'git push'", "watch -n 5 git push", "bash <<< 'git push'"]
    {
        assert_eq!(policy.decide(&bash(script)).rule(), Some("no-push"), "{script}");
    }
}

#[test]
fn an_exact_rule_allows_even_what_cannot_be_seen() {
    let policy = policy(
        r#"
        default = "deny"
        [[rule]]
        id = "this"
        argv = ["/bin/bash", "-lc", "eval $x"]
        decision = "allow"
        "#,
    );
    assert_eq!(policy.decide(&bash("eval $x")).verdict, Verdict::Allow);
    assert_eq!(policy.decide(&bash("eval  $x")).verdict, Verdict::Deny);
}

#[test]
fn an_allow_rule_takes_no_variable_it_does_not_name() {
    let policy = policy(
        r#"
        default = "deny"
        [[rule]]
        id = "make"
        command = ["make"]
        env = ["CC"]
        decision = "allow"
        "#,
    );
    assert_eq!(policy.decide(&bash("CC=clang make")).verdict, Verdict::Allow);
    for script in
        ["PATH=. make", "X=1; make", "export PATH=.; make", "env LD_PRELOAD=x make", "./make", "make > f"]
    {
        assert_eq!(policy.decide(&bash(script)).verdict, Verdict::Deny, "{script}");
    }
}

#[test]
fn paths_are_decided_by_operation_and_all_their_names() {
    let policy = policy(
        r#"
        [[rule]]
        id = "ci"
        path = ".github/**"
        op = ["write", "remove"]
        decision = "deny"
        "#,
    );
    let verdict = |op, path: &str, tree| policy.decide(&touch(op, path, tree)).verdict;
    assert_eq!(verdict(Op::Write, "/srv/p/.github/w.yml", false), Verdict::Deny);
    assert_eq!(verdict(Op::CopyDestination, "/workspace/.github/w.yml", false), Verdict::Deny);
    assert_eq!(verdict(Op::Read, "/workspace/.github/w.yml", false), Verdict::Allow);
    assert_eq!(verdict(Op::Remove, "/srv/p", true), Verdict::Deny, "what lies below goes with it");
    assert_eq!(verdict(Op::Remove, "/srv/p/src", true), Verdict::Allow);
}

#[test]
fn requests_are_decided_by_host_and_method() {
    let policy = policy(
        r#"
        default = "deny"
        [[rule]]
        id = "docs"
        host = "*.example.com"
        http = ["GET"]
        decision = "allow"
        "#,
    );
    let verdict = |method: &str, url: &str, follows| {
        let what = What::Http(Http::new(method, url, follows));
        policy.decide(&Action { method: "http/request", what }).verdict
    };
    assert_eq!(verdict("get", "https://docs.example.com/x", false), Verdict::Allow);
    assert_eq!(verdict("POST", "https://docs.example.com/x", false), Verdict::Deny);
    assert_eq!(
        verdict("GET", "https://docs.example.com/x", true),
        Verdict::Deny,
        "a redirection may lead anywhere"
    );
    assert_eq!(verdict("GET", "https://docs.example.com@evil/x", false), Verdict::Deny);
}

#[test]
fn a_workspace_only_narrows() {
    let rules = Rules {
        persona: Rc::new(policy(GIT)),
        workspace: Some(Rc::new(policy("[[rule]]\nid='no'\ncommand=['git','commit']\ndecision='deny'"))),
    };
    assert_eq!(rules.decide(&bash("git commit")).rule(), Some("no"));
    assert_eq!(rules.decide(&bash("git push")).rule(), Some("no-push"));
    assert_eq!(rules.decide(&bash("git status")).verdict, Verdict::Allow);
}

#[test]
fn rules_that_make_no_sense_are_told() {
    for (text, why) in [
        ("command=['x']\ndecision='deny'", "is no id"),
        ("id='a'\ndecision='deny'", "nothing to match"),
        ("id='a'\ncommand=['x']", "say allow, ask or deny"),
        ("id='a'\ncommand=['x']\nhost='x'\ndecision='deny'", "mixes kinds"),
        ("id='a'\ncommand=[]\ndecision='deny'", "at least one word"),
        ("id='a'\npath='../x'\ndecision='deny'", "`..`"),
        ("id='a'\nmethod='fs/nothing'\ndecision='deny'", "no guarded method"),
        ("id='a'\ncommand=['x']\nenv='A B'\ndecision='deny'", "no variable name"),
    ] {
        let error = Rule::build(toml::from_str(text).unwrap()).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn a_secret_is_given_only_where_every_part_is_covered_by_a_rule_that_gives_it() {
    let policy = policy(
        r#"
        [[rule]]
        id = "publish"
        command = ["npm", "publish"]
        decision = "allow"
        secrets = ["NPM_TOKEN", "CI_*"]
        [[rule]]
        id = "view"
        command = ["npm", "view"]
        decision = "ask"
        secrets = "NPM_TOKEN"
        [[rule]]
        id = "ls"
        command = ["ls"]
        decision = "allow"
        "#,
    );
    let given = |action: &Action| policy.secrets(action);
    assert_eq!(given(&action(&["npm", "publish", "--tag", "next"])), ["CI_*", "NPM_TOKEN"]);
    assert_eq!(given(&bash("npm publish")), ["CI_*", "NPM_TOKEN"]);
    assert_eq!(given(&bash("npm publish && npm view x")), ["NPM_TOKEN"]);
    for script in [
        "npm install",
        "ls",
        "npm publish; ls",
        "npm publish && env",
        "npm publish | tee log",
        "env; npm publish",
        "X=1 npm publish",
        "eval npm publish",
        "npm publish $(env)",
        "$NPM publish",
        "npm publish & cat /proc/*/environ",
        "PATH=. npm publish",
        "sudo npm publish; printenv",
        "echo npm publish",
    ] {
        assert_eq!(given(&bash(script)), [""; 0], "{script}");
    }
    let names = ["LD_PRELOAD".to_owned()].to_vec();
    let words = ["npm", "publish"].map(str::to_owned).to_vec();
    let command = Command::new(words, None, places().names(Path::new("/srv/p")), names);
    let preloaded = Action { method: "process/start", what: What::Command(Box::new(command)) };
    assert_eq!(given(&preloaded), [""; 0], "the client chooses what npm is");
}

#[test]
fn secrets_belong_to_rules_that_let_commands_run() {
    let build = |text: &str| Rule::build(toml::from_str(text).unwrap()).map(|_| ());
    assert!(build("id = \"a\"\ncommand = [\"x\"]\ndecision = \"allow\"\nsecrets = \"A_*\"").is_ok());
    for text in [
        "id = \"a\"\ncommand = [\"x\"]\ndecision = \"deny\"\nsecrets = \"A\"",
        "id = \"a\"\npath = \"/x\"\ndecision = \"allow\"\nsecrets = \"A\"",
        "id = \"a\"\nmethod = \"process/start\"\ndecision = \"allow\"\nsecrets = \"A\"",
        "id = \"a\"\ncommand = [\"x\"]\ndecision = \"allow\"\nsecrets = \"A=1\"",
    ] {
        assert!(build(text).is_err(), "{text}");
    }
}

#[test]
fn a_program_that_runs_elsewhere_is_not_in_the_working_directory() {
    let policy = policy(
        r#"
        default = "deny"
        [[rule]]
        id = "find"
        command = ["find"]
        decision = "allow"
        [[rule]]
        id = "make"
        command = ["make"]
        cwd = "."
        decision = "allow"
        "#,
    );
    let verdict = |script: &str| policy.decide(&bash(script)).verdict;
    for here in ["make", "env -u C make", "find . -exec make \\;"] {
        assert_eq!(verdict(here), Verdict::Allow, "{here}");
    }
    for elsewhere in [
        "env -C /tmp make",
        "env -iC/tmp make",
        "env --chd=/tmp make",
        "find . -execdir make \\;",
        "find . -okdir make {} +",
    ] {
        assert_eq!(verdict(elsewhere), Verdict::Deny, "{elsewhere}");
    }
}

#[test]
fn where_links_cannot_be_followed_only_deny_rules_count() {
    let policy = policy(
        r#"
        default = "allow"
        opaque = "ask"
        [[rule]]
        id = "tmp"
        path = "/tmp/**"
        decision = "allow"
        [[rule]]
        id = "key"
        path = "/tmp/key"
        decision = "deny"
        "#,
    );
    let verdict = |path: &str, lost: bool| {
        let touch = Touch {
            op: Op::Read,
            path: path.into(),
            names: vec![places().names(Path::new(path))],
            lost,
            tree: false,
        };
        policy.decide(&Action { method: "fs/readFile", what: What::Files(vec![touch]) }).verdict
    };
    assert_eq!(verdict("/tmp/a", false), Verdict::Allow);
    assert_eq!(verdict("/tmp/a", true), Verdict::Ask);
    assert_eq!(verdict("/var/a", true), Verdict::Ask);
    assert_eq!(verdict("/tmp/key", true), Verdict::Deny);
}

#[test]
fn exact_arguments_are_not_those_of_another_name() {
    let policy = policy("default = 'deny'\n[[rule]]\nid = 'x'\nargv = ['busybox', 'x']\ndecision = 'allow'");
    let verdict = |alias: Option<&str>| {
        let argv = vec!["busybox".to_owned(), "x".to_owned()];
        let command = Command::new(argv, alias, places().names(Path::new("/srv/p")), Vec::new());
        policy.decide(&Action { method: "process/start", what: What::Command(Box::new(command)) }).verdict
    };
    assert_eq!(verdict(None), Verdict::Allow);
    assert_eq!(verdict(Some("busybox")), Verdict::Allow);
    assert_eq!(verdict(Some("sh")), Verdict::Deny);
}
