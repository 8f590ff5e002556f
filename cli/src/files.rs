//! What is so of all files that a run writes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Refuses two flags that name one file: what the one writes would be lost by the other. What is no file, such as a
/// terminal or a pipe, may be written to by both.
pub(crate) fn check_apart(files: &[(&str, PathBuf)]) -> Result<()> {
    for (i, (flag, path)) in files.iter().enumerate() {
        let same = |other: &Path| other == path || real(other).is_some_and(|other| Some(other) == real(path));
        if let Some((other, _)) = files[..i].iter().find(|(_, other)| same(other) && !is_special(other)) {
            bail!("{other} and {flag} are both {}; give each a file of its own", path.display());
        }
    }
    Ok(())
}

/// Whether something is there that is no file and no link to one.
pub(crate) fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| !data.is_file())
}

/// Where a file is, or would be.
pub(crate) fn real(path: &Path) -> Option<PathBuf> {
    let folder = || path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::canonicalize(path).ok().or_else(|| Some(fs::canonicalize(folder()).ok()?.join(path.file_name()?)))
}
