//! `.env`: what a persona names is in the environment of its commands, everything else is nowhere inside.
//!
//! Invariant: what may be inside is marked `permitted`, what may not be is marked [`PLANTED`]. Commands are told the
//! latter in pieces only, so that looking for it does not put it there; a planted control shows that looking works.

use std::fmt::Write as _;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use legion_tests::audit::Audit;
use legion_tests::child::{Child, Finished};
use legion_tests::codex::{Codex, assert_ran, printed};
use legion_tests::legion;
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::model_items::{exec, say};
use legion_tests::scratch::Scratch;
use serde_json::json;

use crate::played::Played;

/// In no file but the test's: another one in every run.
static PLANTED: LazyLock<String> =
    LazyLock::new(|| format!("planted-{:016x}-", RandomState::new().build_hasher().finish()));

/// Two that the persona names, one by name and one by its prefix; eight that it does not.
const ENV_FILE: &str = "\
# of the project
ANTHROPIC_API_KEY=planted-1-anthropic
OPENAI_API_KEY=permitted-openai-key
OPENAI_API_KEY_OLD=planted-2-old
export AWS_SECRET_ACCESS_KEY=\"planted-3-aws secret\"
DEPLOY_TOKEN='permitted-deploy token $5'
DATABASE_URL=postgres://user:planted-4-password@db.example/one
PREDEPLOY_TOKEN=planted-5-prefix
deploy_token=planted-6-case
GITHUB_TOKEN='planted-7-github'
SENTRY_DSN=planted-8-sentry
";

const SECRETS: &str = "[persona.default.env]\nsecrets = [\"OPENAI_API_KEY\", \"DEPLOY_*\"]\n";

/// Prints where the text `$1$2` is found: in variables, in everything readable in /proc, and in every file but those of
/// the host that neither the sandbox nor the test has made.
const SEARCH: &str = r#"
marker=$1; marker+=$2
control=$marker sleep 300 &
while ! grep -q sleep /proc/$!/comm; do :; done
env | grep -o "$marker.*" | sed 's/^/variable: /'
for file in /proc/[0-9]*/{environ,cmdline,comm,mountinfo,maps,stat} /proc/{cmdline,keys,mounts}; do
    { printf %s "$marker" | grep -qaF -f - "$file"; } 2>/dev/null || continue
    [ "$file" = /proc/$!/environ ] && echo 'process: the control' || echo "process: $file"
