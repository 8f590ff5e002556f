//! Finding out what a path is.

use std::path::{Path, PathBuf};

use crate::{Error, Format, Records};

/// Opens data of any format that was built in, by its contents and its names.
///
/// | path | format |
/// |---|---|
/// | a folder with folders in it | [`folder`](crate::folder) |
///
/// # Errors
///
/// If the path can't be read, its format is not known or was not built in, or the format's own errors.
pub fn open(paths: &[PathBuf]) -> Result<Records<dyn Format>, Error> {
    let [path] = paths else {
        return Err(Error::usage(format!("{} paths", paths.len()), "pass one"));
    };
    let found = path.metadata().map_err(|source| Error::io(path, "open", source))?;
    if found.is_dir() { open_folder(path) } else { Err(unknown(path)) }
}

fn open_folder(path: &Path) -> Result<Records<dyn Format>, Error> {
    #[cfg(feature = "folder")]
    return Ok(crate::folder::Folder::open(path)?.erased());
    #[cfg(not(feature = "folder"))]
    Err(unknown(path))
}

fn unknown(path: &Path) -> Error {
    let problem = "not a format that this build reads";
    Error::format(path.display(), None, problem, "see the documentation of slotline-sources for its formats")
}
