//! `policy why|check|replay`: nothing runs, and what is said is what would happen.

use legion_tests::audit::Audit;
use legion_tests::legion;
use legion_tests::scratch::Scratch;
use serde_json::Value;

/// Exit codes (design.md, after sysexits).
const USAGE: i32 = 64;
const REFUSED: i32 = 77;
const CONFIG: i32 = 78;

const RULES: &str = r#"
[persona.default]
opaque = "ask"
[[persona.default.rule]]
id = "no-date"
command = ["date"]
decision = "deny"
message = "time is up"
[[persona.default.rule]]
id = "no-sleep"
exe = "/usr/bin/sleep"
decision = "deny"
[[persona.default.rule]]
id = "closed"
path = "secret/**"
decision = "deny"
"#;

async fn why(scratch: &Scratch, words: &[&str]) -> Value {
    let workspace = scratch.workspace().display().to_string();
    let args = [&["policy", "why", "--json", "--workspace", &workspace], words].concat();
    let finished = legion::run(scratch, &args).await;
    finished.assert_success();
    serde_json::from_str(&finished.stdout).unwrap()
}

#[tokio::test]
async fn why_says_what_would_happen_and_it_happens() {
    let scratch = Scratch::new();
    legion::configure(&scratch, RULES);
    scratch.write("workspace/secret/x", "");
    std::os::unix::fs::symlink("/usr/bin/sleep", scratch.workspace().join("nap")).unwrap();
    let workspace = scratch.workspace().display().to_string();
    for (script, rule) in [
        ("env A=b date -u", Some("no-date")),
        ("echo $(date)", Some("no-date")),
        ("sleep 0", Some("no-sleep")),
        ("./nap 0", Some("no-sleep")),
        ("echo date", None),
    ] {
        let said = why(&scratch, &["--", "bash", "-lc", script]).await;
        assert_eq!(said["rule"].as_str(), rule, "{script}: {said}");
        assert_eq!(said["verdict"], if rule.is_some() { "deny" } else { "allow" }, "{script}: {said}");
        let args = ["exec", "--workspace", &workspace, "--", "bash", "-lc", script];
        let done = legion::run(&scratch, &args).await;
        assert_eq!(done.code(), if rule.is_some() { REFUSED } else { 0 }, "{script}: {done:#?}");
    }
    let said = why(&scratch, &["--", "sh", "-c", "$x"]).await;
    assert_eq!(said["verdict"], "ask", "{said}");
    assert_eq!(why(&scratch, &["--read", "open/../secret/x"]).await["rule"], "closed");
    assert_eq!(why(&scratch, &["--write", "/workspace/secret/new"]).await["rule"], "closed");
    assert_eq!(why(&scratch, &["--remove", "."]).await["rule"], "closed");
    assert_eq!(why(&scratch, &["--http", "GET https://example.com/"]).await["verdict"], "allow");
    for wrong in
        [&["policy", "why"][..], &["policy", "why", "--method", "x/y"], &["policy", "why", "--http", "x"]]
    {
        assert_eq!(
            legion::run(&scratch, &[wrong, &["--workspace", &workspace]].concat()).await.code(),
            USAGE
        );
    }
}

#[tokio::test]
async fn check_finds_what_has_no_effect_and_runs_the_tests() {
    let scratch = Scratch::new();
    scratch.write("workspace/secret/x", "");
    let workspace = scratch.workspace().display().to_string();
    let check = || async { legion::run(&scratch, &["policy", "check", "--workspace", &workspace]).await };
    let good = "[[test]]\ncommand = [\"date\"]\nexpect = \"deny\"\nrule = \"no-date\"\n\
                [[test]]\npath = \"secret/x\"\nop = \"write\"\nexpect = \"deny\"\n";
    legion::configure(&scratch, &format!("{RULES}{good}"));
    let fine = check().await;
    fine.assert_success();
    assert_eq!(fine.stdout, "2 tests, 0 failed\n", "{fine:#?}");
    let useless = "[[persona.default.rule]]\nid = \"again\"\ncommand = [\"date\", \"-u\"]\ndecision = \"ask\"\n\
                   [[persona.default.rule]]\nid = \"typo\"\npath = \"secrte/**\"\ndecision = \"deny\"\n";
    let bad = "[[test]]\ncommand = [\"ls\"]\nexpect = \"deny\"\n";
    legion::configure(&scratch, &format!("{RULES}{useless}{good}{bad}"));
    let told = check().await;
    assert_eq!(told.code(), CONFIG, "{told:#?}");
    for part in [
        "rule again never decides",
        "rule typo: path `secrte/**` matches nothing",
        "test 3: `ls` is allow, not deny",
    ] {
        assert!(told.stdout.contains(part), "no {part:?} in {told:#?}");
    }
}

#[tokio::test]
async fn replay_tells_what_changed_rules_would_change() {
    let scratch = Scratch::new();
    let workspace = scratch.workspace().display().to_string();
    legion::configure(&scratch, RULES);
    let script = ["exec", "--workspace", &workspace, "--", "sh", "-c", "touch ran"];
    legion::run(&scratch, &script).await.assert_success();
    let audit = Audit::read(&scratch);
    let session = audit.calls("process/start").next().unwrap()["session"].as_str().unwrap().to_owned();
    let replay = || async {
        let finished = legion::run(&scratch, &["policy", "replay", "--json", &session]).await;
        finished.assert_success();
        finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    assert_eq!(replay().await, Vec::<Value>::new(), "the same rules decide the same");
    std::fs::remove_file(scratch.workspace().join("ran")).unwrap();
    let rules = "[[rule]]\nid = \"narrowed\"\ncommand = [\"touch\"]\ndecision = \"deny\"\n";
    let narrowed = scratch.write("workspace/.legion.toml", rules);
    assert_eq!(replay().await[0]["nowRule"], "narrowed", "what the workspace adds counts");
    std::fs::remove_file(narrowed).unwrap();
    legion::configure(
        &scratch,
        &format!(
            "{RULES}[[persona.default.rule]]\nid = \"no-touch\"\ncommand = [\"touch\"]\ndecision = \"deny\"\n"
        ),
    );
    let [difference] = &replay().await[..] else { panic!("one call differs") };
    assert_eq!((&difference["was"], &difference["now"]), (&"allow".into(), &"deny".into()));
    assert_eq!(difference["nowRule"], "no-touch");
    assert_eq!(scratch.read("workspace/ran"), None, "nothing has run");
    assert_eq!(legion::run(&scratch, &["policy", "replay", "nobody"]).await.code(), USAGE);
}
