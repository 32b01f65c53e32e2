//! Command lines with tricks, and what must become of them; and that every way to the decision is the same.

use std::path::Path;
use std::rc::Rc;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::action::{Op, Places, Sight};
use super::rule::RuleFile;
use super::*;
use crate::audit::redact::Redactor;
use crate::gate::{Judge, Ruling, recorded};
use crate::policy::workspace::narrow;

/// Rules of the corpus.
const RULES: &[&str] = &[
    "id='git'\ncommand=['git']\ndecision='allow'",
    "id='ls'\ncommand=['ls']\ndecision='allow'",
    "id='cd'\ncommand=['cd']\ndecision='allow'",
    "id='set'\ncommand=['set']\ndecision='allow'",
    "id='make'\ncommand=['make']\ndecision='allow'",
    "id='test'\ncommand=['cargo','test']\ndecision='allow'",
    "id='echo'\ncommand=['echo']\ndecision='allow'",
    "id='push'\ncommand=['git','push']\ndecision='deny'",
    "id='rm'\ncommand=['rm','-rf']\ndecision='deny'",
    "id='curl'\ncommand=['curl']\ndecision='deny'",
    "id='rebase'\ncommand=['git','rebase']\ndecision='ask'",
    "id='publish'\ncommand=['npm','publish']\ndecision='ask'",
    "id='sudo'\ncommand=['sudo']\ndecision='ask'",
];

fn policy(rules: &[&str], default: Verdict, opaque: Verdict) -> Policy {
    let parse = |text: &&str| Rule::build(toml::from_str::<RuleFile>(text).unwrap()).unwrap();
    Policy { rules: rules.iter().map(parse).collect(), default, opaque }
}

fn places() -> Places {
    Places { workspace: vec!["/srv/p".into(), "/workspace".into()] }
}

fn command(argv: Vec<String>) -> Action {
    let places = places();
    let sight = Sight { places: &places, look: None };
    Action { method: "process/start", what: sight.command(argv, None, Path::new("/srv/p"), Vec::new()) }
}

fn bash(script: &str) -> Action {
    command(["/bin/bash", "-lc", script].map(str::to_owned).to_vec())
}

/// What the corpus calls a decision. The two defaults are told apart by being different.
fn outcome(policy: &Policy, action: &Action) -> &'static str {
    let decision = policy.decide(action);
    match decision.because {
        Because::Rule(_) => decision.verdict.name(),
        Because::Default => "none",
        Because::Opaque(_) => "opaque",
    }
}

/// The lines of a corpus: what is expected, and the script.
fn lines(corpus: &str) -> impl Iterator<Item = (&str, String)> {
    let lines = corpus.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let (expected, script) = line.split_once(" | ").unwrap();
        let script =
            script.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t").replace("\\x01", "\u{1}");
        (expected, script)
    })
}

