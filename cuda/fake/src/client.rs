//! The interface for tests: loads the fake driver, configures it, and reads what it detected.

use std::ffi::{CString, OsStr, c_char, c_void};
use std::fmt;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::control::{Controls, Lines, Live, Number, Options, SYMBOL, Skip, VERSION};

/// The name of the library file that cargo builds from this crate.
const FILE: &str = "libslotline_cuda_fake.so";
/// The environment variable with which [`Fake::load`] uses the real driver.
const REAL: &str = "SLOTLINE_REAL_DRIVER";

/// The fake driver, loaded into this process instead of a real one.
///
/// A process has one fake driver, shared by all threads. Tests that share a process use a
/// [`session`](Self::session).
pub struct Fake {
    /// `None` if the driver is a real one.
    controls: Option<&'static Controls>,
    path: PathBuf,
    session: Mutex<()>,
}

/// The reason why the fake driver could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The library file was not found near the running program.
    #[error("{FILE} is in none of {searched:?}; build it with `cargo build -p slotline-cuda-fake`")]
    NotFound {
        /// The folders that were searched.
        searched: Vec<PathBuf>,
    },
    /// The system's dynamic loader rejected the file.
    #[error("cannot load {}: {reason}", path.display())]
    Refused {
        /// The path of the file.
        path: PathBuf,
        /// The loader's message.
        reason: String,
    },
    /// The file is a different library, or comes from a different build than this program.
    #[error("{} is not a fake driver of this build; rebuild it", path.display())]
    Foreign {
        /// The path of the file.
        path: PathBuf,
    },
    /// Another `libcuda.so` was loaded before, so CUDA calls would go to that one.
    #[error("this process has already loaded another libcuda.so; load the fake driver before the first CUDA call")]
    TooLate,
}

impl Fake {
    /// Loads the fake driver that cargo built along with the running program, on the first call. It
    /// stays loaded until the process exits.
    ///
    /// Call this before the first CUDA call of the process.
    ///
    /// # Panics
    ///
    /// Panics if the driver cannot be loaded; the message is a [`LoadError`].
    ///
    /// # On a real driver
    ///
    /// If the environment variable `SLOTLINE_REAL_DRIVER` is set, this loads nothing, and the
    /// process uses the driver that it has. Methods that only a fake driver can support then panic
    /// with a message that contains "needs the fake driver". There are no
    /// [`violations`](Self::violations), [`assert_released`](Self::assert_released) checks nothing,
    /// and options that change only the schedule are ignored. So a test runs up to the first such
    /// method.
    pub fn load() -> &'static Self {
        static ABSENT: Fake = Fake { controls: None, path: PathBuf::new(), session: Mutex::new(()) };
        if std::env::var_os(REAL).is_some() {
            return &ABSENT;
        }
        Self::find().and_then(|path| Self::load_from(&path)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Loads the fake driver from this file, unless it is already loaded.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be loaded, or if another driver was loaded before.
    pub fn load_from(path: &Path) -> Result<&'static Self, LoadError> {
        static LOADED: OnceLock<Fake> = OnceLock::new();
        static LOADING: Mutex<()> = Mutex::new(());
        let _one = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        match LOADED.get() {
            Some(fake) => Ok(fake),
            None => open(path).map(|fake| LOADED.get_or_init(|| fake)),
        }
    }

    /// Returns the path of the library file. It is searched next to the running program, in the
    /// folders in which cargo puts it, and on the loader's path. (cargo sets this path for the
    /// programs that it runs; it is needed for documentation tests, which run from an unrelated
    /// folder.)
    ///
    /// # Errors
    ///
    /// Fails if the file is not found.
    pub fn find() -> Result<PathBuf, LoadError> {
        let program = std::env::current_exe().unwrap_or_default();
        let folder = program.parent().unwrap_or(Path::new("."));
        let above = folder.parent().unwrap_or(folder);
        let mut searched = vec![folder.to_owned(), folder.join("deps"), above.join("deps"), above.to_owned()];
        let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        searched.extend(std::env::split_paths(&path).filter(|folder| folder.is_absolute()));
        let found = searched.iter().map(|folder| folder.join(FILE)).find(|file| file.is_file());
        found.ok_or(LoadError::NotFound { searched })
    }

    /// Returns whether the driver is a real one (see [`load`](Self::load)).
    pub fn is_absent(&self) -> bool {
        self.controls.is_none()
    }

    /// Does nothing with the fake driver, and panics with a real one. Call it in tests of behaviour
    /// that a real driver does not have, or would not survive.
    ///
    /// # Panics
    ///
    /// Panics if the driver is a real one (see [`load`](Self::load)).
    pub fn needs_fake(&self) {
        self.controls();
    }

