//! The peers that are separate programs: finds and builds them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::external::Program;
use super::ours::USER_BUILD;
use crate::record::Kind;

/// The way in which a program is built and started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// A Rust crate that is built: its folder and its name.
    Cargo(&'static str, &'static str),
    /// `peers/torch_cpp/loader.cpp`, which is compiled with libtorch.
    Libtorch,
    /// `peers/torch_cpp/latency.cpp`, which is compiled.
    Latency,
    /// A script: its file name in `peers/python`.
    Script(&'static str),
    /// A script of `peers/python` that needs slotline's wheel.
    Ours(&'static str),
    /// This program itself, with the command `files`.
    Files,
}
use Start::{Cargo, Files, Libtorch, Ours, Script};

/// A program: how it is started, its name on the command line and in the report, its role, and its
/// workloads.
type Row = (Start, &'static str, &'static str, Kind, &'static [&'static str]);

const fn peer(start: Start, id: &'static str, name: &'static str, workloads: &'static [&'static str]) -> Row {
    (start, id, name, Kind::Peer, workloads)
}

const LOADER: Start = Script("loader.py");
const PIPELINES: Start = Ours("loader.py");
const PICTURES: Start = Script("pictures.py");
const FILES: Start = Script("files.py");
const COMPOSED: Start = Ours("compose.py");

/// The workloads that are run with loaders in Rust, C++ and Python.
const LOADED: &[&str] = &[
    "empty-items",
    "small-images",
    "large-images",
    "token-crops",
    "jpegs",
    "first-batch",
    "slow-samples-8",
    "slow-samples-1",
    "slow-samples-8-arrival",
    "slow-samples-1-arrival",
    "slow-samples-1-prefetch-16",
];
/// The workloads that are run with slotline in cargo's default profile.
const SERVED: &[&str] = LOADED.split_at(if cfg!(feature = "jpeg") { 5 } else { 4 }).0;
/// The workloads of Python loaders: first those with a `TensorDataset`, and then those whose
/// dataset is called for each sample.
const PYTHON: &[&str] = &[
    "python-small-images",
    "python-large-images-bytes",
    "python-large-images-floats",
    "python-first-batch-tensors",
    "python-indexed-images-tensor",
    "python-indexed-images-numpy",
    "python-jpegs-pillow",
    "python-jpegs-torchvision",
    "python-empty-items",
    "python-first-batch-python",
    "python-slow-samples",
];
const BULK: &[&str] = PYTHON.split_at(3).0;
const CALLED: &[&str] = PYTHON.split_at(4).1;
const CALLS: &[&str] = CALLED.split_at(4).0;
/// The workloads with torchvision's pictures. The last one measures the loaders for which a training program must be
/// rewritten.
const LIFTED: &[&str] = &[
    "python-torchvision-folder",
    "python-torchvision-rand-augment",
    "python-torchvision-own-transform",
    "python-torchvision-own-dataset",
    "python-torchvision-cifar",
    "python-torchvision-rewritten",
];
const FOLDER: &[&str] = LIFTED.split_at(1).0;
const UNCHANGED: &[&str] = LIFTED.split_at(5).0;
const REWRITTEN: &[&str] = LIFTED.split_at(5).1;
/// The workloads with datasets of slotline in Python.
const DATASETS: &[&str] = &["python-datasets-rows", "python-datasets-pictures"];
/// The workloads with transformed pictures.
const AUGMENTED: &[&str] = &["jpeg-crops-small", "jpeg-crops-large", "pngs", "rand-augment"];
/// The workloads with tables: first those that read rows, and then those that read a whole table.
const TABLES: &[&str] = &[
    "tables-arrow-numbers",
    "tables-arrow-binaries",
    "tables-parquet-numbers",
    "tables-parquet-binaries",
    "tables-whole-order",
    "tables-whole-shuffled",
];
const ROWS: &[&str] = TABLES.split_at(4).0;
const WHOLE: &[&str] = TABLES.split_at(4).1;
const TOKENS: &[&str] = &["token-files-nanogpt", "token-files-megatron"];

