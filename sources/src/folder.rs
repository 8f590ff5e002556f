//! Folders of files, one folder for each class, as torchvision's `ImageFolder` and `DatasetFolder`
//! read them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use slotline::dtype::DType;
use walkdir::WalkDir;

use crate::files::{Files, Span};
use crate::format::place;
use crate::open::{CLASSES, Settings};
use crate::{Error, FieldKind, Format, Input, Options, Record, RecordFields, Records, Value};

/// The extensions that torchvision's `ImageFolder` accepts.
pub const IMAGES: [&str; 9] = [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// Files in folders that are named after their classes. A sample has the bytes of a file, `data`,
/// and the index of its class, `label: i64`. With [`mask_folder`](Options::mask_folder) it also has
/// the bytes of another file, `mask`, and no label if there are no classes.
///
/// The classes, their indices, the samples and their order are the same as in torchvision 0.29. The
/// classes are the folders directly below the root, sorted by name. The files of a class are all
/// files below its folder that have one of the extensions, in upper or lower case. Symbolic links
/// are followed.
///
/// Names are compared by their bytes, which for UTF-8 is Python's order. Unlike in torchvision, a
/// symbolic link to a folder above it is an error; torchvision follows it again and again, until
/// the path is too long.
///
/// ```
/// use slotline::Loader;
/// use slotline_sources::folder::Folder;
///
/// # let root = tempfile::tempdir()?;
/// # for (file, bytes) in [("cat/1.jpg", "miaow"), ("dog/1.jpg", "woof"), ("dog/2.JPG", "wuff")] {
/// #     std::fs::create_dir_all(root.path().join(file).parent().unwrap())?;
/// #     std::fs::write(root.path().join(file), bytes)?;
/// # }
/// let pets = Folder::open(root.path())?;
/// assert_eq!(pets.format().classes(), ["cat", "dog"]);
/// let mut loader = Loader::builder(pets).batch_size(3).build()?;
/// let batch = loader.epoch()?.next().expect("three files")?;
/// let columns = batch.tensors();
/// assert_eq!(columns.get(0).unwrap().bytes(), b"miaowwoofwuff");
/// assert_eq!(columns.offsets(0), Some(&[0, 5, 9, 13][..]));
/// assert_eq!(columns.get(1).unwrap().typed::<i64>().unwrap().as_slice(), [0, 1, 1]);
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Debug)]
pub struct Folder {
    /// The files of all samples, and then their masks, if they have any.
    files: Files,
    len: usize,
    classes: Vec<String>,
    /// The index of the first file of each class, followed by the number of all files.
    starts: Vec<usize>,
    fields: RecordFields,
}

/// Options for reading a folder. The defaults are those of torchvision's `ImageFolder`: the
/// extensions are those of [pictures](IMAGES), and each class must have a file.
/// [`extensions`](Options::extensions) may be in upper or lower case.
pub type FolderOptions = Options<Folder>;

impl FolderOptions {
    /// Lists the files below `root`, a folder or its URL (see [`Files::open`]).
    ///
    /// # Errors
    ///
    /// If a folder can't be listed, there are no classes, or a class has no files.
    pub fn open(&self, root: impl AsRef<Path>) -> Result<Records<Folder>, Error> {
        let (set, root) = (&self.set, root.as_ref());
        set.check(CLASSES)?;
        #[cfg(feature = "remote")]
        if crate::files::is_url(root) {
            if set.mask_folder.is_some() {
                let problem = "`mask_folder` for a folder in a bucket";
                return Err(Error::usage(problem, "list the files in a CSV or JSONL file, with `file_column`"));
            }
            let root = root.to_string_lossy();
            return set.of_url(&root, set.list_url(&root)?);
        }
        let classes = match classes(root)? {
            classes if classes.is_empty() && set.mask_folder.is_none() => return Err(no_classes(root.display())),
            classes => classes,
        };
        let (mut list, mut starts) = (Vec::new(), vec![0]);
        for class in &classes {
            set.list(root, class, &mut list)?;
            starts.push(list.len());
        }
        set.check_classes(root, &classes, &starts)?;
        if classes.is_empty() {
            set.list(root, "", &mut list)?;
            if list.is_empty() {
                let problem = format!("no files that end in {}", set.class_extensions().join(", "));
                return Err(Error::in_file(root, problem, "add files, or set `extensions`"));
            }
        }
        let len = list.len();
        if let Some(masks) = &set.mask_folder {
            // A path that is absolute replaces the root.
            let masks = std::path::absolute(masks).map_err(|source| Error::io(masks, "find", source))?;
            list.extend_from_within(..);
            list[len..].iter_mut().for_each(|path| *path = masks.join(&path).with_extension("png"));
        }
        Ok(Folder::new(Files::open_per_read(root, &list), len, classes, starts))
    }
}

impl Settings {
    /// Lists all objects below a URL, sorted by name.
    #[cfg(feature = "remote")]
    pub(crate) fn list_url(&self, root: &str) -> Result<Vec<crate::remote::Listed>, Error> {
        crate::remote::list(root, |name| self.chooses(name))
    }

    /// Creates a dataset of the objects below a URL.
    #[cfg(feature = "remote")]
    pub(crate) fn of_url(&self, root: &str, mut list: Vec<crate::remote::Listed>) -> Result<Records<Folder>, Error> {
        let class = |name: &str| name.split_once('/').map(|(class, _)| class.to_owned());
        let mut classes: Vec<String> = list.iter().filter_map(|object| class(&object.name)).collect();
        classes.sort_unstable();
        classes.dedup();
        if classes.is_empty() {
            return Err(no_classes(root));
        }
        list.retain(|object| object.name.contains('/') && self.chooses(&object.name));
        list.sort_by_cached_key(|object| (class(&object.name), key(Path::new(&object.name))));
        let count = |name: &String| list.partition_point(|object| class(&object.name).as_ref() <= Some(name));
        let starts: Vec<usize> = std::iter::once(0).chain(classes.iter().map(count)).collect();
        self.check_classes(Path::new(root), &classes, &starts)?;
        let len = list.len();
        Ok(Folder::new(Files::listed(root, list)?, len, classes, starts))
    }

