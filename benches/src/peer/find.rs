//! Finds and builds the peers that are separate programs.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;

use super::external::Program;
use super::ours::{self, USER_BUILD};
use crate::record::Kind;

/// The workloads of the loaders in Rust, C++ and Python.
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

/// Returns all programs, or why they are absent. `benches` is this crate's folder, `build` is the folder for compiled
/// programs, and `python` is an interpreter that may have torch.
pub fn programs(benches: &Path, build: &Path, python: &str) -> Vec<Program> {
    let peers = benches.join("peers");
    let script = peers.join("python/loader.py");
    let libtorch = torch(python).and_then(|torch| {
        let (source, program) = (peers.join("torch_cpp"), build.join("torch_cpp"));
        let mut compiler = compiler();
        compiler.arg(source.join("loader.cpp"));
        torch.link(&mut compiler);
        compile(&source, &program, compiler, &torch.version)?;
        Ok(vec![program.into()])
    });
    let peer = |peer: &str, command| Program { peer: peer.into(), kind: Kind::Peer, workloads: LOADED, command };
    let mut programs = vec![
        Program {
            peer: USER_BUILD.into(),
            kind: Kind::Variant,
            workloads: ours::SERVED,
            command: cargo(&benches.join("user-build"), build, "user-build"),
        },
        peer("burn", cargo(&peers.join("burn"), build, "burn-peer")),
    ];
    let mut add = |command: &Result<Vec<OsString>>, names: &[&str]| {
        for &name in names {
            let command = match command {
                Ok(command) => Ok([&command[..], &["--peer".into(), name.into()]].concat()),
                Err(why) => Err(anyhow!("{why:#}")),
            };
            programs.push(peer(name, command));
        }
    };
    add(&libtorch, &["libtorch", "libtorch-bulk"]);
    add(&Ok(vec![python.into(), script.into()]), &["torch", "torch-bulk", "grain"]);
    programs
}

/// The program that measures the latency of the loop in C++.
#[derive(Debug)]
pub struct Latency {
    /// The program, or why it cannot be built.
    pub program: Result<PathBuf>,
    /// The version of torch that it uses, or why it does not use torch.
    pub torch: Result<String>,
}

/// Builds the C++ library, and the program that measures the latency of its loop and, if `python` has torch, of libtorch's.
pub fn latency(benches: &Path, build: &Path, python: &str) -> Latency {
    let torch = torch(python);
    let program = built_latency(benches, build, torch.as_ref().ok());
    Latency { program, torch: torch.map(|torch| torch.version) }
}

fn built_latency(benches: &Path, build: &Path, torch: Option<&Torch>) -> Result<PathBuf> {
    let ffi = benches.with_file_name("ffi");
    cargo(&ffi.join("lib"), build, "slotline-c")?;
    let (source, program) = (benches.join("peers/beside"), build.join("latency"));
    let library = build.join("slotline-c/release/libslotline.a");
    let mut compiler = compiler();
    compiler.arg(source.join("latency.cpp")).arg("-I").arg(ffi.join("include")).arg(&library).args(["-ldl", "-lm"]);
    if let Some(torch) = torch {
        torch.link(&mut compiler);
    }
    // The library is a part of the program.
    let built = library.metadata().and_then(|about| about.modified())?;
    let version = torch.map_or("no torch", |torch| &torch.version);
    compile(&source, &program, compiler, &format!("torch {version}, slotline of {built:?}"))?;
    Ok(program)
}

/// Returns programs in Python, all of one script: their names there and in the report, their kinds and their workloads.
fn scripts(script: PathBuf, python: &str, programs: &[(&str, &str, Kind, &'static [&'static str])]) -> Vec<Program> {
    let program = |&(id, peer, kind, workloads): &(&str, &str, _, _)| {
        let command = [python.into(), script.clone().into(), "--peer".into(), id.into()];
        Program { peer: peer.into(), kind, workloads, command: Ok(command.into()) }
    };
    programs.iter().map(program).collect()
}

