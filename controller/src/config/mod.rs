//! The configuration: `legion.toml` (in [`file`]) checked and turned into values the rest of the program can trust.
//!
//! Invariant: a [`Config`] is valid. Paths are absolute, listeners are safe to open, personas are complete.

mod audit;
pub mod file;
pub mod listen;
pub mod names;
pub mod persona;
pub mod quantity;
mod shipped;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::failure::{Failure, Outcome};
use crate::limits::{MAX_CONFIG_BYTES, MAX_RULE_TESTS};
use crate::secret::{self, Secrets};

use file::PersonaFile;
pub use file::RuleTest;

pub use audit::{AuditOptions, Syslog};
pub use listen::ListenUrl;
pub use persona::{Connect, Limits, Mount, MountAt, MountMode, Network, Persona, View};

/// The persona used when none is named.
pub const DEFAULT_PERSONA: &str = "default";

/// Everything a controller is told by its configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where harnesses may connect.
    pub listen: Vec<ListenUrl>,
    /// Host names accepted in `Host` besides the listening address.
    pub hosts: Vec<String>,
    /// Certificate and key for `wss://` listeners.
    pub tls: Option<TlsFiles>,
    /// The variables of `.env`.
    pub secrets: Secrets,
    /// The file they came from; masked in a workspace that holds it.
    pub env_file: PathBuf,
    /// How the audit log is kept.
    pub audit: AuditOptions,
    /// Personas by name; `default` and those that are shipped are always there.
    pub personas: BTreeMap<String, Persona>,
    /// What its rules are expected to decide.
    pub tests: Vec<RuleTest>,
    /// The file it is read from, there or not.
    pub path: Option<PathBuf>,
    /// What the command line said.
    pub overrides: Overrides,
}

/// PEM files.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// What the command line says about the configuration.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--env-file`
    pub env_file: Option<PathBuf>,
    /// `--listen`, replacing the configured listeners.
    pub listen: Vec<String>,
}

impl Config {
    /// Reads `--config`, else `$LEGION_CONFIG`, else `$XDG_CONFIG_HOME/legion/legion.toml`, else uses the defaults;
    /// then reads `.env`.
    pub fn load(environment: &Environment, overrides: &Overrides) -> Outcome<Self> {
        let found = find(environment, overrides);
        let file = match &found {
            Some((path, asked_for)) => read(path, *asked_for)?,
            None => file::ConfigFile::default(),
        };
        let config = Self::build(environment, overrides, file)?;
        Ok(Self { path: found.map(|(path, _)| path), ..config })
    }

    fn build(environment: &Environment, overrides: &Overrides, file: file::ConfigFile) -> Outcome<Self> {
        let file::ConfigFile { controller, audit, persona, test } = file;
        if test.len() > MAX_RULE_TESTS {
            return Err(Failure::config(format_args!(
                "the configuration has more than {MAX_RULE_TESTS} tests"
            )));
        }
        let audit = AuditOptions::build(&audit)?;
        let texts = match (&overrides.listen[..], controller.listen) {
            ([], Some(configured)) => configured,
            ([], None) => vec!["ws://127.0.0.1:0".to_owned()],
            (given, _) => given.to_vec(),
        };
        let listen = texts.iter().map(|text| ListenUrl::parse(text)).collect::<Outcome<Vec<_>>>()?;
        let tls = controller
            .tls
            .map(|tls| TlsFiles { cert: environment.resolve(&tls.cert), key: environment.resolve(&tls.key) });
        if tls.is_none() && listen.iter().any(|url| url.tls) {
            return Err(Failure::config(
                "a wss:// listener needs a certificate: set cert and key under [controller.tls]",
            ));
        }
        let asked = overrides.env_file.as_ref().or(controller.env_file.as_ref());
        let env_file = environment.resolve(asked.map_or(Path::new(".env"), PathBuf::as_path));
        let secrets = secret::read_env_file(&env_file, asked.is_some())?;
        let mut files = persona;
        files.entry(DEFAULT_PERSONA.to_owned()).or_default();
        for (name, shipped) in shipped::personas()? {
            files.entry(name).or_insert(shipped);
        }
        let personas = files
            .keys()
            .map(|name| {
                let file = extended(&files, name)?;
                Ok((name.clone(), Persona::build(environment, name.clone(), file)?))
            })
            .collect::<Outcome<BTreeMap<_, _>>>()?;
        let config = Self {
            listen,
            hosts: controller.hosts,
            tls,
            secrets,
            env_file,
            audit,
            personas,
            tests: test,
            path: None,
            overrides: overrides.clone(),
        };
        config.check()?;
        Ok(config)
    }