done
kill $!
places=(/*)
[ "$3" = host-ro ] && places=(/dev /etc /home /legion /root /run /tmp /var/tmp /workspace)
for entry in "${places[@]}" /.[!.]*; do
    case $entry in /proc|/sys|/usr) continue;; esac
    [ -L "$entry" ] || [ ! -e "$entry" ] || printf %s "$marker" | grep -rlaF -D skip -f - "$entry" 2>/dev/null
done
echo searched
"#;

fn env_file() -> String {
    ENV_FILE.replace("planted-", &PLANTED)
}

/// A workspace with `.env` files, in which the controller starts.
fn project(config: &str) -> Scratch {
    let scratch = Scratch::new();
    for path in [
        "workspace/.env",
        "workspace/.env.production",
        "workspace/part/deep/.env",
        "workspace/part/.env.local",
    ] {
        let file = scratch.write(path, env_file());
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    legion::configure(&scratch, config);
    scratch
}

/// Looks for a text without handing it in.
async fn search(scratch: &Scratch, text: &str, view: &str) -> Finished {
    let (first, second) = text.split_at(text.len() / 2);
    let finished = run(scratch, &["bash", "-c", SEARCH, "bash", first, second, view]).await;
    finished.assert_success();
    finished
}

/// Runs a command with the workspace as the working directory, where `.env` is looked for.
async fn run(scratch: &Scratch, argv: &[&str]) -> Finished {
    let mut command = legion::command(scratch, &["exec", "--"]);
    command.args(argv).current_dir(scratch.workspace());
    Child::spawn("legion-controller exec", command).finish().await
}

#[tokio::test]
async fn what_the_persona_names_is_in_the_environment() {
    let scratch = project(SECRETS);
    let finished = run(&scratch, &["sh", "-c", "printf '%s\\n' \"$OPENAI_API_KEY\" \"$DEPLOY_TOKEN\""]).await;
    finished.assert_success();
    assert_eq!(finished.stdout, "permitted-openai-key\npermitted-deploy token $5\n");
}

#[tokio::test]
async fn everything_else_is_nowhere_inside() {
    for view in ["minimal", "host-ro"] {
        let scratch = project(&format!("[persona.default]\nview = \"{view}\"\n{SECRETS}"));
        let workspace = scratch.workspace();
        scratch.write("workspace/part/control", PLANTED.as_str());
        let finished = search(&scratch, &PLANTED, view).await;
        let mut found: Vec<_> = finished.stdout.lines().collect();
        found.sort_unstable();
        let control = |place: &str| format!("{place}/part/control");
        assert_eq!(
            found,
            [
                &control(workspace.to_str().unwrap()),
                &control("/workspace"),
                "process: the control",
                "searched"
            ],
            "{view}"
        );
    }
}

#[tokio::test]
async fn a_mount_that_shows_the_file_shows_it_empty() {
    for view in ["minimal", "host-ro"] {
        let scratch = Scratch::new();
        let file = scratch.write("elsewhere/deep/.env", env_file());
        scratch.write("workspace/part/.env", env_file());
        let elsewhere = scratch.root().join("elsewhere");
        let part = scratch.workspace().join("part");
        let config = format!(
            "[controller]\nenv_file = {file:?}\n[persona.default]\nview = \"{view}\"\nmounts = [\n\
             {{ mode = \"ro\", from = {elsewhere:?}, to = \"/mnt\" }},\n\
             {{ mode = \"ro\", from = {file:?}, to = \"/tmp/one\" }},\n\
             {{ mode = \"rw\", from = {part:?}, to = \"/tmp/part\" }},\n]\n"
        );
        legion::configure(&scratch, &config);
        let script = "wc -c < /mnt/deep/.env; wc -c < /tmp/one; wc -c < /tmp/part/.env; wc -c < part/.env";
        let finished = run(&scratch, &["sh", "-c", script]).await;
        finished.assert_success();
        assert_eq!(finished.stdout, "0\n0\n0\n0\n", "{view}: {finished:#?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), env_file(), "{view}");
    }
}

#[tokio::test]
async fn a_persona_without_secrets_has_none() {
    let scratch = project("");
    let finished = search(&scratch, "permitted-", "minimal").await;
    assert_eq!(finished.stdout, "process: the control\nsearched\n", "{finished:#?}");
}

#[tokio::test]
async fn env_files_read_as_empty_and_stay_what_they_are() {
    let scratch = project(SECRETS);
    scratch.write("workspace/.env.example", "KEY=an-example\n");
    let script = "
        for file in .env .env.production part/.env.local part/deep/.env; do
            for place in \"$PWD\" /workspace; do
                cat $place/$file | wc -c
                for try in 'echo x >' 'rm -f' 'mv -f /dev/null' 'ln -f /etc/passwd' 'mv -t /tmp'; do
                    (eval \"$try $place/$file\") 2>/dev/null && echo \"$try\" $place/$file
                done
                ln $place/$file linked 2>/dev/null && cat linked
            done
        done
        mv part part2 2>/dev/null && echo moved
        cat .env.example
    ";
    let finished = run(&scratch, &["bash", "-c", script]).await;
    finished.assert_success();
    assert_eq!(finished.stdout, format!("{}KEY=an-example\n", "0\n".repeat(8)));
    assert_eq!(scratch.read("workspace/.env").unwrap(), env_file());
    assert_eq!(scratch.read("workspace/part/deep/.env").unwrap(), env_file());
}

#[tokio::test]
async fn values_are_not_in_the_log() {
    let scratch = project(SECRETS);
    // A careless agent: secrets it knows, in arguments, a path and a variable, one not even meant for it.
    let planted = PLANTED.as_str();
    let [part, aws, url] = ["x=%4-password", "%3-aws secret!", "postgres://user:%4-password@db.example/one"]
        .map(|text| text.replace('%', planted));
    let argv = ["sh", "-c", "true permitted-openai-key", "permitted-deploy token $5", &part, &aws, &url];
    run(&scratch, &argv).await.assert_success();
    let audit = Audit::read(&scratch);
    let call = audit.calls("process/start").next().unwrap_or_else(|| panic!("{:#?}", audit.lines()));
    let expected = [
        "sh",
        "-c",
        "true <redacted:OPENAI_API_KEY>",
        "<redacted:DEPLOY_TOKEN>",
        &part,
        "<redacted:AWS_SECRET_ACCESS_KEY>!",
        "<redacted:DATABASE_URL>",
    ];
    assert_eq!(call["object"]["argv"], json!(expected));
    let mut seen = legion::run(&scratch, &["audit", "tail", "-n", "100"]).await.stdout;
    assert!(seen.contains("<redacted:DEPLOY_TOKEN>"), "{seen}");
    for file in fs::read_dir(Audit::directory(&scratch)).unwrap() {
        let _ = write!(seen, "{}", String::from_utf8_lossy(&fs::read(file.unwrap().path()).unwrap()));
    }
    assert!(!seen.contains("permitted-"), "{seen}");
    // A part of a value is not the value.
    assert!(!seen.replace(&part, "").contains(planted), "{seen}");
    Audit::verify(&scratch).await;
}

#[tokio::test]
async fn the_model_sees_only_what_a_command_prints() {
    let scratch = project(SECRETS);
    let snoop = "cat .env part/.env.local; env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; true";
    let script = Script::new()
        .item(exec(
            "c1",
            &format!("{{ {snoop}; }} | grep -v OPENAI_API_KEY=permitted | grep -v DEPLOY_TOKEN=permitted"),
        ))
        .item(exec("c2", "echo \"$DEPLOY_TOKEN\""))
        .item(say("done"));
    let model = MockModel::start(script).await;
    let finished = Codex::new(&scratch).run(&legion::connect(&scratch), &model).await;
    finished.assert_success();
    let requests = model.requests();
    let played = Played::of(model);
    assert!(printed(&played.output("c1")).contains("PATH="), "{}", played.output("c1"));
    assert_ran(&played.output("c2"), 0, "permitted-deploy token $5\n");
    for (number, request) in requests.iter().enumerate() {
        let text = request.text();
        assert!(!text.contains(PLANTED.as_str()), "request {number}: {text}");
        // The third one repeats what the second command has printed.
        assert_eq!(text.contains("permitted-"), number == 2, "request {number}: {text}");
    }
    assert!(!finished.stderr.contains(PLANTED.as_str()), "{finished:#?}");
}