    fn controls(&self) -> &'static Controls {
        self.controls.expect("this needs the fake driver")
    }

    /// Returns the path of the file that the driver was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Calls [`reset`](Self::reset), and blocks other sessions until this session is dropped. This
    /// is for tests that share a process.
    pub fn session(&'static self, options: Options) -> Session {
        let only = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        self.reset(options);
        Session { fake: self, _only: only }
    }

    /// Resets the driver: releases everything, and clears counters, switches, kernels, watches and
    /// violations. Work in progress is discarded. Returns the resources that were not released
    /// before.
    ///
    /// The driver stays initialised, since programs call `cuInit` only once.
    pub fn reset(&self, options: Options) -> Live {
        if self.is_absent() && options.is_schedule_only() {
            return Live::default();
        }
        (self.controls().reset)(&raw const options)
    }

    /// Returns the number of driver calls, including failed ones.
    pub fn calls(&self) -> u64 {
        (self.controls().number)(Number::Calls)
    }

    /// Returns the number of calls of the driver function with this name.
    pub fn count(&self, name: &str) -> u64 {
        (self.controls().count)(name.as_ptr(), name.len())
    }

    /// Returns the number of copies whose host memory was not page-locked.
    pub fn pageable_copies(&self) -> u64 {
        (self.controls().number)(Number::PageableCopies)
    }

    /// Returns the number of copies, kernels, event records and event waits that are not done.
    pub fn pending(&self) -> u64 {
        (self.controls().number)(Number::Pending)
    }

    /// Returns the resources that have not been released.
    pub fn live(&self) -> Live {
        (self.controls().live)()
    }

    /// Returns what the detectors found, in order; at most the first 1000.
    pub fn violations(&self) -> Vec<String> {
        if self.is_absent() {
            return Vec::new();
        }
        self.lines(Lines::Violations)
    }

    /// Checks that everything was released.
    ///
    /// # Panics
    ///
    /// Panics if something was not released.
    #[track_caller]
    pub fn assert_released(&self) {
        assert!(self.is_absent() || self.live() == Live::default(), "not released: {:?}", self.live());
    }

    /// Returns the trace: a line for each call with its name and, indented between them, a line for
    /// each step of a stream. It is empty unless [`Options::trace`] is set.
    pub fn trace(&self) -> Vec<String> {
        self.lines(Lines::Trace)
    }

    /// Makes only the `n`-th call from now fail with this code; 0 is the next call.
    pub fn fail_call(&self, n: u64, code: u32) {
        (self.controls().fail)(n, code, false);
    }

    /// Makes the `n`-th call from now and all later calls fail with this code, as after a sticky
    /// error of a driver.
    pub fn fail_from(&self, n: u64, code: u32) {
        (self.controls().fail)(n, code, true);
    }

    /// Stops injecting failures.
    pub fn fail_none(&self) {
        (self.controls().fail)(u64::MAX, 0, false);
    }

    /// Disables these gates of the overlap protocol (the waits and records that keep copies and
    /// kernels apart), and enables all others.
    pub fn skip(&self, gates: &[Skip]) {
        (self.controls().skip)(gates.iter().fold(0, |all, &gate| all | gate as u32));
    }

    /// Sets whether streams are held. While they are held, no stream makes a step: queries of
    /// pending work return "not ready", and calls that would wait for pending work fail with 702
    /// (`CUDA_ERROR_LAUNCH_TIMEOUT`).
    pub fn hold(&self, held: bool) {
        (self.controls().hold)(held);
    }

    /// Makes streams do `steps` steps of their work, or fewer if no stream has work that it can do.
    /// Returns the number of steps made.
    pub fn advance(&self, steps: u64) -> u64 {
        (self.controls().advance)(steps)
    }

    /// Sets a host function that runs in place of the kernels with this name, at their last step.
    /// Kernels without a function do nothing.
    ///
    /// The parameters come from the declaration in the module's PTX. `run` must not make CUDA calls
    /// or use this
    /// [`Fake`]: both would deadlock.
    pub fn kernel(&self, name: &str, run: impl Fn(&Launch<'_>) + Send + Sync + 'static) {
        extern "C" fn call(
            user: *mut c_void,
            params: *const *mut c_void,
            n: usize,
            grid: *const u32,
            block: *const u32,
        ) {
            // SAFETY: `user` is the box below, which is never freed. The driver passes `n`
            // addresses, and three numbers for each of `grid` and `block`.
            let (run, params, grid, block) = unsafe {
                let params: &[*mut c_void] = if n == 0 { &[] } else { std::slice::from_raw_parts(params, n) };
                (&*user.cast::<Run>(), params, *grid.cast(), *block.cast())
            };
            run(&Launch { params, grid, block });
        }
        type Run = Box<dyn Fn(&Launch<'_>) + Send + Sync>;
        let user = Box::into_raw(Box::<Run>::new(Box::new(run)));
        (self.controls().kernel)(name.as_ptr(), name.len(), call, user.cast());
    }

    /// Declares that kernels with this name read device memory. The address is in parameter
    /// `pointer`, and the length is `unit` bytes times the number in parameter `count`. The
    /// detectors check that the bytes are allocated when the kernel starts, and do not change until
    /// it ends.
    pub fn watch(&self, name: &str, pointer: usize, count: usize, unit: usize) {
        (self.controls().watch)(name.as_ptr(), name.len(), pointer, count, unit);
    }

    /// Launches a watched kernel that only reads these bytes, on the stream with this raw handle,
    /// without a driver call. For the default streams (0, 1, 2) the calling thread needs a current
    /// context.
    ///
    /// # Errors
    ///
    /// Returns the driver's error code.
    pub fn read_on(&self, stream: *mut c_void, from: u64, bytes: usize) -> Result<(), u32> {
        match (self.controls().read_on)(stream, from, bytes) {
            0 => Ok(()),
            code => Err(code),
        }
    }

    fn lines(&self, which: Lines) -> Vec<String> {
        extern "C" fn push(to: *mut c_void, text: *const u8, len: usize) {
            // SAFETY: `to` is the vector below, and the driver passes `len` bytes of text.
            let (to, text) = unsafe { (&mut *to.cast::<Vec<String>>(), std::slice::from_raw_parts(text, len)) };
            to.push(String::from_utf8_lossy(text).into_owned());
        }
        let mut lines = Vec::<String>::new();
        (self.controls().lines)(which, push, (&raw mut lines).cast());
        lines
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fake").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Exclusive use of the fake driver, for one test at a time.
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
    /// The number of blocks in x, y and z.
    pub grid: [u32; 3],
    /// The number of threads of a block in x, y and z.
    pub block: [u32; 3],
}

impl Launch<'_> {
    /// Returns the addresses of the parameters' values, as passed to `cuLaunchKernel`.
    pub fn params(&self) -> &[*mut c_void] {
        self.params
    }

    /// Returns the value of a parameter. Read pointers into device memory as `u64` or as a pointer
    /// type; the host can dereference them while the kernel runs.
    ///
    /// # Safety
    ///
    /// The kernel's parameter `i` must be a `T`.
    ///
    /// # Panics
    ///
    /// Panics if the kernel has fewer parameters.
    pub unsafe fn param<T: Copy>(&self, i: usize) -> T {
        // SAFETY: the driver keeps the value at this address, and the caller ensures that it is a
        // `T`.
        unsafe { self.params[i].cast::<T>().read_unaligned() }
    }
}

fn open(path: &Path) -> Result<Fake, LoadError> {
    let refused = |reason| LoadError::Refused { path: path.to_owned(), reason };
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| refused(error.to_string()))?;
    let symbol = CString::new(SYMBOL).map_err(|error| refused(error.to_string()))?;
    // SAFETY: loading the fake driver's library runs none of its code; the handle is never closed,
    // so its symbols stay valid.
    let (library, table) = unsafe {
        let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if library.is_null() {
            return Err(refused(loader_message(libc::dlerror())));
        }
        (library, libc::dlsym(library, symbol.as_ptr()))
    };
    let foreign = LoadError::Foreign { path: path.to_owned() };
    if table.is_null() {
        return Err(foreign);
    }
    // SAFETY: the symbol is a function that returns a pointer to a table, whose first field is the
    // version in every build.
    let controls = unsafe {
        let table = std::mem::transmute::<*mut c_void, extern "C" fn() -> *const Controls>(table)();
        if *table.cast::<u64>() != VERSION {
            return Err(foreign);
        }
        &*table
    };
    // SAFETY: the call only looks up which library is loaded under this name, and loads nothing.
    if library != unsafe { libc::dlopen(c"libcuda.so".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) } {
        return Err(LoadError::TooLate);
    }
    Ok(Fake { controls: Some(controls), path: path.to_owned(), session: Mutex::new(()) })
}

/// # Safety
///
/// `text` must be null or a C string.
unsafe fn loader_message(text: *const c_char) -> String {
    if text.is_null() {
        return "the loader gave no reason".to_owned();
    }
    // SAFETY: the caller passes a C string if the pointer is not null.
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    OsStr::from_bytes(text.to_bytes()).to_string_lossy().into_owned()
}
