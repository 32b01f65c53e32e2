//! Variables of the environment that decide what runs.
//!
//! Invariant: a list of names is never complete. An allow rule takes no variable it does not name; this is for the others.

/// What setting a variable may do to the programs that see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Influence {
    /// Nothing that is known.
    None,
    /// It decides where programs and their code are looked for.
    Search,
    /// Its value is a command that some programs run.
    Command,
    /// It makes shells and others run, or be, something else.
    Hidden,
}

/// Shells compute the values of these, run the files they name, or take functions from them; others read options with code.
const HIDDEN: [&str; 25] = [
    "BASHOPTS",
    "BASH_ENV",
    "BASH_LOADABLES_PATH",
    "BASH_XTRACEFD",
    "ENV",
    "GIT_CONFIG",
    "GIT_EXEC_PATH",
    "GIT_TEMPLATE_DIR",
    "GNUMAKEFLAGS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LESSCLOSE",
    "LESSOPEN",
    "MAKEFLAGS",
    "MFLAGS",
    "PERL5DB",
    "PERL5OPT",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS4",
    "PYTHONSTARTUP",
    "RUBYOPT",
    "SHELLOPTS",
    "_JAVA_OPTIONS",
];

const HIDDEN_PREFIXES: [&str; 5] = ["LD_AUDIT", "LD_PRELOAD", "BASH_FUNC_", "GIT_CONFIG_", "GIT_PROXY_"];

/// Programs run what these say, with arguments; most of them through a shell.
const COMMANDS: [&str; 23] = [
    "BROWSER",
    "EDITOR",
    "FCEDIT",
    "GH_BROWSER",
    "GH_EDITOR",
    "GH_PAGER",
    "GIT_ASKPASS",
    "GIT_EDITOR",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "LESSEDIT",
    "MANPAGER",
    "PAGER",
    "RSYNC_RSH",
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "VISUAL",
];

const SEARCH: [&str; 5] = ["PATH", "CDPATH", "IFS", "GLOBIGNORE", "LD_LIBRARY_PATH"];

/// What a variable of this name may do.
pub fn influence(name: &str) -> Influence {
    if name == "GIT_CONFIG_NOSYSTEM" {
        Influence::None
    } else if HIDDEN.contains(&name) || HIDDEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        Influence::Hidden
    } else if COMMANDS.contains(&name) || name.starts_with("CARGO_TARGET_") && name.ends_with("_RUNNER") {
        Influence::Command
    } else if SEARCH.contains(&name) || name.starts_with("LD_") {
        Influence::Search
    } else {
        Influence::None
    }
}

/// Whether an allow rule must name it when the client sets it: the harness sets what it likes, but not what a program is.
pub fn is_influential(name: &str) -> bool {
    matches!(influence(name), Influence::Hidden | Influence::Search)
}
