//! A call as the policy sees it: what is asked for, without content.
//!
//! Invariant: the same call gives the same action, whether it comes as a frame, from `policy why`, or from a record.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use legion_protocol::PathUri;
use serde::{Deserialize, Serialize};

use super::command::Reading;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Wire name of the method.
    pub method: &'static str,
    /// What it is about.
    pub what: What,
}

/// What a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// `process/start`
    Command(Box<Command>),
    /// `fs/*` and other calls that name paths.
    Files(Vec<Touch>),
    /// `http/request`
    Http(Http),
    /// A method that names nothing to decide on.
    Other,
}

/// A command to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// As it will be executed.
    pub argv: Vec<String>,
    /// The name the program is told it has, when that is another.
    pub alias: Option<String>,
    /// Inside, under all names: as it was named, and with links followed.
    pub cwd: Vec<Names>,
    /// Whether links on the way to it could not be followed.
    pub cwd_lost: bool,
    /// Names of the variables the client sets, sorted.
    pub env: Vec<String>,
    /// What it runs, as far as it can be seen.
    pub reading: Reading,
}

impl Command {
    /// Takes a command apart. `alias` is the name it is told it has.
    pub fn new(argv: Vec<String>, alias: Option<&str>, cwd: Names, mut env: Vec<String>) -> Self {
        env.sort();
        env.dedup();
        let reading = Reading::of(&argv, alias, &env);
        Self { argv, alias: alias.map(str::to_owned), cwd: vec![cwd], cwd_lost: false, env, reading }
    }

    /// Names of all variables that are set for what it runs.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.env.iter().chain(&self.reading.assigned).map(String::as_str)
    }
}

/// What only the file system knows of a session's view. Without it, links are taken for what they are called.
pub trait Look {
    /// Where a path inside leads; its last component is followed too when `last` is set. `None` when that cannot be told.
    fn resolve(&self, path: &Path, last: bool) -> Option<PathBuf>;
    /// The file inside that a program's name stands for.
    fn program(&self, name: &str) -> Program;
}

/// Where a program is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// Here.
    At(PathBuf),
    /// Nowhere: it is a word of the shell, or cannot run.
    Nowhere,
    /// In a directory that only the sandbox can see.
    Hidden,
}

/// Makes actions: the same ones for the gate, for `policy why` and for `policy replay`.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    /// Names of the workspace.
    pub places: &'a Places,
    /// Set when a rule depends on it.
    pub look: Option<&'a dyn Look>,
}

impl Sight<'_> {
    /// A command about to be started.
    pub fn command(&self, argv: Vec<String>, alias: Option<&str>, cwd: &Path, env: Vec<String>) -> What {
        let mut command = Command::new(argv, alias, self.places.names(cwd), env);
        if let Some(look) = self.look {
            match look.resolve(cwd, true) {
                Some(resolved) if resolved != cwd => command.cwd.push(self.places.names(&resolved)),
                Some(_) => {}
                None => command.cwd_lost = true,
            }
            let (moved, elsewhere) = (command.reading.moved, command.reading.searches_elsewhere());
            for part in &mut command.reading.parts {
                if let Some(program) = part.program() {
                    let is_found =
                        if program.contains('/') { moved && part.is_relative() } else { elsewhere };
                    (part.exes, part.lost) = self.programs(look, cwd, program);
                    part.lost |= is_found;
                }
            }
        }
        What::Command(Box::new(command))
    }

    /// The names of a program's file, and whether links on its way could not be followed.
    fn programs(&self, look: &dyn Look, cwd: &Path, program: &str) -> (Vec<Names>, bool) {
        let found = if program.contains('/') {
            PathUri::from_path(&cwd.join(program)).map_or(Program::Hidden, |uri| Program::At(uri.into_path()))
        } else {
            look.program(program)
        };
        let found = match found {
            Program::At(found) => found,
            Program::Nowhere => return (Vec::new(), false),
            Program::Hidden => return (Vec::new(), true),
        };
        let resolved = look.resolve(&found, true);
        let lost = resolved.is_none();
        let mut names = vec![self.places.names(&found)];
        names.extend(
            resolved.filter(|resolved| *resolved != found).map(|resolved| self.places.names(&resolved)),
        );
        (names, lost)
    }

    /// A path of a call.
    pub fn touch(&self, op: Op, path: &Path, tree: bool) -> Touch {
        let mut touch =
            Touch { op, path: path.to_owned(), names: vec![self.places.names(path)], lost: false, tree };
        let Some(look) = self.look else { return touch };
        // A link that is removed or copied goes itself; what it leads to stays where it is.
        let ways: &[bool] = if op == Op::Remove { &[false] } else { &[false, true] };
        for last in ways {
            match look.resolve(path, *last).map(|resolved| self.places.names(&resolved)) {
                Some(names) if touch.names.contains(&names) => {}
                Some(names) => touch.names.push(names),
                None => touch.lost = true,
            }
        }
        touch
    }
}

/// What happens to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Content, metadata or names are read.
    Read,
    /// A file or directory is made or changed.
    Write,
    /// It is removed.
    Remove,
    /// It is read by a copy.
    CopySource,
    /// It is written by a copy.
    CopyDestination,
}

