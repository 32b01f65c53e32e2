//! The key that signs checkpoints: `keys/audit-ed25519.pk8` in the state directory, mode 0600, made when first needed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustix::fs::{Mode, OFlags};
use zeroize::Zeroizing;

use super::checkpoint::{PublicKey, Signer};
use crate::dirs;
use crate::failure::{Failure, Outcome};
use crate::limits::MAX_KEY_BYTES;

/// Its name in the directory of keys.
const NAME: &str = "audit-ed25519.pk8";

fn directory(state: &Path) -> PathBuf {
    state.join("keys")
}

fn failed(state: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::config(format_args!(
        "cannot use the audit key {}: {error}",
        directory(state).join(NAME).display()
    ))
}

/// Opens the key, or makes one. The caller holds the log's lock.
pub fn open_or_make(state: &Path, uid: u32) -> Outcome<Signer> {
    let fail = |error: &dyn std::fmt::Display| failed(state, error);
    let dir = dirs::open_private(&directory(state), uid)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pkcs8 = match rustix::fs::openat(&dir, NAME, flags, Mode::empty()) {
        Ok(file) => read(File::from(file)).map_err(|error| fail(&error))?,
        Err(rustix::io::Errno::NOENT) => {
            let document =
                Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|error| fail(&error))?;
            let pkcs8 = Zeroizing::new(document.as_ref().to_vec());
            dirs::write_private(&dir, NAME, &pkcs8).map_err(|error| fail(&error))?;
            pkcs8
        }
        Err(error) => return Err(fail(&error)),
    };
    Signer::new(&pkcs8).map_err(|error| fail(&error))
}

/// The public half of a key that is there; `None` when there is none.
pub fn find_public(state: &Path) -> Outcome<Option<PublicKey>> {
    let pkcs8 = match File::open(directory(state).join(NAME)).and_then(read) {
        Ok(pkcs8) => pkcs8,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(state, error)),
    };
    Signer::new(&pkcs8).map(|signer| Some(signer.public().clone())).map_err(|error| failed(state, error))
}

fn read(file: File) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(MAX_KEY_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