/// Returns the loaders of Python, or why they are absent. `python` is an interpreter that may have torch and slotline.
pub fn python_loaders(benches: &Path, python: &str) -> Vec<Program> {
    /// The workloads whose dataset is called for each sample, and those with a `TensorDataset`.
    macro_rules! called {
        ($($more:literal),*) => {
            &["python-empty-items", "python-indexed-images-tensor", "python-indexed-images-numpy", "python-jpegs-pillow",
              "python-jpegs-torchvision", "python-first-batch-python", "python-slow-samples", $($more),*]
        };
    }
    const CALLED: &[&str] = called!();
    const ALL: &[&str] = called!(
        "python-small-images",
        "python-large-images-bytes",
        "python-large-images-floats",
        "python-first-batch-tensors"
    );
    let bulk = &["python-small-images", "python-large-images-bytes", "python-large-images-floats"];
    let mut programs = scripts(
        benches.join("peers/python/pipelines.py"),
        python,
        &[
            ("slotline", "slotline", Kind::Ours, ALL),
            ("threads", "slotline, threads", Kind::Variant, CALLED),
            ("any-worker", "slotline, round_robin=False", Kind::Variant, &["python-slow-samples"]),
            ("torch", "torch", Kind::Peer, ALL),
            ("torch-bulk", "torch, whole batches", Kind::Peer, bulk),
            ("torchdata", "torchdata", Kind::Peer, ALL),
            ("spdl", "spdl", Kind::Peer, ALL),
            ("grain", "grain", Kind::Peer, ALL),
            ("calls", "bare calls", Kind::Limit, &CALLED[1..5]),
        ],
    );
    if let Err(why) = succeed(Command::new(python).args(["-c", "import slotline.torch"])) {
        let why = why.context(
            "needs a Python that has torch and slotline (`pip install torch ./python`), named by --torch or TORCH_PYTHON",
        );
        programs.truncate(1);
        programs[0].command = Err(why);
    }
    programs
}

/// Returns the programs that pack or pad sequences. `python` is an interpreter that may have torch and TRL.
pub fn sequences(benches: &Path, python: &str) -> Vec<Program> {
    let programs = [("trl", "trl", Kind::Peer, &["packing"][..]), ("torch", "torch", Kind::Peer, &["padding"])];
    scripts(benches.join("peers/python/sequences.py"), python, &programs)
}

/// Returns the programs that transform pictures. `python` is an interpreter that may have torchvision, Pillow, SPDL, DALI and
/// FFCV.
pub fn pictures(benches: &Path, python: &str) -> Vec<Program> {
    const ALL: &[&str] = &["jpeg-crops-small", "jpeg-crops-large", "pngs", "rand-augment"];
    let peer = |id, peer| (id, peer, Kind::Peer, ALL);
    let mut programs = [("torch", "torch"), ("pillow", "torch, Pillow"), ("spdl", "spdl"), ("dali", "dali")]
        .map(|(id, name)| peer(id, name))
        .to_vec();
    programs.push(("ffcv", "ffcv", Kind::Peer, &ALL[..2]));
    scripts(benches.join("peers/python/pictures.py"), python, &programs)
}

