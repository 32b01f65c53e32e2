//! Those who only watch: they end with whoever reads what they print.

use legion_tests::child::Child;
use legion_tests::legion;
use legion_tests::settings::settings;
use legion_tests::terminal::Terminal;

use super::Scene;

/// `legion-controller ARGS… | READER` in a shell, which ends when both have.
fn piped(scene: &Scene, args: &[&str], reader: &str) -> Child {
    let plain = legion::command(&scene.scratch, args);
    let mut command = scene.scratch.command("/bin/bash");
    command.args(["-c", &format!("set -o pipefail; \"$@\" | {reader}"), "bash"]);
    command.arg(plain.as_std().get_program()).args(plain.as_std().get_args());
    Child::spawn("a pipeline", command)
}

#[tokio::test]
async fn who_watches_ends_with_its_reader() {
    let mut scene = Scene::new().await;
    let session = scene.controller.ready.session.clone();
    let watchers =
        [&["approvals", "watch"][..], &["audit", "tail", "--follow"], &["session", "attach", &session]];
    for args in watchers {
        // Nothing has to come for that.
        let ended = piped(&scene, args, "true").finish().await;
        assert_eq!((ended.code(), ended.stdout.as_str()), (0, ""), "{args:?}: {ended:#?}");
    }
    let first = piped(&scene, &["approvals", "watch"], "head -n 1");
    let token = scene.controller.token.clone();
    let mut client = scene.client(&token).await;
    scene.post(&mut client, "made").await;
    let ended = first.finish().await;
    assert_eq!((ended.code(), ended.stdout.lines().count()), (0, 1), "{ended:#?}");
    assert!(ended.stdout.ends_with("ask-touch: touch made (it makes a file)\n"), "{ended:#?}");
    scene.watch.0.stop().await;
}

/// A pipe is a pipe, even in front of a terminal.
#[tokio::test]
async fn at_a_terminal_a_pipe_is_written_to_all_the_same() {
    let mut scene = Scene::new().await;
    let token = scene.controller.token.clone();
    let mut client = scene.client(&token).await;
    scene.post(&mut client, "made").await;
    scene.watch.next().await;
    let program = settings().legion_binary("legion-controller").display().to_string();
    let args = ["-c", "\"$@\" | head -n 1", "bash", &program, "approvals", "watch"];
    let left = Terminal::spawn(&scene.scratch, "/bin/bash", &args, 24, 80).finish().await;
    assert!(left.screen.ends_with("ask-touch: touch made (it makes a file)\r\n"), "{left:?}");
    scene.watch.0.stop().await;
}
