//! The private directory of one run: data of the servers it starts, gone at its end.
//!
//! A run that was killed cannot tidy up, so the next one removes what no living run holds.
//! Logs do not live here: they must survive a failure.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

const PREFIX: &str = "oncebox-";
const LOCK: &str = "in-use";

pub struct RunDir {
    dir: TempDir,
    /// Locked as long as we live; the kernel unlocks it however we end.
    _lock: File,
}

impl RunDir {
    pub fn create() -> Result<Self> {
        remove_abandoned(&std::env::temp_dir());
        let dir =
            tempfile::Builder::new().prefix(PREFIX).tempdir().context("making a run directory")?;
        // The database server is another user when we are root: it must be able to pass through.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o711))?;
        let lock = File::create(dir.path().join(LOCK))?;
        lock.lock().context("locking the run directory")?;
        Ok(Self { dir, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Leaves the directory where it is until the next run starts.
    pub fn keep(self) -> PathBuf {
        self.dir.keep()
    }
}

fn remove_abandoned(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // A directory without the file is just being made by a run that starts now.
        let Some(lock) = ours.then(|| File::open(entry.path().join(LOCK)).ok()).flatten() else {
            continue;
        };
        if lock.try_lock().is_ok() {
            let _somebody_elses_stays = fs::remove_dir_all(entry.path());
        }
    }
}
