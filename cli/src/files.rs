//! Checks on the files that a run reads and writes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::source::Named;
use anyhow::{Result, bail};

/// Rejects two flags that name the same file, since each would overwrite what the other writes. Two
/// flags may share a path that is not a regular file, such as a terminal or a pipe.
pub(crate) fn check_apart(files: &[(&str, PathBuf)]) -> Result<()> {
    for (i, (flag, path)) in files.iter().enumerate() {
        let same = |other: &Path| {
            let real = || real(other).is_some_and(|other| Some(other) == real(path));
            other == path || real() || is_one_file(other, path)
        };
        if let Some((other, _)) = files[..i].iter().find(|(_, other)| same(other) && !is_special(other)) {
            bail!("{other} and {flag} are both {}; give each a separate file", path.display());
        }
    }
    Ok(())
}

/// Rejects a flag that names a file of the source, which would be overwritten while it is read.
pub(crate) fn check_not_source(source: &Named, files: &[(&str, PathBuf)]) -> Result<()> {
    for file in files {
        source.files().iter().try_for_each(|path| check_apart(&[("SOURCE", path.clone()), file.clone()]))?;
    }
    Ok(())
}

/// Returns whether both paths name the same existing file.
fn is_one_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).ok().map(|data| (data.dev(), data.ino()));
    id(one).is_some_and(|one| id(other) == Some(one))
}

/// Returns whether the path exists and is neither a regular file nor a link to one.
pub(crate) fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| !data.is_file())
}

/// Returns the canonical path of a file, which need not exist.
pub(crate) fn real(path: &Path) -> Option<PathBuf> {
    let folder = || path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::canonicalize(path).ok().or_else(|| Some(fs::canonicalize(folder()).ok()?.join(path.file_name()?)))
}