/// Makes the files of the sections about files in `data`, and returns the programs that read them. `python` is an interpreter that
/// may have the packages of the peers.
pub fn file_readers(benches: &Path, python: &str, data: &Path) -> Result<Vec<Program>> {
    ensure!(cfg!(feature = "sources"), "slotline-benches was built without the feature `sources`");
    let peers = benches.join("peers/python");
    eprintln!("making the files in {}", data.display());
    let make = [peers.join("make_files.py").into_os_string(), "--data".into(), data.into()];
    succeed(Command::new(python).args(make)).context("cannot make the files")?;
    let this = std::env::current_exe()?;
    let reader = |start: &[&OsStr], id: &str, name: &str, kind, workloads| {
        let command = start.iter().map(OsString::from).chain(["--peer".into(), id.into()]).collect();
        Program { peer: name.into(), kind, workloads, command: Ok(command) }
    };
    let script = peers.join("files.py");
    let ours = |id, name, kind, workloads| reader(&[this.as_os_str(), "files".as_ref()], id, name, kind, workloads);
    let peer = |id, name, workloads| reader(&[python.as_ref(), script.as_os_str()], id, name, Kind::Peer, workloads);
    const TABLES: &[&str] =
        &["tables-arrow-numbers", "tables-arrow-binaries", "tables-parquet-numbers", "tables-parquet-binaries"];
    const WHOLE: &[&str] = &["tables-whole-order", "tables-whole-shuffled"];
    let all_tables = &ALL_FILES[5..11];
    Ok(vec![
        ours("slotline", "slotline", Kind::Ours, ALL_FILES),
        ours("alone", "slotline, workers alone", Kind::Variant, &["folders", "tars", "bucket"]),
        ours("mapped", "slotline, mapped", Kind::Variant, &["token-files-nanogpt", "token-files-megatron"]),
        peer("torchvision", "torchvision", &["folders"]),
        peer("spdl", "spdl", &["folders"]),
        peer("webdataset", "webdataset", &["tars"]),
        peer("webshart", "webshart", &["tars", "tar-index"]),
        peer("wids", "wids", &["tars"]),
        peer("litdata", "litdata", &["bucket"]),
        peer("memmap", "NumPy's memmap", &["token-files-nanogpt"]),
        peer("memmap-once", "NumPy's memmap, once", &["token-files-nanogpt"]),
        peer("megatron", "Megatron's GPTDataset", &["token-files-megatron"]),
        // A shuffled pass of the whole table takes it a minute and a half.
        peer("datasets", "datasets", &ALL_FILES[5..10]),
        peer("datasets-rows", "datasets, rows", TABLES),
        peer("pyarrow", "pyarrow", all_tables),
        peer("polars", "polars", WHOLE),
        peer("tensordataset", "TensorDataset", &WHOLE[1..]),
        peer("tarfile", "Python's tarfile", &["tar-index"]),
        ours("threads-2", "2 threads that read", Kind::Limit, &["folders", "tars"]),
        ours("threads-16", "16 threads that read", Kind::Limit, &["folders", "tars"]),
        ours("ranges", "64 ranges at a time", Kind::Limit, &["bucket"]),
    ])
}

/// The workloads of the sections about files.
const ALL_FILES: &[&str] = &[
    "folders",
    "tars",
    "bucket",
    "token-files-nanogpt",
    "token-files-megatron",
    "tables-arrow-numbers",
    "tables-arrow-binaries",
    "tables-parquet-numbers",
    "tables-parquet-binaries",
    "tables-whole-order",
    "tables-whole-shuffled",
    "tar-index",
];

/// Builds a Rust program that is not in this workspace, because of its many dependencies or its different profile.
fn cargo(source: &Path, build: &Path, name: &str) -> Result<Vec<OsString>> {
    let target = build.join(name);
    eprintln!("building {}", source.display());
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--manifest-path"]).arg(source.join("Cargo.toml"));
    if cfg!(feature = "jpeg") && name == "user-build" {
        cargo.args(["--features", "jpeg"]);
    }
    succeed(cargo.arg("--target-dir").arg(&target))?;
    Ok(vec![target.join("release").join(name).into()])
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
    /// Adds the arguments that a program needs to use it.
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

/// Compiles a C++ program, unless it is newer than the files of the folder `source` and was built by the same command with the
/// same version of what it uses.
fn compile(source: &Path, program: &Path, mut compiler: Command, version: &str) -> Result<()> {
    let files = std::fs::read_dir(source).with_context(|| format!("cannot read {}", source.display()))?;
    let files: Vec<PathBuf> = files.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    let modified = |path: &Path| path.metadata().and_then(|about| about.modified()).ok();
    let newest = files.iter().filter_map(|file| modified(file)).max();
    compiler.arg("-o").arg(program);
    // Written last, so that the program is compiled again after an interruption or for another version.
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