    /// What personas say of each other; to be checked again after a change.
    pub fn check(&self) -> Outcome<()> {
        check_connections(&self.personas)
    }

    /// The persona of this name.
    pub fn persona(&self, name: Option<&str>) -> Outcome<&Persona> {
        let name = name.unwrap_or(DEFAULT_PERSONA);
        self.personas.get(name).ok_or_else(|| {
            let known = self.personas.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            Failure::config(format_args!("there is no persona `{name}`: the configuration has {known}"))
        })
    }
}

/// A persona with everything that it inherits.
fn extended(files: &BTreeMap<String, PersonaFile>, name: &str) -> Outcome<PersonaFile> {
    let mut merged = PersonaFile::default();
    let mut seen = Vec::new();
    let mut next = Some(name.to_owned());
    while let Some(current) = next.take() {
        if seen.contains(&current) {
            return Err(Failure::config(format_args!("persona {name} extends itself: {}", seen.join(", "))));
        }
        let file = files.get(&current).ok_or_else(|| {
            Failure::config(format_args!("persona {name} extends `{current}`, which does not exist"))
        })?;
        merged = merged.extending(file.clone());
        seen.push(current);
        next.clone_from(&file.extends);
    }
    Ok(merged)
}

/// A persona connects to one that exists and connects to none itself.
fn check_connections(personas: &BTreeMap<String, Persona>) -> Outcome<()> {
    for persona in personas.values() {
        let Some(connect) = &persona.connect else { continue };
        match personas.get(&connect.persona) {
            Some(target) if target.connect.is_none() => {}
            _ => {
                return Err(Failure::config(format_args!(
                    "persona {} connects to `{}`, which does not exist or connects to another",
                    persona.name, connect.persona
                )));
            }
        }
    }
    Ok(())
}

fn find(environment: &Environment, overrides: &Overrides) -> Option<(PathBuf, bool)> {
    if let Some(path) = &overrides.config {
        return Some((environment.resolve(path), true));
    }
    if let Some(path) = environment.var("LEGION_CONFIG") {
        return Some((environment.resolve(Path::new(path)), true));
    }
    Some((environment.config_home()?.join("legion/legion.toml"), false))
}