const PROGRAMS: &[Row] = &[
    (Cargo("user-build", "user-build"), "user-build", USER_BUILD, Kind::Variant, SERVED),
    peer(Cargo("peers/burn", "burn-peer"), "burn-peer", "burn", LOADED),
    peer(Libtorch, "libtorch", "libtorch", LOADED),
    peer(Libtorch, "libtorch-bulk", "libtorch-bulk", LOADED),
    peer(LOADER, "torch", "torch", LOADED),
    peer(LOADER, "torch-bulk", "torch-bulk", LOADED),
    peer(LOADER, "grain", "grain", LOADED),
    (Start::Latency, "latency", "slotline, C++", Kind::Variant, &["latency"]),
    (PIPELINES, "slotline", "slotline", Kind::Ours, PYTHON),
    (PIPELINES, "threads", "slotline, threads", Kind::Variant, CALLED),
    (PIPELINES, "any-worker", "slotline, round_robin=False", Kind::Variant, &["python-slow-samples"]),
    peer(PIPELINES, "torch", "torch", PYTHON),
    peer(PIPELINES, "torch-whole", "torch, whole batches", BULK),
    peer(PIPELINES, "torchdata", "torchdata", PYTHON),
    peer(PIPELINES, "spdl", "spdl", PYTHON),
    peer(PIPELINES, "grain", "grain", PYTHON),
    (PIPELINES, "calls", "bare calls", Kind::Limit, CALLS),
    (PIPELINES, "slotline", "slotline", Kind::Ours, LIFTED),
    (PIPELINES, "unlifted", "slotline, lift=False", Kind::Variant, UNCHANGED),
    peer(PIPELINES, "torch", "torch", LIFTED),
    peer(PICTURES, "spdl", "spdl", REWRITTEN),
    peer(PICTURES, "dali", "dali", REWRITTEN),
    peer(PICTURES, "ffcv", "ffcv", REWRITTEN),
    (PIPELINES, "calls", "bare calls", Kind::Limit, UNCHANGED),
    (PIPELINES, "decoding", "decoding alone", Kind::Limit, FOLDER),
    (COMPOSED, "slotline", "slotline", Kind::Ours, DATASETS),
    (COMPOSED, "loader", "slotline.Loader", Kind::Variant, DATASETS),
    peer(COMPOSED, "torch", "torch", DATASETS),
    (COMPOSED, "slotline", "slotline", Kind::Ours, &["python-mixture"]),
    peer(COMPOSED, "grain", "grain", &["python-mixture"]),
    peer(COMPOSED, "torchdata", "torchdata", &["python-mixture"]),
    (COMPOSED, "slotline", "slotline", Kind::Ours, &["python-records"]),
    (COMPOSED, "list", "slotline, list", Kind::Variant, &["python-records"]),
    peer(COMPOSED, "torch", "torch", &["python-records"]),
    (COMPOSED, "torch-frozen", "torch, frozen", Kind::Variant, &["python-records"]),
    peer(Script("sequences.py"), "trl", "trl", &["packing"]),
    peer(Script("sequences.py"), "torch", "torch", &["padding"]),
    peer(PICTURES, "torch", "torch", AUGMENTED),
    peer(PICTURES, "pillow", "torch, Pillow", AUGMENTED),
    peer(PICTURES, "spdl", "spdl", AUGMENTED),
    peer(PICTURES, "dali", "dali", AUGMENTED),
    peer(PICTURES, "ffcv", "ffcv", AUGMENTED.split_at(2).0),
    (Files, "slotline", "slotline", Kind::Ours, &["folders", "tars", "bucket", "tar-index"]),
    (Files, "slotline", "slotline", Kind::Ours, TOKENS),
    (Files, "slotline", "slotline", Kind::Ours, TABLES),
    (Files, "alone", "slotline, workers alone", Kind::Variant, &["folders", "tars", "bucket"]),
    (Files, "mapped", "slotline, mapped", Kind::Variant, TOKENS),
    peer(FILES, "torchvision", "torchvision", &["folders"]),
    peer(FILES, "spdl", "spdl", &["folders"]),
    peer(FILES, "webdataset", "webdataset", &["tars"]),
    peer(FILES, "webshart", "webshart", &["tars", "tar-index"]),
    peer(FILES, "wids", "wids", &["tars"]),
    peer(FILES, "litdata", "litdata", &["bucket"]),
    peer(FILES, "memmap", "NumPy's memmap", &["token-files-nanogpt"]),
    peer(FILES, "memmap-once", "NumPy's memmap, once", &["token-files-nanogpt"]),
    peer(FILES, "megatron", "Megatron's GPTDataset", &["token-files-megatron"]),
    // Without the last workload: a shuffled pass of the whole table takes `datasets` a minute and a
    // half.
    peer(FILES, "datasets", "datasets", TABLES.split_at(5).0),
    peer(FILES, "datasets-rows", "datasets, rows", ROWS),
    peer(FILES, "pyarrow", "pyarrow", TABLES),
    peer(FILES, "polars", "polars", WHOLE),
    peer(FILES, "tensordataset", "TensorDataset", WHOLE.split_at(1).1),
    peer(FILES, "tarfile", "Python's tarfile", &["tar-index"]),
    (Files, "threads-2", "2 threads that read", Kind::Limit, &["folders", "tars"]),
    (Files, "threads-16", "16 threads that read", Kind::Limit, &["folders", "tars"]),
    (Files, "ranges", "64 ranges at a time", Kind::Limit, &["bucket"]),
];

