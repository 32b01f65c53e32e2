//! The personas Legion comes with: the files of `controller/personas`, word by word. A persona of the same name in the
//! user's configuration takes the place of one.

use super::file::{self, PersonaFile};
use crate::failure::{Failure, Outcome};

const FILES: [&str; 5] = [
    include_str!("../../personas/codex-client.toml"),
    include_str!("../../personas/codex-exec.toml"),
    include_str!("../../personas/legion-daemon.toml"),
    include_str!("../../personas/opencode.toml"),
    include_str!("../../personas/opencode-client.toml"),
];

/// Names and contents.
pub(super) fn personas() -> Outcome<impl Iterator<Item = (String, PersonaFile)>> {
    let parse = |text| {
        file::parse(text).map_err(|(line, _, message)| {
            Failure::internal(format_args!("a shipped persona is broken in line {line}: {message}"))
        })
    };
    let files = FILES.into_iter().map(parse).collect::<Outcome<Vec<_>>>()?;
    Ok(files.into_iter().flat_map(|file| file.persona))
}
