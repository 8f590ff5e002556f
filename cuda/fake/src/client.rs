//! The test's side: loads the driver, sets it up, and asks it what it saw.

use std::ffi::{CString, OsStr, c_char, c_void};
use std::fmt;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::control::{Controls, Lines, Live, Number, Options, SYMBOL, Skip, VERSION};

/// The file that cargo makes of this crate.
const FILE: &str = "libslotline_cuda_fake.so";

/// The fake driver, loaded into this process in the place of a real one.
///
/// There is one in a process, and all threads see the same. Tests that share a process take a
/// [`session`](Self::session).
pub struct Fake {
    controls: &'static Controls,
    path: PathBuf,
    session: Mutex<()>,
}

/// Why the fake driver could not take a driver's place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No such file near the running program.
    #[error("no {FILE} in any of {searched:?}; `cargo build -p slotline-cuda-fake` makes it")]
    NotFound {
        /// The folders that were looked into.
        searched: Vec<PathBuf>,
    },
    /// The system's loader refused the file.
    #[error("cannot load {}: {reason}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What the loader said.
        reason: String,
    },
    /// The file is something else, or of another build than this program.
    #[error("{} is no fake driver of this build; build it anew", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Another `libcuda.so` was loaded before, and CUDA calls would go there.
    #[error("this process has loaded another libcuda.so already; load the fake one before the first CUDA call")]
    TooLate,
}

impl Fake {
    /// Loads the driver that cargo built along with the running program, on the first call. It stays until the process
    /// ends.
    ///
    /// To be called before the first CUDA call of the process.
    ///
    /// # Panics
    ///
    /// If that fails; the message is a [`LoadError`].
    pub fn load() -> &'static Self {
        Self::find().and_then(|path| Self::load_from(&path)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Loads the driver from this file, unless it is loaded already.
    ///
    /// # Errors
    ///
    /// If that fails, or if it is too late.
    pub fn load_from(path: &Path) -> Result<&'static Self, LoadError> {
        static LOADED: OnceLock<Fake> = OnceLock::new();
        static LOADING: Mutex<()> = Mutex::new(());
        let _one = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        match LOADED.get() {
            Some(fake) => Ok(fake),
            None => open(path).map(|fake| LOADED.get_or_init(|| fake)),
        }
    }

    /// The driver's file: beside the running program, in the folders that cargo puts it in, or on the loader's path,
    /// which cargo sets for what it runs (a documentation test is somewhere else altogether).
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn find() -> Result<PathBuf, LoadError> {
        let program = std::env::current_exe().unwrap_or_default();
        let beside = program.parent().unwrap_or(Path::new("."));
        let above = beside.parent().unwrap_or(beside);
        let mut searched = vec![beside.to_owned(), beside.join("deps"), above.join("deps"), above.to_owned()];
        let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        searched.extend(std::env::split_paths(&path).filter(|folder| folder.is_absolute()));
        let found = searched.iter().map(|folder| folder.join(FILE)).find(|file| file.is_file());
        found.ok_or(LoadError::NotFound { searched })
    }

    /// The file that it was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// [`reset`](Self::reset), and no other session until this one is dropped: for tests that share a process.
    pub fn session(&'static self, options: Options) -> Session {
        let only = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        self.reset(options);
        Session { fake: self, _only: only }
    }

    /// Begins anew: everything is given back, and counters, switches, kernels, watches and violations are gone. Work in
    /// flight never happens. Says what had not been given back.
    ///
    /// `cuInit` stays called, as programs call it once.
    pub fn reset(&self, options: Options) -> Live {
        (self.controls.reset)(&raw const options)
    }

    /// How many driver calls were made, whatever came of them.
    pub fn calls(&self) -> u64 {
        (self.controls.number)(Number::Calls)
    }

    /// How many calls were made of the driver's function of this name.
    pub fn count(&self, name: &str) -> u64 {
        (self.controls.count)(name.as_ptr(), name.len())
    }

    /// Copies whose host memory was not page-locked.
    pub fn pageable_copies(&self) -> u64 {
        (self.controls.number)(Number::PageableCopies)
    }

    /// Copies, kernels, records and waits that are not done.
    pub fn pending(&self) -> u64 {
        (self.controls.number)(Number::Pending)
    }

    /// What has not been given back.
    pub fn live(&self) -> Live {
        (self.controls.live)()
    }

    /// What the detectors saw, in order; the first 1000.
    pub fn violations(&self) -> Vec<String> {
        self.lines(Lines::Violations)
    }

    /// The calls by name, and indented between them the steps that the streams made. Empty unless [`Options::trace`].
    pub fn trace(&self) -> Vec<String> {
        self.lines(Lines::Trace)
    }

    /// The `n`-th call from now fails with this code, and that one only. 0 is the next.
    pub fn fail_call(&self, n: u64, code: u32) {
        (self.controls.fail)(n, code, false);
    }

    /// The `n`-th call from now and all that follow fail with this code, as after an error that the driver keeps.
    pub fn fail_from(&self, n: u64, code: u32) {
        (self.controls.fail)(n, code, true);
    }

    /// No call is made to fail any more.
    pub fn fail_none(&self) {
        (self.controls.fail)(u64::MAX, 0, false);
    }

    /// Takes these gates away, and puts the others back.
    pub fn skip(&self, gates: &[Skip]) {
        (self.controls.skip)(gates.iter().fold(0, |all, &gate| all | gate as u32));
    }

    /// While held, no stream makes a step: queries say "not ready" of what is pending, and calls that would wait for it
    /// fail with 702.
    pub fn hold(&self, held: bool) {
        (self.controls.hold)(held);
    }