/// The folders and programs that are needed to build and run peers.
#[derive(Debug)]
pub struct Places<'a> {
    /// This crate's folder.
    pub source: &'a Path,
    /// The folder for compiled programs.
    pub build: &'a Path,
    /// A Python interpreter that may have the packages of peers.
    pub python: &'a str,
    /// The folder of the files that the sections about files read.
    pub files: &'a Path,
}

/// Returns the programs of the given sections, or why they are absent. Also makes the files that
/// they read.
pub fn programs(places: &Places<'_>, sections: &[&str]) -> Result<Vec<Program>> {
    // The name of a workload begins with the name of its section.
    let wanted = |row: &&Row| row.4.iter().any(|workload| sections.iter().any(|name| workload.starts_with(name)));
    let rows: Vec<&Row> = PROGRAMS.iter().filter(wanted).collect();
    if rows.iter().any(|row| row.0 == Files) {
        places.make_files()?;
    }
    let mut started: Vec<(Start, Result<Vec<OsString>, String>)> = Vec::new();
    let mut programs = Vec::new();
    for &&(start, id, peer, kind, workloads) in &rows {
        let known = started.iter().find(|known| known.0 == start).map(|known| known.1.clone());
        let command = known.unwrap_or_else(|| {
            let command = places.command(start).map_err(|why| format!("{why:#}"));
            started.push((start, command.clone()));
            command
        });
        // If slotline's wheel is missing, a single line of the report says so.
        if command.is_err() && matches!(start, Ours(_)) && kind != Kind::Ours {
            continue;
        }
        let chosen = |mut command: Vec<OsString>| {
            if !matches!(start, Cargo(..) | Start::Latency) {
                command.extend(["--peer".into(), id.into()]);
            }
            command
        };
        programs.push(Program { peer: peer.into(), kind, workloads, command: command.map(chosen) });
    }
    Ok(programs)
}

impl Places<'_> {
    /// Builds a program, and returns its command.
    fn command(&self, start: Start) -> Result<Vec<OsString>> {
        let script = |file| vec![self.python.into(), self.source.join("peers/python").join(file).into()];
        Ok(match start {
            Cargo(folder, name) => vec![cargo(&self.source.join(folder), self.build, name)?.into()],
            Libtorch => {
                let (torch, source, program) =
                    (torch(self.python)?, self.source.join("peers/torch_cpp"), self.build.join("torch_cpp"));
                let mut compiler = compiler();
                compiler.arg(source.join("loader.cpp"));
                torch.link(&mut compiler);
                compile(&source, &program, compiler, &torch.version)?;
                vec![program.into()]
            }
            Start::Latency => self.latency()?,
            Script(file) => script(file),
            Ours(file) => {
                succeed(Command::new(self.python).args(["-c", "import slotline.torch"])).context(
                    "needs a Python that has torch and slotline (`pip install torch ./python`), named by --torch or TORCH_PYTHON",
                )?;
                script(file)
            }
            Files => vec![std::env::current_exe()?.into(), "files".into()],
        })
    }

    /// Builds slotline's C++ library, and the program that measures the latency of its loop and, if
    /// torch is installed, of libtorch's. The second word of the returned command is the version of
    /// torch.
    fn latency(&self) -> Result<Vec<OsString>> {
        let torch = torch(self.python).ok();
        let ffi = self.source.with_file_name("ffi");
        let library = cargo(&ffi.join("lib"), self.build, "slotline-c")?.with_file_name("libslotline.a");
        let (source, program) = (self.source.join("peers/torch_cpp"), self.build.join("latency"));
        let mut compiler = compiler();
        compiler.arg(source.join("latency.cpp")).arg("-I").arg(ffi.join("include")).arg(&library).args(["-ldl", "-lm"]);
        if let Some(torch) = &torch {
            torch.link(&mut compiler);
        }
        // The program is rebuilt if the library has changed, as it is linked into the program.
        let built = library.metadata().and_then(|about| about.modified())?;
        let version = torch.as_ref().map_or("no torch", |torch| &torch.version);
        compile(&source, &program, compiler, &format!("torch {version}, slotline of {built:?}"))?;
        Ok(std::iter::once(program.into()).chain(torch.map(|torch| torch.version.into())).collect())
    }

    /// Makes the files of the sections about files.
    fn make_files(&self) -> Result<()> {
        ensure!(cfg!(feature = "sources"), "slotline-benches was built without the feature `sources`");
        eprintln!("making the files in {}", self.files.display());
        let script = self.source.join("peers/python/make_files.py");
        let mut command = Command::new(self.python);
        succeed(command.arg(script).arg("--data").arg(self.files)).context("cannot make the files")?;
        Ok(())
    }
}