#[test]
fn the_corpus_is_classified_as_expected() {
    // What cannot be seen is asked about, so that a deny by default of another part would hide nothing.
    let strict = policy(RULES, Verdict::Deny, Verdict::Deny);
    let mut wrong = Vec::new();
    let mut count = 0;
    for (expected, script) in lines(include_str!("corpus.txt")) {
        let got = outcome(&strict, &bash(&script));
        count += 1;
        // Nothing seen and something unseen are both no rule's: which is told first does not matter, allowing would.
        let unseen = ["none", "opaque"];
        if got != expected && !(unseen.contains(&got) && unseen.contains(&expected)) {
            wrong.push(format!("{script:?}: {got}, not {expected}"));
        }
        if expected == "opaque" && !is_opaque(&script) {
            wrong.push(format!("{script:?}: is not opaque"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 100, "{count}");
}

#[test]
fn ordinary_work_is_no_riddle_and_tricks_are() {
    let rules: Vec<_> = RULES.iter().filter(|rule| !rule.contains("'allow'")).copied().collect();
    let open = policy(&rules, Verdict::Allow, Verdict::Deny);
    let mut wrong = Vec::new();
    for (expected, script) in lines(include_str!("corpus_open.txt")) {
        let got = match outcome(&open, &bash(&script)) {
            "none" => "pass",
            other => other,
        };
        if got != expected {
            let reasons = match bash(&script).what {
                What::Command(command) => command.reading.opaque.join("; "),
                _ => String::new(),
            };
            wrong.push(format!("{script:?}: {got}, not {expected} ({reasons})"));
        }
    }
    assert!(wrong.is_empty(), "{}\n{} wrong", wrong.join("\n"), wrong.len());
}

/// Whether only the default for opaque commands lets it pass.
fn is_opaque(script: &str) -> bool {
    let rules: Vec<_> = RULES.iter().filter(|rule| !rule.contains("'allow'")).copied().collect();
    let decision = policy(&rules, Verdict::Allow, Verdict::Deny).decide(&bash(script));
    matches!(decision.because, Because::Opaque(_))
}

/// Pieces that scripts are made of.
const PIECES: &[&str] = &[
    "git§push§status§ls§ §  §;§&&§||§|§&§\n§(§)§{ §; }§$(§`§'§\"§\\§$x§*§~§>§<§2>&1§<<E\n§\nE\n§<<<§if ",
    "; then §; fi§while §; do §; done§case x in §x) §;; esac§function f§f() §eval §env §sudo §xargs ",
    "find . -exec § ;§sh -c §bash -lc §A=b §A=(§[[ § ]]§((§))§timeout 5 §#§=§-c§--§999999999999>x",
    "~99999999999999999999§${x:-$(y)}§<(§>(§&>§|&§é§\u{0}§\r",
];

fn script() -> impl Strategy<Value = String> {
    let all: Vec<&str> = PIECES.iter().flat_map(|line| line.split('§')).collect();
    let piece = prop::sample::select(all);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn argv() -> impl Strategy<Value = Vec<String>> {
    let shells = prop::sample::select(vec!["/bin/bash", "sh", "bash", "/usr/bin/dash"]);
    let flags = prop::sample::select(vec!["-lc", "-c", "-euc"]);
    let words = prop::sample::select(vec![
        "git", "push", "ls", "env", "sudo", "-u", "root", "xargs", "A=b", "rm", "-rf", "x",
    ]);
    prop_oneof![
        3 => (shells, flags, script()).prop_map(|(shell, flag, script)| vec![shell.into(), flag.into(), script]),
        1 => prop::collection::vec(words.prop_map(str::to_owned), 1..6),
    ]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop::sample::select(vec![Verdict::Allow, Verdict::Ask, Verdict::Deny])
}

/// One rule about something that the actions have.
fn rule_text() -> impl Strategy<Value = String> {
    let about = prop::sample::select(vec![
        "command=['git']",
        "command=['git','push']",
        "command=['ls']",
        "command=['sudo']",
        "command=['rm','-rf']",
        "command=['bash']",
        "cwd='.'",
        "cwd='sub/**'",
        "env='A'",
        "method='process/*'",
        "method='fs/*'",
        "path='src/**'",
        "path='**/x'\nop='write'",
        "path='/etc/**'",
        "op=['remove','copy-source']",
        "host='example.com'",
        "host='*.example.com'\nhttp='POST'",
        "method='*'",
        "argv=['git','push']",
    ]);
    (about, verdict()).prop_map(|(about, verdict)| format!("{about}\ndecision='{}'", verdict.name()))
}

fn any_policy() -> impl Strategy<Value = Policy> {
    (prop::collection::vec(rule_text(), 0..6), verdict(), verdict()).prop_map(|(texts, default, opaque)| {
        let texts: Vec<_> =
            texts.iter().enumerate().map(|(at, text)| format!("id='r{at}'\n{text}")).collect();
        policy(&texts.iter().map(String::as_str).collect::<Vec<_>>(), default, opaque)
    })
}

/// A call: as the frame a client would send, and as what `policy why` is asked.
fn call() -> impl Strategy<Value = (serde_json::Value, Action)> {
    let path =
        prop::sample::select(vec!["/srv/p/src/a", "/workspace/x", "/srv/p", "/etc/passwd", "/srv/p/b/x"]);
    let flag = any::<bool>();
    let start = argv().prop_map(|argv| {
        let params =
            json!({ "processId": "1", "argv": argv, "cwd": "file:///srv/p", "env": {}, "tty": false });
        (json!({ "id": 1, "method": "process/start", "params": params }), command(argv))
    });
    let files = (path.clone(), path, flag, 0..5usize).prop_map(|(one, other, tree, kind)| {
        let places = places();
        let sight = Sight { places: &places, look: None };
        let uri = |path: &str| format!("file://{path}");
        let touch = |op, tree| vec![sight.touch(op, Path::new(one), tree)];
        let (method, params, touches) = match kind {
            0 => ("fs/readFile", json!({ "path": uri(one) }), touch(Op::Read, false)),
            1 => ("fs/writeFile", json!({ "path": uri(one), "dataBase64": "" }), touch(Op::Write, false)),
            2 => ("fs/remove", json!({ "path": uri(one), "recursive": tree }), touch(Op::Remove, tree)),
            3 => {
                let params = json!({ "path": uri(one), "handleId": "h", "mode": if tree { "replace" } else { "read" } });
                ("fs/open", params, touch(if tree { Op::Write } else { Op::Read }, false))
            }
            _ => {
                let params =
                    json!({ "sourcePath": uri(one), "destinationPath": uri(other), "recursive": tree });
                let both = [(Op::CopySource, one), (Op::CopyDestination, other)];
                ("fs/copy", params, both.iter().map(|(op, path)| sight.touch(*op, Path::new(path), tree)).collect())
            }
        };
        (json!({ "id": 1, "method": method, "params": params }), Action { method, what: What::Files(touches) })
    });
    let url = prop::sample::select(vec![
        "https://example.com/",
        "http://A.example.com:80/x",
        "https://x@example.com",
    ]);
    let http = (url, any::<bool>()).prop_map(|(url, follows)| {
        let policy = if follows { "follow" } else { "stop" };
        let params = json!({ "method": "POST", "url": url, "requestId": "1", "redirectPolicy": policy });
        let what = What::Http(Http::new("POST", url, follows));
        (
            json!({ "id": 1, "method": "http/request", "params": params }),
            Action { method: "http/request", what },
        )
    });
    prop_oneof![4 => start, 3 => files, 1 => http]
}

/// What the gate makes of a frame: the verdict and the rule, and the record if it has one.
fn judged(text: &str, rules: &Rules) -> (Verdict, Option<String>, Option<crate::audit::record::Object>) {
    let (redactor, places) = (Redactor::default(), places());
    match (Judge { redactor: &redactor, rules, sight: Sight { places: &places, look: None } }).judge(text) {
        Ruling::Forward(forwarded) => (Verdict::Allow, forwarded.rule, forwarded.call),
        Ruling::Ask(forwarded, decided) => {
            (Verdict::Ask, decided.decision.rule().map(str::to_owned), forwarded.call)
        }
        Ruling::Refuse(refused) => (Verdict::Deny, refused.rule, refused.object),
        Ruling::Close(why) => panic!("{why}"),
    }
}

/// A hundred thousand calls: the gate decides on the frame as `why` does on the arguments, and as `replay` does on the record.
#[test]
fn why_and_replay_decide_as_the_gate_does() {
    let config = ProptestConfig { cases: 100_000, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&(any_policy(), call()), |(policy, (frame, action))| {
            let rules = Rules { persona: Rc::new(policy), workspace: None };
            let why = rules.decide(&action);
            let (verdict, rule, object) = judged(&frame.to_string(), &rules);
            prop_assert_eq!(verdict, why.verdict, "{}", &frame);
            if !rules.is_open() {
                prop_assert_eq!(rule.as_deref(), why.rule(), "{}", &frame);
            }
            let record = json!({ "method": frame["method"], "object": object });
            let places = places();
            if let Some(again) = recorded::action(&record, Sight { places: &places, look: None }) {
                prop_assert_eq!(rules.decide(&again), why, "{}", &record);
            }
            Ok(())
        })
        .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Adding a rule moves a decision only towards what the rule decides, and only where it wins.
    #[test]
    fn deny_wins_over_ask_over_allow(policy in any_policy(), (_, action) in call(), text in rule_text()) {
        let before = policy.decide(&action);
        let rule = Rule::build(toml::from_str(&format!("id='added'\n{text}")).unwrap()).unwrap();
        let added = rule.decision;
        let mut after = policy;
        after.rules.push(rule);
        let after = after.decide(&action);
        match added {
            Verdict::Deny => prop_assert!(after.verdict >= before.verdict),
            Verdict::Allow if before.verdict == Verdict::Deny => {
                prop_assert!(after.verdict == Verdict::Deny || before.rule().is_none(), "a deny rule gave way");
            }
            _ => {}
        }
        if before.verdict == Verdict::Deny && before.rule().is_some() {
            prop_assert_eq!(after.verdict, Verdict::Deny);
        }
    }

    /// Whatever a workspace's file says, nothing is allowed that the persona does not allow.
    #[test]
    fn a_workspace_never_widens(persona in any_policy(), (_, action) in call(),
                                texts in prop::collection::vec(rule_text(), 0..5), default in verdict(), opaque in verdict()) {
        let mut text = format!("default = '{}'\nopaque = '{}'\n", default.name(), opaque.name());
        for (at, rule) in texts.iter().enumerate() {
            text.extend([format!("[[rule]]\nid = 'w{at}'\n{rule}\n")]);
        }
        let narrowing = narrow(&text, &persona).unwrap();
        let before = persona.decide(&action);
        let rules = Rules { persona: Rc::new(persona), workspace: Some(Rc::new(narrowing.policy)) };
        prop_assert!(rules.decide(&action).verdict >= before.verdict);
    }

    /// The rule that a refusal names as the narrowest permits the call, and a changed call stays refused.
    #[test]
    fn the_rule_in_a_refusal_permits_the_call((frame, action) in call()) {
        let refusing = policy(&[], Verdict::Deny, Verdict::Deny);
        let decision = refusing.decide(&action);
        let error = refusal::error(refusal::Kind::Denied, &decision, &action, &Redactor::default());
        let mut allow = error.data.unwrap()["allow"].take();
        if !allow.is_null() {
            allow["id"] = json!("named");
            let rule = Rule::build(serde_json::from_value(allow).unwrap()).unwrap();
            let permitting = Policy { rules: vec![rule], ..refusing };
            prop_assert_eq!(permitting.decide(&action).verdict, Verdict::Allow, "{}", &frame);
            prop_assert_eq!(permitting.decide(&bash("another")).verdict, Verdict::Deny);
        }
    }

    /// Whatever is thrown at it, a script is taken apart in bounded time, and nobody panics.
    #[test]
    fn no_script_is_too_much(script in prop_oneof![script(), "\\PC{0,200}"]) {
        let started = std::time::Instant::now();
        let _ = bash(&script.repeat(4));
        let _ = bash(&script);
        prop_assert!(started.elapsed().as_secs() < 5, "{script:?}");
    }
}
