//! `setup codex` and `setup opencode`: what points a client at Legion that people start themselves.

use std::path::{Path, PathBuf};

use super::{Context, Wanted, opencode, print_lines, sessions};
use crate::failure::{Failure, Outcome};
use crate::session::{MARK, environments_toml};

#[derive(clap::Subcommand)]
pub(super) enum SetupCommand {
    /// Write environments.toml of Codex, so that all its commands and file edits go through Legion
    Codex {
        #[command(flatten)]
        wanted: Wanted,
        /// Only print what would be written
        #[arg(long)]
        print: bool,
        /// Connect to the running controller's URL with a new token, instead of starting `connect`
        #[arg(long)]
        url: bool,
    },
    /// Write opencode.jsonc of OpenCode, so that its tools are those of `mcp`
    Opencode {
        #[command(flatten)]
        wanted: Wanted,
        /// Only print what would be written
        #[arg(long)]
        print: bool,
    },
}

/// What `setup opencode` cannot reach, because OpenCode itself runs outside.
const NOT_COVERED: &str = "Not covered: what OpenCode itself does outside - files attached with @, commands typed after !, its own plugins \
     and MCP servers, and whatever a project's .opencode and opencode.json make it run or allow. \
     `legion-controller opencode` covers these.";

/// OpenCode's own tools and permissions; each is denied by name, as a rule of the user's may allow it by name.
const OWN_TOOLS: [&str; 14] = [
    "apply_patch",
    "bash",
    "codesearch",
    "edit",
    "external_directory",
    "glob",
    "grep",
    "list",
    "lsp",
    "read",
    "skill",
    "webfetch",
    "websearch",
    "write",
];

/// The longest OpenCode waits for a tool: the tools have time-outs of their own.
const MCP_TIMEOUT_MS: u32 = 24 * 60 * 60 * 1000;

pub(super) async fn run(context: &Context, command: SetupCommand) -> Outcome<u8> {
    match command {
        SetupCommand::Codex { wanted, print, url } => codex(context, &wanted, print, url).await,
        SetupCommand::Opencode { wanted, print } => opencode(context, &wanted, print),
    }
}

async fn codex(context: &Context, wanted: &Wanted, print: bool, url: bool) -> Outcome<u8> {
    let home = context.environment.var("CODEX_HOME").map(|home| context.environment.resolve(Path::new(home)));
    let home = home.or_else(|| context.environment.home().map(|home| home.join(".codex")));
    let home =
        home.ok_or_else(|| Failure::config("no place for Codex's configuration: set HOME or CODEX_HOME"))?;
    let path = home.join("environments.toml");
    if !print {
        refuse_foreign(&path, MARK, "codex")?;
    }
    let text = if url {
        by_url(context, wanted).await?
    } else {
        codex_by_program(context, &options(context, wanted))
    };
    if print {
        return print_lines(&[text.trim_end().to_owned()]);
    }
    write(&path, &text)?;
    print_lines(&[format!("wrote {}: Codex now works through Legion", path.display())])
}

/// OpenCode puts this file over the user's own `opencode.json`.
fn opencode(context: &Context, wanted: &Wanted, print: bool) -> Outcome<u8> {
    let path =
        opencode::base(&context.environment, "XDG_CONFIG_HOME", ".config")?.join("opencode/opencode.jsonc");
    let mark = MARK.replacen('#', "//", 1);
    let mut permission = serde_json::Map::new();
    let denied = ["*"].into_iter().chain(OWN_TOOLS).map(|name| (name.to_owned(), "deny".into()));
    permission.extend(denied);
    permission.extend(["legion_*", "task", "todowrite"].map(|name| (name.to_owned(), "allow".into())));
    let program = context.environment.executable.display().to_string();
    let command: Vec<_> = [program, "mcp".to_owned()].into_iter().chain(options(context, wanted)).collect();
    let config = serde_json::json!({
        "$schema": "https://opencode.ai/config.json",
        "permission": permission,
        "mcp": { "legion": { "type": "local", "command": command, "enabled": true, "timeout": MCP_TIMEOUT_MS } },
        "lsp": false,
        "formatter": false,
        "snapshot": false
    });
    let config = serde_json::to_string_pretty(&config).map_err(Failure::internal)?;
    let text = format!("{mark}\n// {NOT_COVERED}\n{config}\n");
    if print {
        return print_lines(&[text.trim_end().to_owned()]);
    }
    refuse_foreign(&path, &mark, "opencode")?;
    write(&path, &text)?;
    print_lines(&[
        format!("wrote {}: OpenCode's tools are now Legion's", path.display()),
        NOT_COVERED.to_owned(),
    ])
}

fn refuse_foreign(path: &Path, mark: &str, client: &str) -> Outcome<()> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.starts_with(mark) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(Failure::config(format_args!(
            "{} exists and is not Legion's: add the lines of setup {client} --print yourself",
            path.display()
        ))),
        Err(error) => Err(Failure::config(format_args!("cannot read {}: {error}", path.display()))),
    }
}

/// `environments.toml` that makes Codex start `connect` with these options.
pub(super) fn codex_by_program(context: &Context, options: &[String]) -> String {
    let args: Vec<_> = std::iter::once("connect").chain(options.iter().map(String::as_str)).collect();
    let program = toml::Value::from(context.environment.executable.display().to_string());
    environments_toml(&format!("program = {program}\nargs = {}\n", toml::Value::from(args)))
}

/// Our own options for another of our processes, which may start elsewhere.
pub(super) fn options(context: &Context, wanted: &Wanted) -> Vec<String> {
    let absolute = |path: &PathBuf| context.environment.resolve(path).display().to_string();
    let given = [
        ("--persona", wanted.persona.clone()),
        ("--workspace", wanted.workspace.as_ref().map(absolute)),
        ("--ttl", wanted.ttl.clone()),
        ("--config", context.common.config.as_ref().map(absolute)),
        ("--env-file", context.common.env_file.as_ref().map(absolute)),
        ("--state-dir", context.common.state_dir.as_ref().map(absolute)),
    ];
    given.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?])).flatten().collect()
}

async fn by_url(context: &Context, wanted: &Wanted) -> Outcome<String> {
    let opened = sessions::open(context, wanted).await?;
    let url = toml::Value::from(opened.urls.first().cloned().unwrap_or_default());
    Ok(environments_toml(&format!("url = {url}\nauth_bearer_token = {}\n", toml::Value::from(opened.token))))
}

fn write(path: &Path, text: &str) -> Outcome<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let written = || {
        std::fs::create_dir_all(path.parent().unwrap_or(path))?;
        // A new file takes the name whole; it may hold a token, so it is private from the start.
        let new = path.with_added_extension("new");
        let _ = std::fs::remove_file(&new);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&new, path)
    };
    written().map_err(|error: std::io::Error| {
        Failure::config(format_args!("cannot write {}: {error}", path.display()))
    })
}
