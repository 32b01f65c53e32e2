//! `capabilityRoots/discoverV1` and `capabilities/discoverV2`: skills and plugin manifests below given directories
//! (SPEC 9.4, 9.5).
//!
//! Invariant: every walk, file, root and answer has a bound, and running into one is a warning in the answer, never an
//! error: a client shows what there is.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use legion_protocol::capability::{Discovered, DiscoveredRoot, Plugin, Root, Skill, TextFile};
use legion_protocol::fs::{WalkKind, WalkOptions};
use legion_protocol::{ErrorObject, PathUri};
use rustix::fs::{AtFlags, CWD, FileType, statat};
use rustix::io::Errno;
use serde_json::Value;

use crate::error::{Outcome, os_text};
use crate::fs::{file, walk};
use crate::limits::{
    CAPABILITY_WALK, MAX_CAPABILITY_BYTES, MAX_CAPABILITY_FILE_BYTES, MAX_CAPABILITY_ROOT_BYTES,
    MAX_CAPABILITY_ROOTS, MAX_CAPABILITY_WARNINGS,
};

/// Directories a plugin's manifest may lie in; the first one counts.
const PLUGIN_DIRECTORIES: [&str; 3] = [".codex-plugin", ".claude-plugin", ".cursor-plugin"];

/// `capabilities/discoverV2`: there is nothing to find beyond what `capabilityRoots/discoverV1` is asked about, as in
/// the original without plugins.
pub(crate) fn everywhere() -> Discovered {
    Discovered::default()
}

/// Whether this many roots may be asked about.
///
/// # Errors
/// -32600 in the words of the original.
pub(crate) fn check_count(roots: usize) -> Outcome<()> {
    if roots <= MAX_CAPABILITY_ROOTS {
        return Ok(());
    }
    let text = format!("capability root discovery accepts at most {MAX_CAPABILITY_ROOTS} roots");
    Err(ErrorObject::invalid_request(text))
}

/// The bytes of text that one answer may still take.
#[derive(Debug)]
pub(crate) struct Allowance(usize);

impl Default for Allowance {
    fn default() -> Self {
        Self(MAX_CAPABILITY_BYTES)
    }
}

/// Looks below one root. Only directories that `allows` passes are entered.
pub(crate) fn below(
    root: Root,
    allowance: &mut Allowance,
    allows: Option<&dyn Fn(&Path) -> bool>,
) -> DiscoveredRoot {
    let before = allowance.0;
    let found = DiscoveredRoot {
        id: root.id,
        path: root.path,
        plugin: None,
        skills: Vec::new(),
        namespace_manifests: Vec::new(),
        warnings: Vec::new(),
        error: None,
    };
    let left = before.min(MAX_CAPABILITY_ROOT_BYTES);
    let mut search = Search { found, allows, left };
    if let Err(error) = search.run() {
        search.found.error = Some(error);
    }
    allowance.0 = before.saturating_sub(before.min(MAX_CAPABILITY_ROOT_BYTES) - search.left);
    search.found
}

struct Search<'a> {
    found: DiscoveredRoot,
    allows: Option<&'a dyn Fn(&Path) -> bool>,
    /// Bytes of text that may still be read.
    left: usize,
}