/// Builds a Rust program that is not in this workspace, because it has many dependencies or another
/// profile.
fn cargo(source: &Path, build: &Path, name: &str) -> Result<PathBuf> {
    let target = build.join(name);
    eprintln!("building {}", source.display());
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--manifest-path"]).arg(source.join("Cargo.toml"));
    if cfg!(feature = "jpeg") && name == "user-build" {
        cargo.args(["--features", "jpeg"]);
    }
    succeed(cargo.arg("--target-dir").arg(&target))?;
    Ok(target.join("release").join(name))
}

/// The torch installation of a Python interpreter.
#[derive(Deserialize)]
struct Torch {
    version: String,
    include: Vec<PathBuf>,
    library: Vec<PathBuf>,
    cxx11_abi: bool,
}

fn torch(python: &str) -> Result<Torch> {
    let script = "import json, torch, torch.utils.cpp_extension as c; print(json.dumps({'version': torch.__version__, \
                  'include': c.include_paths(), 'library': c.library_paths(), 'cxx11_abi': torch.compiled_with_cxx11_abi()}))";
    let output = succeed(Command::new(python).args(["-c", script])).context("torch is not installed")?;
    serde_json::from_str(output.lines().last().unwrap_or_default()).context("cannot parse the paths of torch")
}

impl Torch {
    /// Adds the compiler arguments that a program needs to use torch.
    fn link(&self, compiler: &mut Command) {
        compiler.arg(format!("-D_GLIBCXX_USE_CXX11_ABI={}", u8::from(self.cxx11_abi)));
        compiler.args(self.include.iter().map(|path| format!("-I{}", path.display())));
        for path in &self.library {
            compiler.arg(format!("-L{0}", path.display())).arg(format!("-Wl,-rpath,{0}", path.display()));
        }
        compiler.args(["-Wl,--allow-shlib-undefined", "-ltorch_cpu", "-lc10"]);
    }
}

/// Returns the C++ compiler with the options of all peers.
fn compiler() -> Command {
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "g++".into()));
    compiler.args(["-std=c++20", "-O3", "-march=native", "-DNDEBUG", "-pthread"]);
    compiler
}

/// Compiles a C++ program. Does nothing if the program is newer than the files of the folder
/// `source`, and was built by the same command with the same `version` of what it uses.
fn compile(source: &Path, program: &Path, mut compiler: Command, version: &str) -> Result<()> {
    let files = std::fs::read_dir(source).with_context(|| format!("cannot read {}", source.display()))?;
    let files: Vec<PathBuf> = files.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    let modified = |path: &Path| path.metadata().and_then(|about| about.modified()).ok();
    let newest = files.iter().filter_map(|file| modified(file)).max();
    compiler.arg("-o").arg(program);
    // The record of the build is written last, so that the program is compiled again after an
    // interruption or for another version.
    let recipe = program.with_extension("txt");
    let command = format!("{version}: {compiler:?}");
    if modified(&recipe) <= newest || std::fs::read_to_string(&recipe).ok().as_ref() != Some(&command) {
        eprintln!("compiling {}", source.display());
        let _ = std::fs::remove_file(&recipe);
        succeed(&mut compiler)?;
        std::fs::write(&recipe, command)?;
    }
    Ok(())
}

/// Runs a command and returns its stdout.
fn succeed(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let error = stderr.lines().find(|line| line.starts_with("error") || line.contains("Error"));
        bail!("{name} failed: {}", error.or(stderr.lines().last()).unwrap_or("no message on stderr").trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
