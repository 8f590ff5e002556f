//! Finds and builds the peers that are separate programs.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;

use super::external::Program;
use super::ours::{self, USER_BUILD};
use crate::record::Kind;

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
    let peer = |peer: &str, command| Program { peer: peer.into(), kind: Kind::Peer, workloads: None, command };
    let mut programs = vec![
        Program {
            peer: USER_BUILD.into(),
            kind: Kind::Variant,
            workloads: Some(ours::SERVED),
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

/// The workloads whose dataset is called for each sample.
const CALLED: &[&str] = &["p1", "p2p-tensor", "p2p-numpy", "p5-pillow", "p5-torchvision", "p6-python", "p7"];

/// Returns the loaders of Python, or why they are absent. `python` is an interpreter that may have torch and slotline.
pub fn python_loaders(benches: &Path, python: &str) -> Vec<Program> {
    let script: OsString = benches.join("peers/python/pipelines.py").into();
    let loader = |id: &str, name: &str, kind, workloads| {
        let command = [python.into(), script.clone(), "--peer".into(), id.into()];
        Program { peer: name.into(), kind, workloads, command: Ok(command.into()) }
    };
    let ours = loader("slotline", "slotline", Kind::Ours, None);
    if let Err(why) = succeed(Command::new(python).args(["-c", "import slotline.torch"])) {
        let why = why.context(
            "needs a Python that has torch and slotline (`pip install torch ./python`), named by --torch or TORCH_PYTHON",
        );
        return vec![Program { command: Err(why), ..ours }];
    }
    let bulk = &["p2", "p3-bytes", "p3-floats"];
    let calls = &["p2p-tensor", "p2p-numpy", "p5-pillow", "p5-torchvision"];
    vec![
        ours,
        loader("threads", "slotline, threads", Kind::Variant, Some(CALLED)),
        loader("any-worker", "slotline, round_robin=False", Kind::Variant, Some(&["p7"])),
        loader("torch", "torch", Kind::Peer, None),
        loader("torch-bulk", "torch, whole batches", Kind::Peer, Some(bulk)),
        loader("torchdata", "torchdata", Kind::Peer, None),
        loader("spdl", "spdl", Kind::Peer, None),
        loader("grain", "grain", Kind::Peer, None),
        loader("calls", "bare calls", Kind::Limit, Some(calls)),
    ]
}

/// Returns the programs that pack or pad sequences. `python` is an interpreter that may have torch and TRL.
pub fn sequences(benches: &Path, python: &str) -> Vec<Program> {
    let script: OsString = benches.join("peers/python/sequences.py").into();
    let program = |peer: &str, workloads| {
        let command = [python.into(), script.clone(), "--peer".into(), peer.into()];
        Program { peer: peer.into(), kind: Kind::Peer, workloads: Some(workloads), command: Ok(command.into()) }
    };
    vec![program("trl", &["t1"]), program("torch", &["t2"])]
}

/// Returns the programs that transform pictures. `python` is an interpreter that may have torchvision, Pillow, SPDL, DALI and
/// FFCV.
pub fn pictures(benches: &Path, python: &str) -> Vec<Program> {
    let script: OsString = benches.join("peers/python/pictures.py").into();
    let program = |id: &str, peer: &str, workloads| {
        let command = [python.into(), script.clone(), "--peer".into(), id.into()];
        Program { peer: peer.into(), kind: Kind::Peer, workloads, command: Ok(command.into()) }
    };
    vec![
        program("torch", "torch", None),
        program("pillow", "torch, Pillow", None),
        program("spdl", "spdl", None),
        program("dali", "dali", None),
        program("ffcv", "ffcv", Some(&["w5r-small", "w5r-large"])),
    ]
}

/// Makes the files of the sections S1 to S6 in `data`, and returns the programs that read them. `python` is an interpreter that
/// may have the packages of the peers.
///
/// # Errors
///
/// Returns an error if the files cannot be made, or if this program does not read them.
pub fn file_readers(benches: &Path, python: &str, data: &Path) -> Result<Vec<Program>> {
    ensure!(cfg!(feature = "sources"), "slotline-benches was built without the feature `sources`");
    let peers = benches.join("peers/python");
    eprintln!("making the files of S1 to S6 in {}", data.display());
    let make = [peers.join("make_files.py").into_os_string(), "--data".into(), data.into()];
    succeed(Command::new(python).args(make)).context("cannot make the files of S1 to S6")?;
    let this = std::env::current_exe()?;
    let reader = |start: &[&OsStr], id: &str, name: &str, kind, workloads| {
        let command = start.iter().map(OsString::from).chain(["--peer".into(), id.into()]).collect();
        Program { peer: name.into(), kind, workloads: Some(workloads), command: Ok(command) }
    };
    let script = peers.join("files.py");
    let ours = |id, name, kind, workloads| reader(&[this.as_os_str(), "files".as_ref()], id, name, kind, workloads);
    let peer = |id, name, workloads| reader(&[python.as_ref(), script.as_os_str()], id, name, Kind::Peer, workloads);
    const TABLES: &[&str] = &["s5-arrow-numbers", "s5-arrow-binaries", "s5-parquet-numbers", "s5-parquet-binaries"];
    const WHOLE: &[&str] = &["s5-whole-order", "s5-whole-shuffled"];
    let all_tables = &ALL_FILES[5..11];
    Ok(vec![
        ours("slotline", "slotline", Kind::Ours, ALL_FILES),
        ours("alone", "slotline, workers alone", Kind::Variant, &["s1", "s2", "s3"]),
        ours("mapped", "slotline, mapped", Kind::Variant, &["s4-nanogpt", "s4-megatron"]),
        peer("torchvision", "torchvision", &["s1"]),
        peer("spdl", "spdl", &["s1"]),
        peer("webdataset", "webdataset", &["s2"]),
        peer("webshart", "webshart", &["s2", "s6"]),
        peer("wids", "wids", &["s2"]),
        peer("litdata", "litdata", &["s3"]),
        peer("memmap", "NumPy's memmap", &["s4-nanogpt"]),
        peer("memmap-once", "NumPy's memmap, once", &["s4-nanogpt"]),
        peer("megatron", "Megatron's GPTDataset", &["s4-megatron"]),
        // A shuffled pass of the whole table takes it a minute and a half.
        peer("datasets", "datasets", &ALL_FILES[5..10]),
        peer("datasets-rows", "datasets, rows", TABLES),
        peer("pyarrow", "pyarrow", all_tables),
        peer("polars", "polars", WHOLE),
        peer("tensordataset", "TensorDataset", &WHOLE[1..]),
        peer("tarfile", "Python's tarfile", &["s6"]),
        ours("threads-2", "2 threads that read", Kind::Limit, &["s1", "s2"]),
        ours("threads-16", "16 threads that read", Kind::Limit, &["s1", "s2"]),
        ours("ranges", "64 ranges at a time", Kind::Limit, &["s3"]),
    ])
}

/// The workloads of the sections S1 to S6.
const ALL_FILES: &[&str] = &[
    "s1",
    "s2",
    "s3",
    "s4-nanogpt",
    "s4-megatron",
    "s5-arrow-numbers",
    "s5-arrow-binaries",
    "s5-parquet-numbers",
    "s5-parquet-binaries",
    "s5-whole-order",
    "s5-whole-shuffled",
    "s6",
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