impl Op {
    /// Whether a rule about `self` is about `other`: a copy reads its source and writes its destination.
    pub fn includes(self, other: Self) -> bool {
        self == other
            || matches!((self, other), (Self::Read, Self::CopySource) | (Self::Write, Self::CopyDestination))
    }
}

/// One path of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    /// What happens to it.
    pub op: Op,
    /// As the client named it: inside, absolute and normal.
    pub path: PathBuf,
    /// All names it has: as it was named, and with links followed.
    pub names: Vec<Names>,
    /// Whether links on its way could not be followed.
    pub lost: bool,
    /// Whether everything below it is meant, too.
    pub tree: bool,
}

/// An HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// `GET`, `POST`…
    pub method: String,
    /// As the client wrote it.
    pub url: String,
    /// Lower case, without port; `None` when the URL does not show it plainly.
    pub host: Option<String>,
    /// Whether redirections are followed, to hosts nobody has seen yet.
    pub follows: bool,
}

impl Http {
    /// Reads a URL. What is not a plain `scheme://host…` has no host.
    pub fn new(method: &str, url: &str, follows: bool) -> Self {
        Self { method: method.to_ascii_uppercase(), url: url.to_owned(), host: host(url), follows }
    }
}

fn host(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return None;
    }
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    // What two readers could take apart in two ways has no plain host.
    let authority = if authority.contains(['@', '\\', '%']) { return None } else { authority };
    match authority.strip_prefix('[') {
        Some(rest) => plain_host(rest.split_once(']')?.0),
        None => plain_host(authority.split(':').next()?),
    }
}

/// A host as it is compared: in lower case, an address as it is usually written. `None` for what a resolver may take for
/// an address, but not everybody.
pub fn plain_host(host: &str) -> Option<String> {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if host.contains(':') {
        let address: Ipv6Addr = host.parse().ok()?;
        return Some(
            address.to_ipv4_mapped().map_or_else(|| address.to_string(), |address| address.to_string()),
        );
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let last = host.rsplit('.').next()?;
    let is_number = last.starts_with(|c: char| c.is_ascii_digit());
    let is_plain =
        !last.is_empty() && host.chars().all(plain) && !host.starts_with('.') && !host.contains("..");
    (is_plain && (!is_number || host.parse::<Ipv4Addr>().is_ok())).then_some(host)
}

/// A path under all the names it has inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Absolute.
    pub absolute: Vec<PathBuf>,
    /// From the workspace; `.` is the workspace itself.
    pub relative: Option<PathBuf>,
    /// The workspace itself, where that lies below this path.
    pub below: Vec<PathBuf>,
}

/// The place a session's workspace has: it may have two names inside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// Directories inside that are the workspace.
    pub workspace: Vec<PathBuf>,
}

impl Places {
    /// All names of a normal absolute path.
    pub fn names(&self, path: &Path) -> Names {
        let below = self.workspace.iter().find_map(|workspace| path.strip_prefix(workspace).ok());
        let Some(rest) = below else {
            // What is reached by one of its names is what the others name, too.
            let above = self.workspace.iter().any(|workspace| workspace.starts_with(path));
            let below = if above { self.workspace.clone() } else { Vec::new() };
            return Names { absolute: vec![path.to_owned()], relative: None, below };
        };
        if rest.as_os_str().is_empty() {
            return Names {
                absolute: self.workspace.clone(),
                relative: Some(PathBuf::from(".")),
                below: Vec::new(),
            };
        }
        let absolute = self.workspace.iter().map(|workspace| workspace.join(rest)).collect();
        Names { absolute, relative: Some(rest.to_owned()), below: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_read_only_where_it_is_plain() {
        for (url, expected) in [
            ("https://Example.COM./x", Some("example.com")),
            ("http://example.com:80", Some("example.com")),
            ("http://[::1]:80/", Some("::1")),
            ("http://[0:0::0001]/", Some("::1")),
            ("http://[::ffff:127.0.0.1]/", Some("127.0.0.1")),
            ("http://127.0.0.1/", Some("127.0.0.1")),
            ("http://127.1/", None),
            ("http://0x7f.0.0.1/", None),
            ("http://2130706433/", None),
            ("http://0x7f000001/", None),
            ("http://a.0x7f/", None),
            ("http://a..b/", None),
            ("http://example.com../", None),
            ("https://a@b/", None),
            ("https://a\\@b/", None),
            ("https://exa%6dple.com/", None),
            ("https://exämple.com/", None),
            ("ftp://example.com/", None),
            ("https:///x", None),
        ] {
            assert_eq!(Http::new("get", url, false).host.as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn a_workspace_has_two_names_and_its_paths_have_both() {
        let places = Places { workspace: vec!["/srv/p".into(), "/workspace".into()] };
        assert_eq!(places.names(Path::new("/srv/p/a")), places.names(Path::new("/workspace/a")));
        assert_eq!(places.names(Path::new("/srv/p")).relative, Some(".".into()));
        assert_eq!(places.names(Path::new("/srv/pp/a")).relative, None);
    }
}