    /// Makes so many steps, or fewer if nothing is left that can be done. Says how many.
    pub fn advance(&self, steps: u64) -> u64 {
        (self.controls.advance)(steps)
    }

    /// `run` is what kernels of this name do, all of it at their last step. Other kernels do nothing.
    ///
    /// The parameters come from the declaration in the module's PTX. `run` must make no CUDA call and ask this driver
    /// nothing: both would wait for it.
    pub fn kernel(&self, name: &str, run: impl Fn(&Launch<'_>) + Send + Sync + 'static) {
        extern "C" fn call(
            user: *mut c_void,
            params: *const *mut c_void,
            n: usize,
            grid: *const u32,
            block: *const u32,
        ) {
            // SAFETY: `user` is the box below, which is never freed; the driver gives `n` addresses and three numbers
            // each.
            let (run, params, grid, block) = unsafe {
                let params: &[*mut c_void] = if n == 0 { &[] } else { std::slice::from_raw_parts(params, n) };
                (&*user.cast::<Run>(), params, *grid.cast(), *block.cast())
            };
            run(&Launch { params, grid, block });
        }
        type Run = Box<dyn Fn(&Launch<'_>) + Send + Sync>;
        let user = Box::into_raw(Box::<Run>::new(Box::new(run)));
        (self.controls.kernel)(name.as_ptr(), name.len(), call, user.cast());
    }

    /// Kernels of this name read device memory: from the address in parameter `pointer`, `unit` bytes times the number
    /// in parameter `count`. The detectors see to it that the bytes are there when the kernel begins and stay until it
    /// ends.
    pub fn watch(&self, name: &str, pointer: usize, count: usize, unit: usize) {
        (self.controls.watch)(name.as_ptr(), name.len(), pointer, count, unit);
    }

    /// Launches a kernel that only reads these bytes, and is watched, on the stream with this raw handle; no driver
    /// call is made. For the default streams (0, 1, 2) the calling thread needs a current context.
    ///
    /// # Errors
    ///
    /// The driver's code.
    pub fn read_on(&self, stream: *mut c_void, from: u64, bytes: usize) -> Result<(), u32> {
        match (self.controls.read_on)(stream, from, bytes) {
            0 => Ok(()),
            code => Err(code),
        }
    }

    fn lines(&self, which: Lines) -> Vec<String> {
        extern "C" fn push(to: *mut c_void, text: *const u8, len: usize) {
            // SAFETY: `to` is the vector below, and the driver gives `len` bytes of text.
            let (to, text) = unsafe { (&mut *to.cast::<Vec<String>>(), std::slice::from_raw_parts(text, len)) };
            to.push(String::from_utf8_lossy(text).into_owned());
        }
        let mut lines = Vec::<String>::new();
        (self.controls.lines)(which, push, (&raw mut lines).cast());
        lines
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fake").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The fake driver, for one test at a time.
#[derive(Debug)]
pub struct Session {
    fake: &'static Fake,
    _only: MutexGuard<'static, ()>,
}

impl Deref for Session {
    type Target = Fake;

    fn deref(&self) -> &Fake {
        self.fake
    }
}

/// One run of a kernel.
#[derive(Debug)]
pub struct Launch<'a> {
    params: &'a [*mut c_void],
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
}

impl Launch<'_> {
    /// The addresses of the parameters' values, as `cuLaunchKernel` gets them.
    pub fn params(&self) -> &[*mut c_void] {
        self.params
    }

    /// The value of a parameter. Pointers into device memory are `u64`, or pointers: the host can follow them while the
    /// kernel runs.
    ///
    /// # Safety
    ///
    /// The kernel's parameter `i` is a `T`.
    ///
    /// # Panics
    ///
    /// If the kernel has fewer parameters.
    pub unsafe fn param<T: Copy>(&self, i: usize) -> T {
        // SAFETY: the driver keeps the value there, and the caller knows its type.
        unsafe { self.params[i].cast::<T>().read_unaligned() }
    }
}

fn open(path: &Path) -> Result<Fake, LoadError> {
    let refused = |reason| LoadError::Refused { path: path.to_owned(), reason };
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| refused(error.to_string()))?;
    let symbol = CString::new(SYMBOL).map_err(|error| refused(error.to_string()))?;
    // SAFETY: loading runs nothing of the library; the handle is never closed, so what it gives stays.
    let (library, table) = unsafe {
        let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if library.is_null() {
            return Err(refused(loader_says(libc::dlerror())));
        }
        (library, libc::dlsym(library, symbol.as_ptr()))
    };
    let foreign = LoadError::Foreign { path: path.to_owned() };
    if table.is_null() {
        return Err(foreign);
    }
    // SAFETY: the symbol is a function that gives a table, whose first field is the version in every build.
    let controls = unsafe {
        let table = std::mem::transmute::<*mut c_void, extern "C" fn() -> *const Controls>(table)();
        if *table.cast::<u64>() != VERSION {
            return Err(foreign);
        }
        &*table
    };
    // SAFETY: asks who answers to the name, and loads nothing.
    if library != unsafe { libc::dlopen(c"libcuda.so".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) } {
        return Err(LoadError::TooLate);
    }
    Ok(Fake { controls, path: path.to_owned(), session: Mutex::new(()) })
}

/// # Safety
///
/// Null or a C string.
unsafe fn loader_says(text: *const c_char) -> String {
    if text.is_null() {
        return "for no reason that the loader says".to_owned();
    }
    // SAFETY: the caller's word.
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    OsStr::from_bytes(text.to_bytes()).to_string_lossy().into_owned()
}