fn read(path: &Path, asked_for: bool) -> Outcome<file::ConfigFile> {
    let fail = |why: &dyn std::fmt::Display| {
        Failure::config(format_args!("cannot read the configuration {}: {why}", path.display()))
    };
    match std::fs::metadata(path) {
        Ok(meta) if meta.len() > MAX_CONFIG_BYTES => {
            return Err(fail(&format_args!("it is larger than {MAX_CONFIG_BYTES} bytes")));
        }
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !asked_for => {
            return Ok(file::ConfigFile::default());
        }
        Err(error) => return Err(fail(&error)),
    }
    let text = std::fs::read_to_string(path).map_err(|error| fail(&error))?;
    file::parse(&text).map_err(|(line, column, message)| {
        Failure::config(format_args!("{}:{line}:{column}: {message}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(dir: &Path) -> Environment {
        Environment {
            vars: BTreeMap::from([("HOME".to_owned(), dir.join("home").to_string_lossy().into_owned())]),
            cwd: dir.to_owned(),
            executable: PathBuf::from("/usr/bin/legion-controller"),
            uid: 1000,
        }
    }

    fn load(dir: &Path, text: &str) -> Outcome<Config> {
        let config = dir.join("legion.toml");
        std::fs::write(&config, text).unwrap();
        Config::load(&environment(dir), &Overrides { config: Some(config), ..Overrides::default() })
    }

    #[test]
    fn defaults_need_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::load(&environment(dir.path()), &Overrides::default()).unwrap();
        assert_eq!(config.listen[0].to_string(), "ws://127.0.0.1:0");
        let persona = config.persona(None).unwrap();
        assert_eq!(
            (persona.view, persona.mount_at, persona.network),
            (View::Minimal, MountAt::Host, Network::None)
        );
        assert_eq!(persona.workspace, Path::new("."));
    }

    #[test]
    fn the_example_of_the_design_is_understood() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".env"), "OPENAI_API_KEY=x\nOTHER=y\n").unwrap();
        let config = load(
            dir.path(),
            r#"
            [controller]
            listen = ["ws://127.0.0.1:0?query_token=true", "ws://[::1]:0"]
            env_file = ".env"
            [persona.default]
            view = "host-ro"
            protect = ["+.github/workflows"]
            toolchains = true
            mounts = [ { mode = "ro", from = "./roles", to = "/roles" }, { mode = "tmpfs", to = "/cache" } ]
            [persona.default.env]
            set = { NODE_ENV = "production" }
            inherit = ["LANG", "LC_*"]
            secrets = ["OPENAI_*"]
            [persona.default.limits]
            memory = "4GiB"
            pids = 512
            open_files = 4096
            wall = "0"
            output = "10MiB"
            "#,
        )
        .unwrap();
        let persona = config.persona(Some("default")).unwrap();
        assert_eq!(persona.mounts[0].from.as_deref(), Some(dir.path().join("roles").as_path()));
        let limits = &persona.limits;
        assert_eq!(
            (limits.memory, limits.pids, limits.wall, limits.output),
            (Some(4 << 30), 512, None, Some(10 << 20))
        );
        let secrets: Vec<_> =
            config.secrets.keys().filter(|name| persona.env.secrets.matches(name)).collect();
        assert_eq!(secrets, ["OPENAI_API_KEY"]);
        assert!(config.listen[0].query_token && !config.listen[1].query_token);
    }

    #[test]
    fn mistakes_are_named_with_line_and_column() {
        let dir = tempfile::tempdir().unwrap();
        for (text, part) in [
            ("[controller]\nlistne = []\n", "legion.toml:2:1: unknown field `listne`"),
            ("[persona.x]\nview = \"all\"\n", "legion.toml:2:8: unknown variant `all`"),
            ("[controller]\nlisten = [\"ws://0.0.0.0:1\"]\n", "without TLS"),
            ("[controller]\nlisten = [\"wss://0.0.0.0:1\"]\n", "needs a certificate"),
            ("[persona.x]\nmounts = [{ mode = \"ro\", to = \"/x\" }]\n", "needs `from`"),
            ("[persona.x]\nmounts = [{ mode = \"ro\", from = \"/a\", to = \"x\" }]\n", "absolute"),
            ("[persona.x.env]\nsecrets = [\"A*B\"]\n", "`A*B`"),
            ("[persona.x.env]\nset = { \"A=B\" = \"1\" }\n", "`A=B`"),
            ("[persona.x]\nttl = \"soon\"\n", "`soon`"),
            ("[persona.\"a b\"]\n", "`a b`"),
            ("[persona.x.connect]\npersona = \"y\"\n", "`y`"),
            ("[persona.x]\nworkspace_parts = [\"/a\"]\n", "`/a`"),
            ("[persona.x]\nprotect = [\"a\"]\n", "`a`"),
            ("[persona.x]\nprotect = [\"+../a\"]\n", "`../a`"),
            ("[audit]\nsync = \"never\"\n", "unknown variant `never`"),
            ("[audit]\nfile_size = \"1KiB\"\n", "audit.file_size"),
            ("[persona.x.limits]\nmemory = \"lots\"\n", "`lots`"),
            ("x", "legion.toml:1:2"),
        ] {
            let failure = load(dir.path(), text).unwrap_err();
            assert!(failure.message.contains(part), "{text}: {}", failure.message);
            assert_eq!(failure.exit.code(), 78);
        }
        assert!(
            load(dir.path(), "")
                .unwrap()
                .persona(Some("nobody"))
                .unwrap_err()
                .message
                .contains("has codex-client, codex-exec, default")
        );
    }
}
