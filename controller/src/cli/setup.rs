//! `setup codex`: what points a client at Legion.

use std::path::{Path, PathBuf};

use super::{Context, Wanted, print_lines, sessions};
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
}

pub(super) async fn run(context: &Context, command: SetupCommand) -> Outcome<u8> {
    let SetupCommand::Codex { wanted, print, url } = command;
    let home = context.environment.var("CODEX_HOME").map(|home| context.environment.resolve(Path::new(home)));
    let home = home.or_else(|| context.environment.home().map(|home| home.join(".codex")));
    let home =
        home.ok_or_else(|| Failure::config("no place for Codex's configuration: set HOME or CODEX_HOME"))?;
    let path = home.join("environments.toml");
    if !print {
        refuse_foreign(&path)?;
    }
    let text = if url {
        by_url(context, &wanted).await?
    } else {
        codex_by_program(context, &options(context, &wanted))
    };
    if print {
        return print_lines(&[text.trim_end().to_owned()]);
    }
    write(&home, &path, &text)
        .map_err(|error| Failure::config(format_args!("cannot write {}: {error}", path.display())))?;
    print_lines(&[format!("wrote {}: Codex now works through Legion", path.display())])
}

fn refuse_foreign(path: &Path) -> Outcome<()> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.starts_with(MARK) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(Failure::config(format_args!(
            "{} exists and is not Legion's: add the lines of setup codex --print yourself",
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

fn write(home: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::create_dir_all(home)?;
    // A new file takes the name whole; it may hold a token, so it is private from the start.
    let new = path.with_extension("toml.new");
    let _ = std::fs::remove_file(&new);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&new, path)
}
