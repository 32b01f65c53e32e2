//! What is decided where a rule depends on what cannot be seen, by examples.

use std::path::{Path, PathBuf};

use super::action::{Http, Look, Places, Program};
use super::rule::RuleFile;
use super::*;

/// A workspace in which `link` leads to `secret`, and `/tmp` is hidden.
struct Files;

impl Look for Files {
    fn resolve(&self, path: &Path, _: bool) -> Option<PathBuf> {
        if path.starts_with("/tmp") {
            return None;
        }
        let link = path.strip_prefix("/srv/p/link").map(|rest| Path::new("/srv/p/secret").join(rest));
        Some(link.unwrap_or_else(|_| path.to_owned()).components().collect())
    }

    fn program(&self, name: &str) -> Program {
        match name {
            "make" => Program::At("/usr/bin/make".into()),
            "cargo" => Program::Hidden,
            _ => Program::Nowhere,
        }
    }
}

fn policy(rules: &[&str]) -> Policy {
    let parse = |text: &&str| Rule::build(toml::from_str::<RuleFile>(text).unwrap()).unwrap();
    Policy { rules: rules.iter().map(parse).collect(), default: Verdict::Allow, opaque: Verdict::Ask }
}

fn decided(policy: &Policy, script: &str, cwd: &str) -> Verdict {
    let places = Places { workspace: vec!["/srv/p".into(), "/workspace".into()] };
    let sight = Sight { places: &places, look: Some(&Files) };
    let argv = ["bash", "-c", script].map(str::to_owned).to_vec();
    let what = sight.command(argv, None, Path::new(cwd), Vec::new());
    policy.decide(&Action { method: "process/start", what }).verdict
}

#[test]
fn a_directory_has_the_names_its_links_lead_to() {
    let closed = policy(&["id='a'\ncwd='secret/**'\ncommand=['make']\ndecision='deny'"]);
    for (script, cwd, expected) in [
        ("make", "/srv/p/secret/x", Verdict::Deny),
        ("make", "/srv/p/link/x", Verdict::Deny),
        ("make", "/srv/p/src", Verdict::Allow),
        ("cd secret/x && make", "/srv/p", Verdict::Ask),
        ("env -C secret/x make", "/srv/p", Verdict::Ask),
        ("cd secret/x && ls", "/srv/p", Verdict::Allow),
        ("make", "/tmp/x", Verdict::Ask),
    ] {
        assert_eq!(decided(&closed, script, cwd), expected, "{script} in {cwd}");
    }
    let mut open = policy(&["id='a'\ncwd='link/**'\ncommand=['make']\ndecision='allow'"]);
    open.default = Verdict::Deny;
    assert_eq!(decided(&open, "make", "/srv/p/link/x"), Verdict::Deny, "it is secret/x as well");
}

#[test]
fn a_program_may_be_anywhere_when_its_place_is_not_seen() {
    let none_of_ours = policy(&["id='a'\nexe='**'\ndecision='deny'"]);
    for (script, expected) in [
        ("make", Verdict::Allow),
        ("./x", Verdict::Deny),
        ("/workspace/x", Verdict::Deny),
        ("link/x", Verdict::Deny),
        ("cargo test", Verdict::Ask),
        ("PATH=bin:$PATH make", Verdict::Ask),
        ("cd sub && ../x", Verdict::Ask),
        ("cd sub && make", Verdict::Allow),
        ("export A=b; make", Verdict::Allow),
        ("/tmp/x", Verdict::Ask),
    ] {
        // As `bash` itself is nowhere, only what it runs counts.
        assert_eq!(decided(&none_of_ours, script, "/srv/p"), expected, "{script}");
    }
}

#[test]
fn a_denied_host_may_be_behind_a_redirection() {
    let closed =
        policy(&["id='a'\nhost='*.evil.example'\ndecision='deny'", "id='b'\nhttp='GET'\ndecision='allow'"]);
    let verdict = |method: &str, url: &str, follows| {
        let what = What::Http(Http::new(method, url, follows));
        closed.decide(&Action { method: "http/request", what }).verdict
    };
    assert_eq!(verdict("GET", "https://a.evil.example/", false), Verdict::Deny);
    assert_eq!(verdict("GET", "https://example.com/", false), Verdict::Allow);
    assert_eq!(verdict("GET", "https://example.com/", true), Verdict::Ask);
    assert_eq!(verdict("POST", "https://example.com/", true), Verdict::Ask);
    let address = policy(&["id='a'\nhost=['::1', '127.0.0.1']\ndecision='deny'"]);
    for url in [
        "http://[0:0:0::1]/",
        "http://127.0.0.1/",
        "http://[::ffff:7f00:1]/",
        "http://127.1/",
        "http://0x7f000001/",
    ] {
        let what = What::Http(Http::new("GET", url, false));
        let verdict = address.decide(&Action { method: "http/request", what }).verdict;
        assert_ne!(verdict, Verdict::Allow, "{url}");
    }
}

#[test]
fn what_is_asked_about_may_hide_what_is_denied() {
    let mut rules = policy(&[
        "id='ask'\ncommand=['git']\ndecision='ask'",
        "id='push'\ncommand=['git','push']\ndecision='deny'",
    ]);
    rules.opaque = Verdict::Deny;
    for (script, expected) in [
        ("git status", Verdict::Ask),
        ("git log $x", Verdict::Ask),
        ("git $x", Verdict::Deny),
        ("git push $x", Verdict::Deny),
    ] {
        assert_eq!(decided(&rules, script, "/srv/p"), expected, "{script}");
    }
}

#[test]
fn a_client_cannot_set_what_shells_obey() {
    let places = Places::default();
    let rules = policy(&["id='a'\ncommand=['curl']\ndecision='deny'"]);
    for (name, expected) in [
        ("BASH_ENV", Verdict::Ask),
        ("BASH_FUNC_ls%%", Verdict::Ask),
        ("LD_PRELOAD", Verdict::Ask),
        ("GIT_CONFIG_COUNT", Verdict::Ask),
        ("PATH", Verdict::Allow),
        ("PAGER", Verdict::Allow),
    ] {
        let argv = ["bash", "-c", "ls"].map(str::to_owned).to_vec();
        let what =
            Sight { places: &places, look: None }.command(argv, None, Path::new("/w"), vec![name.to_owned()]);
        assert_eq!(rules.decide(&Action { method: "process/start", what }).verdict, expected, "{name}");
    }
}