impl Search<'_> {
    fn run(&mut self) -> Result<(), String> {
        let (uri, root) = (self.found.path.clone(), self.found.path.path().to_owned());
        let failed = |text: &str| format!("failed to inspect capability root {uri}: {text}");
        let stat = statat(CWD, &root, AtFlags::empty()).map_err(|error| failed(&os_text(&error.into())))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(format!("capability root {uri} is not a directory"));
        }
        let (max_depth, max_directories, max_entries) = CAPABILITY_WALK;
        let options = WalkOptions {
            max_depth,
            max_directories,
            max_entries,
            follow_directory_symlinks: true,
            prune_hidden_directories: false,
        };
        let walked =
            walk::walk_within(&root, &options, self.allows).map_err(|error| failed(&error.message))?;
        for error in walked.errors {
            self.warn(format!("failed to scan capability path {}: {}", error.path, error.message));
        }
        if walked.truncated {
            self.warn(format!("capability scan reached its traversal limit (root: {uri})"));
        }
        let files = walked.entries.into_iter().filter(|entry| entry.kind == WalkKind::File);
        let files: Vec<PathBuf> = files.map(|entry| entry.path.into_path()).collect();
        self.find_plugin(&root);
        self.find_skills(&files);
        self.find_manifests(&root, &files);
        Ok(())
    }

    fn find_skills(&mut self, files: &[PathBuf]) {
        let mut skills: Vec<&PathBuf> = files.iter().filter(|path| path.ends_with("SKILL.md")).collect();
        skills.sort_unstable();
        for path in skills {
            let Some(instructions) = self.read(path) else { continue };
            let metadata = self.read_if_there(&path.with_file_name("agents").join("openai.yaml"));
            self.found.skills.push(Skill { instructions, metadata });
        }
    }

    fn find_plugin(&mut self, root: &Path) {
        let Some(manifest) = self.manifest_of(root).and_then(|path| self.read(&path)) else { return };
        let named: Value = serde_json::from_str(&manifest.contents).unwrap_or_default();
        let mut part = |member: &str, default: &str| {
            let name = named[member].as_str().unwrap_or(default);
            inside(root, name).and_then(|path| self.read_if_there(&path))
        };
        let (mcp_config, apps_config) = (part("mcpServers", ".mcp.json"), part("apps", ".app.json"));
        self.found.plugin = Some(Plugin { manifest, mcp_config, apps_config });
    }

    /// The manifests below the root, and the nearest one at or above it.
    fn find_manifests(&mut self, root: &Path, files: &[PathBuf]) {
        // By the directory they are about: there the first kind counts.
        let mut manifests: BTreeMap<&Path, usize> = BTreeMap::new();
        for path in files.iter().filter(|path| path.ends_with("plugin.json")) {
            let kind =
                PLUGIN_DIRECTORIES.iter().position(|kind| path.parent().is_some_and(|p| p.ends_with(kind)));
            let (Some(kind), Some(about)) = (kind, path.ancestors().nth(2)) else { continue };
            let known = manifests.entry(about).or_insert(kind);
            *known = kind.min(*known);
        }
        let mut paths: Vec<PathBuf> = manifests
            .into_iter()
            .map(|(about, kind)| manifest_path(about, PLUGIN_DIRECTORIES[kind]))
            .collect();
        let nearest = root.ancestors().find_map(|directory| self.manifest_of(directory));
        paths.extend(nearest.filter(|path| !paths.contains(path)));
        paths.sort_unstable();
        for path in paths {
            let manifest = self.read(&path);
            self.found.namespace_manifests.extend(manifest);
        }
    }

    /// The manifest of the plugin that a directory is, if it is one.
    fn manifest_of(&mut self, directory: &Path) -> Option<PathBuf> {
        PLUGIN_DIRECTORIES.iter().map(|kind| manifest_path(directory, kind)).find(|path| self.is_there(path))
    }

    fn is_there(&mut self, path: &Path) -> bool {
        match statat(CWD, path, AtFlags::empty()) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile,
            Err(Errno::NOENT | Errno::NOTDIR) => false,
            Err(error) => {
                let text = os_text(&error.into());
                self.warn(format!("failed to inspect capability file {}: {text}", uri(path)));
                false
            }
        }
    }

    fn read_if_there(&mut self, path: &Path) -> Option<TextFile> {
        if self.is_there(path) { self.read(path) } else { None }
    }

    /// The text of a file; `None` and a warning when it cannot be had.
    fn read(&mut self, path: &Path) -> Option<TextFile> {
        match self.text_of(path) {
            Ok(contents) => Some(TextFile { path: PathUri::from_path(path)?, contents }),
            Err(warning) => {
                self.warn(warning);
                None
            }
        }
    }

    fn text_of(&mut self, path: &Path) -> Result<String, String> {
        let uri = uri(path);
        let failed = |error: ErrorObject| format!("failed to read capability file {uri}: {}", error.message);
        let opened = file::open(path, true).map_err(failed)?;
        let bytes = opened.read_up_to(MAX_CAPABILITY_FILE_BYTES).map_err(failed)?.ok_or_else(|| {
            format!("capability file {uri} exceeds the {MAX_CAPABILITY_FILE_BYTES}-byte limit")
        })?;
        self.left = self.left.checked_sub(bytes.len()).ok_or_else(|| {
            format!("capability root bundle exceeds the {MAX_CAPABILITY_ROOT_BYTES}-byte limit")
        })?;
        String::from_utf8(bytes)
            .map_err(|error| format!("capability file {uri} is not UTF-8: {}", error.utf8_error()))
    }

    fn warn(&mut self, warning: String) {
        if self.found.warnings.len() < MAX_CAPABILITY_WARNINGS {
            self.found.warnings.push(warning);
        }
    }
}

fn manifest_path(directory: &Path, kind: &str) -> PathBuf {
    directory.join(kind).join("plugin.json")
}

/// A path that a manifest names; `None` when it leads out of the plugin.
fn inside(root: &Path, name: &str) -> Option<PathBuf> {
    let inward = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    Path::new(name).components().all(inward).then(|| root.join(name).components().collect())
}

