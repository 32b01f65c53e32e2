//! Programs that run other programs, by name, with the options that may stand before those.
//!
//! Invariant: an option is in a table only if skipping it, with its argument, is right.

/// The options of a program, by the letters and names of those that take an argument of their own and those that do not.
pub(super) struct Options {
    pub(super) with: &'static str,
    pub(super) without: &'static str,
    pub(super) long_with: &'static [&'static str],
    pub(super) long: &'static [&'static str],
}

/// Programs that start one other program and do nothing else, with what stands before it.
pub(super) const TRANSPARENT: &[(&str, Options, usize)] = &[
    (
        "env",
        Options {
            with: "uCa",
            without: "i0v",
            long_with: &["unset", "chdir", "argv0"],
            long: &["ignore-environment", "null", "debug"],
        },
        0,
    ),
    ("nohup", Options { with: "", without: "", long_with: &[], long: &[] }, 0),
    ("setsid", Options { with: "", without: "cfw", long_with: &[], long: &["ctty", "fork", "wait"] }, 0),
    ("nice", Options { with: "n", without: "0123456789", long_with: &["adjustment"], long: &[] }, 0),
    (
        "ionice",
        Options { with: "cn", without: "t", long_with: &["class", "classdata"], long: &["ignore"] },
        0,
    ),
    (
        "timeout",
        Options {
            with: "ks",
            without: "fpv",
            long_with: &["kill-after", "signal"],
            long: &["foreground", "preserve-status", "verbose"],
        },
        1,
    ),
    ("stdbuf", Options { with: "ioe", without: "", long_with: &["input", "output", "error"], long: &[] }, 0),
    (
        "time",
        Options {
            with: "f",
            without: "pvq",
            long_with: &["format"],
            long: &["portability", "verbose", "quiet"],
        },
        0,
    ),
    ("command", Options { with: "", without: "p", long_with: &[], long: &[] }, 0),
    ("builtin", Options { with: "", without: "", long_with: &[], long: &[] }, 0),
    ("exec", Options { with: "a", without: "cl", long_with: &[], long: &[] }, 0),
];

pub(super) const SUDO: Options = Options {
    with: "CDghpRrTtUu",
    without: "ABbEHknPS",
    long_with: &[
        "close-from",
        "chdir",
        "group",
        "host",
        "prompt",
        "chroot",
        "role",
        "command-timeout",
        "type",
        "other-user",
        "user",
    ],
    long: &[
        "askpass",
        "bell",
        "background",
        "preserve-env",
        "set-home",
        "reset-timestamp",
        "non-interactive",
        "preserve-groups",
        "stdin",
    ],
};

pub(super) const XARGS: Options = Options {
    with: "adELnPs",
    without: "0oprtx",
    long_with: &["arg-file", "delimiter", "max-args", "max-procs", "max-chars", "process-slot-var"],
    long: &["null", "open-tty", "interactive", "no-run-if-empty", "verbose", "exit", "show-limits"],
};

/// Shells whose words are those the parser knows.
pub(super) const SHELLS: [&str; 4] = ["sh", "bash", "dash", "ash"];

pub(super) const OTHER_SHELLS: [&str; 8] = ["zsh", "ksh", "mksh", "fish", "csh", "tcsh", "nu", "elvish"];

/// Programs that do what their input says when they get no file.
pub(super) const INTERPRETERS: [&str; 16] = [
    "python", "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua", "luajit", "Rscript", "R",
    "tclsh", "guile", "psql", "sqlite3",
];

/// Shell words that run or redefine what cannot be followed here.
pub(super) const OPAQUE_BUILTINS: [&str; 27] = [
    "eval",
    "source",
    ".",
    "trap",
    "alias",
    "unalias",
    "let",
    "declare",
    "typeset",
    "local",
    "readonly",
    "read",
    "mapfile",
    "readarray",
    "unset",
    "compgen",
    "complete",
    "compopt",
    "bind",
    "enable",
    "hash",
    "fc",
    "shopt",
    "getopts",
    "wait",
    "jobs",
    "select",
];

/// Programs that run another one in ways of their own.
pub(super) const OPAQUE_PROGRAMS: [&str; 44] = [
    "su",
    "runuser",
    "pkexec",
    "doas",
    "script",
    "watch",
    "parallel",
    "ssh",
    "chroot",
    "unshare",
    "nsenter",
    "flock",
    "strace",
    "ltrace",
    "gdb",
    "valgrind",
    "taskset",
    "chrt",
    "systemd-run",
    "at",
    "batch",
    "crontab",
    "screen",
    "tmux",
    "expect",
    "entr",
    "setpriv",
    "capsh",
    "firejail",
    "bwrap",
    "proot",
    "fakeroot",
    "unbuffer",
    "rlwrap",
    "numactl",
    "prlimit",
    "start-stop-daemon",
    "xvfb-run",
    "dbus-run-session",
    "setarch",
    "linux32",
    "linux64",
    "toolbox",
    "sg",
];

/// Options before the subcommand of well-known programs that take an argument of their own.
pub(super) const SUBCOMMAND_OPTIONS: &[(&str, &[&str])] = &[
    (
        "git",
        &[
            "-c",
            "-C",
            "--git-dir",
            "--work-tree",
            "--namespace",
            "--config-env",
            "--super-prefix",
            "--attr-source",
        ],
    ),
    ("cargo", &["-C", "--config", "-Z", "--color", "--manifest-path"]),
    ("npm", &["-C", "--prefix", "-w", "--workspace", "--userconfig", "--registry"]),
    ("pnpm", &["-C", "--dir", "-F", "--filter"]),
    ("yarn", &["--cwd"]),
    (
        "docker",
        &[
            "-H",
            "--host",
            "-c",
            "--context",
            "--config",
            "-l",
            "--log-level",
            "--tlscacert",
            "--tlscert",
            "--tlskey",
        ],
    ),
    ("podman", &["-c", "--connection", "--url", "--root", "--runroot", "--log-level", "--storage-driver"]),
    (
        "kubectl",
        &[
            "-n",
            "--namespace",
            "--context",
            "--cluster",
            "--user",
            "--kubeconfig",
            "-s",
            "--server",
            "--token",
        ],
    ),
    ("helm", &["-n", "--namespace", "--kube-context", "--kubeconfig"]),
    ("gh", &["-R", "--repo"]),
    ("aws", &["--profile", "--region", "--output", "--endpoint-url"]),
    ("gcloud", &["--project", "--account", "--configuration"]),
    ("systemctl", &["-H", "--host", "-M", "--machine", "-t", "--type", "--root"]),
    ("apt", &["-o", "-c", "-t"]),
    ("apt-get", &["-o", "-c", "-t"]),
    ("pip", &["--python", "--proxy", "--log", "--cache-dir"]),
    ("pip3", &["--python", "--proxy", "--log", "--cache-dir"]),
    ("make", &["-C", "-f", "-I", "-o", "-W", "--directory", "--file"]),
    ("terraform", &["-chdir"]),
];
