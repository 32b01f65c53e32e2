//! The two subcommands that put a command into a sandbox with our standard streams: `exec` and `run`.
//!
//! Invariant: what is said of one here is said of both; they differ in when the command gets a terminal.

use legion_tests::child::{Child, Finished};
use legion_tests::legion;
use legion_tests::scratch::Scratch;
use legion_tests::settings::settings;
use legion_tests::terminal::Terminal;

/// Makes each scenario a test of `exec` and of `run`.
macro_rules! in_both_ways {
    ($($scenario:ident),* $(,)?) => {
        in_way!(exec Exec $($scenario)*);
        in_way!(run Run $($scenario)*);
    };
}

macro_rules! in_way {
    ($module:ident $way:ident $($scenario:ident)*) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $scenario() {
                    super::$scenario(crate::ways::Way::$way).await;
                }
            )*
        }
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Exec,
    Run,
}

impl Way {
    /// The command line after the program's name.
    fn args(self, scratch: &Scratch, argv: &[&str]) -> Vec<String> {
        let subcommand = if self == Self::Exec { "exec" } else { "run" };
        let workspace = scratch.workspace().display().to_string();
        let before = [subcommand, "--workspace", &workspace, "--"];
        before.iter().chain(argv).map(|&arg| arg.to_owned()).collect()
    }

    /// Starts a command without a standard input.
    pub(crate) fn spawn(self, scratch: &Scratch, argv: &[&str]) -> Child {
        let mut command = legion::command(scratch, &[]);
        command.args(self.args(scratch, argv));
        Child::spawn("legion-controller", command)
    }

    /// Starts a script with a pipe as standard input.
    pub(crate) fn spawn_with_stdin(self, scratch: &Scratch, script: &str) -> Child {
        let mut command = legion::command(scratch, &[]);
        command.args(self.args(scratch, &["sh", "-c", script]));
        Child::spawn_with_stdin("legion-controller", command)
    }

    /// Starts a command out of a shell, which redirects its streams and is replaced by the controller: `outer` says
    /// how, with `"$@"` for the controller.
    pub(crate) fn spawn_from_shell(self, scratch: &Scratch, outer: &str, argv: &[&str]) -> Child {
        let mut command = scratch.command("/bin/bash");
        command
            .current_dir(scratch.root())
            .args(["-c", outer, "bash"])
            .arg(settings().legion_binary("legion-controller"))
            .args(self.args(scratch, argv));
        Child::spawn("legion-controller from a shell", command)
    }

    /// Runs a command to its end.
    pub(crate) async fn command(self, scratch: &Scratch, argv: &[&str]) -> Finished {
        self.spawn(scratch, argv).finish().await
    }

    /// Runs a script to its end.
    pub(crate) async fn script(self, scratch: &Scratch, script: &str) -> Finished {
        self.command(scratch, &["sh", "-c", script]).await
    }

    /// Starts a script that gets a terminal, at a terminal of this size.
    pub(crate) fn at_terminal(self, scratch: &Scratch, script: &str, rows: u16, columns: u16) -> Terminal {
        let program = settings().legion_binary("legion-controller").display().to_string();
        let mut args = self.args(scratch, &["bash", "-c", script]);
        if self == Self::Exec {
            args.insert(1, "--tty".to_owned());
        }
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        Terminal::spawn(scratch, &program, &args, rows, columns)
    }
}