fn uri(path: &Path) -> String {
    PathUri::from_path(path).map_or_else(|| path.display().to_string(), |uri| uri.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        dir
    }

    fn search(path: &Path) -> DiscoveredRoot {
        let root = Root { id: "x".into(), path: PathUri::from_path(path).unwrap(), sandbox: None };
        below(root, &mut Allowance::default(), None)
    }

    fn names(dir: &Path, files: impl IntoIterator<Item = TextFile>) -> Vec<String> {
        let name = |file: TextFile| file.path.path().strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
        files.into_iter().map(name).collect()
    }

    #[test]
    fn skills_are_found_to_the_sixth_level_in_order() {
        let dir = tree(&[
            ("SKILL.md", b"root"),
            ("b/SKILL.md", b"b"),
            ("a/SKILL.md", b"a"),
            ("a/agents/openai.yaml", b"meta"),
            (".hidden/s/SKILL.md", b""),
            ("1/2/3/4/5/6/SKILL.md", b"deep"),
            ("1/2/3/4/5/6/7/SKILL.md", b"too deep"),
            ("a/skill.md", b"no"),
        ]);
        symlink(dir.path().join("SKILL.md"), dir.path().join("b/agents")).unwrap();
        let found = search(dir.path());
        assert_eq!((found.error, found.warnings.is_empty()), (None, true));
        assert_eq!(found.skills[3].metadata.as_ref().unwrap().contents, "meta");
        let skills = names(dir.path(), found.skills.into_iter().map(|skill| skill.instructions));
        assert_eq!(
            skills,
            [".hidden/s/SKILL.md", "1/2/3/4/5/6/SKILL.md", "SKILL.md", "a/SKILL.md", "b/SKILL.md"]
        );
    }

    #[test]
    fn what_cannot_be_read_is_a_warning() {
        let large = vec![b'x'; MAX_CAPABILITY_FILE_BYTES + 1];
        let dir = tree(&[("a/SKILL.md", b"\xff"), ("b/SKILL.md", &large), ("c/SKILL.md", b"fine")]);
        fs::create_dir_all(dir.path().join("d/SKILL.md")).unwrap();
        let found = search(dir.path());
        assert_eq!(found.skills.len(), 1);
        let at = |name: &str| uri(&dir.path().join(name));
        assert_eq!(
            found.warnings,
            [
                format!(
                    "capability file {} is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0",
                    at("a/SKILL.md")
                ),
                format!("capability file {} exceeds the 1048576-byte limit", at("b/SKILL.md")),
            ]
        );
        let none = search(&dir.path().join("none")).error.unwrap();
        assert!(none.ends_with(": No such file or directory (os error 2)"), "{none}");
        let file = search(&dir.path().join("c/SKILL.md")).error.unwrap();
        assert_eq!(file, format!("capability root {} is not a directory", at("c/SKILL.md")));
    }

    #[test]
    fn a_bundle_has_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let mebibyte = vec![b'x'; 1 << 20];
        for index in 0..20 {
            let skill = dir.path().join(format!("{index:02}"));
            fs::create_dir(&skill).unwrap();
            fs::write(skill.join("SKILL.md"), &mebibyte).unwrap();
        }
        let mut allowance = Allowance::default();
        let root = || Root { id: "x".into(), path: PathUri::from_path(dir.path()).unwrap(), sandbox: None };
        let counts = [(); 3].map(|()| below(root(), &mut allowance, None).skills.len());
        assert_eq!(counts, [16, 16, 0]);
    }

    #[test]
    fn plugins_and_the_manifests_of_their_skills() {
        let dir = tree(&[
            (".claude-plugin/plugin.json", b"{}"),
            (".codex-plugin/plugin.json", br#"{"mcpServers":"./m.json","apps":"../out.json"}"#),
            ("m.json", b"M"),
            (".mcp.json", b"no"),
            ("sub/.cursor-plugin/plugin.json", b"not json"),
            ("sub/.mcp.json", b"default"),
            ("sub/skills/q/SKILL.md", b"q"),
        ]);
        let found = search(dir.path());
        let plugin = found.plugin.unwrap();
        assert_eq!((plugin.mcp_config.unwrap().contents.as_str(), plugin.apps_config.is_none()), ("M", true));
        let manifests = names(dir.path(), found.namespace_manifests);
        assert_eq!(manifests, [".codex-plugin/plugin.json", "sub/.cursor-plugin/plugin.json"]);
        let inner = search(&dir.path().join("sub"));
        assert_eq!(inner.plugin.unwrap().mcp_config.unwrap().contents, "default");
        let below = search(&dir.path().join("sub/skills"));
        assert!(below.plugin.is_none());
        let manifests = names(dir.path(), below.namespace_manifests);
        assert_eq!(manifests, ["sub/.cursor-plugin/plugin.json"], "the nearest one above");
    }
}