    /// Returns an error if a class is empty, unless that is allowed.
    fn check_classes(&self, root: &Path, classes: &[String], starts: &[usize]) -> Result<(), Error> {
        let pairs = classes.iter().zip(starts.windows(2));
        let empty: Vec<&str> = pairs.filter(|(_, at)| at[0] == at[1]).map(|(class, _)| class.as_str()).collect();
        if !empty.is_empty() && !self.allow_empty {
            let problem = format!(
                "no files for the classes {} that end in {}",
                empty.join(", "),
                self.class_extensions().join(", ")
            );
            return Err(Error::in_file(root, problem, "add files, or set `extensions` or `allow_empty`"));
        }
        Ok(())
    }

    /// Returns the extensions of the files, in lower case.
    fn class_extensions(&self) -> Vec<String> {
        match &self.extensions {
            Some(extensions) => extensions.iter().map(|extension| extension.to_lowercase()).collect(),
            None => IMAGES.map(str::to_owned).into(),
        }
    }

    /// Whether a name has one of the extensions.
    fn chooses(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.class_extensions().iter().any(|extension| name.ends_with(extension.as_str()))
    }

    /// Adds the files of a class to the list, with paths relative to the root.
    fn list(&self, root: &Path, class: &str, list: &mut Vec<PathBuf>) -> Result<(), Error> {
        let first = list.len();
        for entry in WalkDir::new(root.join(class)).follow_links(true) {
            let path = match entry {
                Ok(entry) if entry.file_type().is_dir() => continue,
                Ok(entry) => entry.into_path(),
                // torchvision lists a symbolic link that leads nowhere, too; reading the file is an
                // error then.
                Err(error) => match error.path() {
                    Some(path) if error.loop_ancestor().is_none() && path.is_symlink() && !path.exists() => {
                        path.to_owned()
                    }
                    _ => return Err(walk_error(root, error)),
                },
            };
            if self.chooses(&path.file_name().unwrap_or_default().to_string_lossy()) {
                list.push(path.strip_prefix(root).unwrap_or(&path).to_owned());
            }
        }
        list[first..].sort_by_cached_key(|path| key(path));
        Ok(())
    }
}

/// Returns the key by which torchvision sorts files: the whole path of the folder as a string, and
/// then the name.
fn key(path: &Path) -> (OsString, OsString) {
    let folder = path.parent().unwrap_or(Path::new("")).as_os_str().to_owned();
    (folder, path.file_name().unwrap_or_default().to_owned())
}

fn no_classes(root: impl std::fmt::Display) -> Error {
    let problem = "no folders in it, which would be the classes";
    Error::format(root, None, problem, "pass the folder that has a folder for each class")
}

/// Returns the names of the folders directly below `root`, sorted; none if there are none.
fn classes(root: &Path) -> Result<Vec<String>, Error> {
    let failed = |source| Error::io(root, "list", source);
    let mut classes = Vec::new();
    for entry in root.read_dir().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.path().is_dir() {
            continue;
        }
        let name = entry.file_name().into_string().map_err(|name| {
            let problem = format!("the name of the folder {} is not UTF-8", name.to_string_lossy());
            Error::in_file(root, problem, "rename it")
        })?;
        classes.push(name);
    }
    classes.sort_unstable();
    Ok(classes)
}

fn walk_error(root: &Path, error: walkdir::Error) -> Error {
    let path = error.path().unwrap_or(root).to_owned();
    if error.loop_ancestor().is_some() {
        return Error::in_file(path, "a link to a folder above it", "remove the link");
    }
    Error::io(&path, "list", error.into())
}

impl Folder {
    /// Lists the pictures below `root`, with the [default options](FolderOptions).
    ///
    /// # Errors
    ///
    /// If a folder can't be listed, there are no classes, or a class has no files.
    pub fn open(root: impl AsRef<Path>) -> Result<Records<Self>, Error> {
        FolderOptions::new().open(root)
    }

    fn new(files: Files, len: usize, classes: Vec<String>, starts: Vec<usize>) -> Records<Self> {
        let bytes = FieldKind::Bytes(files.room());
        let mask = (files.len() > len).then(|| ("mask", bytes.clone()));
        let label = (!classes.is_empty()).then_some(("label", FieldKind::Number(DType::I64)));
        let fields = RecordFields::new([("data", bytes)].into_iter().chain(mask).chain(label));
        Records::new(Self { files, len, classes, starts, fields })
    }

    /// Returns the names of the classes. A label is an index into this list.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Returns the spans of a sample's files.
    fn file_spans(&self, index: usize) -> impl Iterator<Item = Span> {
        (index..self.files.len()).step_by(self.len.max(1)).map(|file| Span { file, start: 0, len: None })
    }

    /// Returns the class of a file.
    fn label(&self, index: usize) -> i64 {
        place(&self.starts, index).0 as i64
    }
}

impl Format for Folder {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn files(&self) -> &Files {
        &self.files
    }

    fn knows_fields(&self) -> bool {
        true
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        self.file_spans(index).for_each(each);
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        let files = input.list(self.file_spans(index))?;
        let label = (!self.classes.is_empty()).then(|| Value::number(self.label(index)));
        Ok(Record::new(&self.fields, files.into_iter().map(Value::from).chain(label)))
    }
}
