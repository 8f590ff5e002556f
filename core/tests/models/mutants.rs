//! Mutants of the rings and of `Park`. In each mutant, one memory ordering is weakened, or one
//! fence or one `notify` is left out. A model must catch each mutant, or the list must say why it
//! is harmless.
//!
//! `mutants.txt` lists them:
//!
//! ```text
//! FILE, FUNCTION
//!     THE LINE OF SOURCE
//!         OPERATION ORDERING -> WEAKER: the model that catches it
//!         OPERATION ORDERING -> WEAKER: (why it does no harm)
//! ```
//!
//! The sources of the rings contain nothing about mutants. The models are run first, to see which
//! operations they execute. Each of these must be in the list, and each ordering that the sources
//! name must be among them, so that no ordering can be added without a model for it. Then each
//! mutant runs against its model, in a separate process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// The maximum time that a model may take to catch its mutant, far longer than any takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// An operation that a model executes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Site {
    file: String,
    line: usize,
    column: usize,
    operation: String,
    ordering: String,
}

/// A mutant as the list names it: without line numbers, which may change. It may stand for several
/// sites (places in the sources with an operation).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    file: String,
    function: String,
    text: String,
    operation: String,
    ordering: String,
    weaker: String,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}\n    {}\n        {}", self.file, self.function, self.text, self.change())
    }
}

impl Name {
    fn change(&self) -> String {
        format!("{} {} -> {}", self.operation, self.ordering, self.weaker).replace("  ", " ")
    }
}

/// The entry of a mutant in the list.
#[derive(Clone, Debug)]
enum Verdict {
    CaughtBy(String),
    Harmless(String),
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a workspace").to_owned()
}

fn weaker(ordering: &str) -> &'static [&'static str] {
    match ordering {
        "" => &["nothing"],
        "Relaxed" => &[],
        "Acquire" | "Release" => &["Relaxed"],
        "AcqRel" => &["Acquire", "Release"],
        "SeqCst" => &["AcqRel"],
        _ => panic!("no weaker ordering is known for {ordering}"),
    }
}

/// The sources that contain sites, by path from the workspace's root.
struct Sources(BTreeMap<String, Vec<String>>);

impl Sources {
    fn read() -> Self {
        let mut sources = BTreeMap::new();
        let mut folders = vec![root().join("core/src"), root().join("core/tests/models")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else if entry.extension().is_some_and(|extension| extension == "rs") {
                    let lines = fs::read_to_string(&entry).unwrap().lines().map(str::to_owned).collect();
                    sources.insert(entry.strip_prefix(root()).unwrap().to_str().unwrap().to_owned(), lines);
                }
            }
        }
        Self(sources)
    }

    /// Returns the mutants of a site.
    fn names(&self, site: &Site) -> Vec<Name> {
        let lines = &self.0[&site.file][..site.line];
        let function = lines.iter().rev().find_map(|line| {
            let name = line.split_once("fn ")?.1;
            (!line.trim_start().starts_with("//")).then(|| name.split(['(', '<']).next().unwrap_or(name).to_owned())
        });
        let name = |weaker: &&str| Name {
            file: site.file.clone(),
            function: function.clone().expect("an operation is in a function"),
            text: lines.last().unwrap().trim().to_owned(),
            operation: site.operation.clone(),
            ordering: site.ordering.clone(),
            weaker: (*weaker).to_owned(),
        };
        weaker(&site.ordering).iter().map(name).collect()
    }

    /// Returns the lines of the sources that have a memory ordering other than `Relaxed`, or call
    /// `notify`.
    fn operations(&self) -> impl Iterator<Item = (&str, usize)> {
        let core = self.0.iter().filter(|(file, _)| file.starts_with("core/src") && !file.starts_with("core/src/sync"));
        core.flat_map(|(file, lines)| {
            let code = move |line: usize| lines[line].split("//").next().unwrap_or_default();
            let asks = move |line: &usize| {
                ["::Acquire", "::Release", "::AcqRel", "::SeqCst", ".notify("].iter().any(|it| code(*line).contains(it))
            };
            let starts = [".load(", ".store(", ".swap(", ".compare_exchange", ".fetch_", ".notify("];
            let start = move |line: usize| {
                (0..=line).rev().find(|&line| starts.iter().any(|start| code(line).contains(start))).unwrap_or(line)
            };
            (0..lines.len()).filter(asks).map(move |line| (file.as_str(), start(line) + 1))
        })
    }
}

/// Returns the names of all models of this program.
fn models() -> Vec<String> {
    let output = Command::new(env::current_exe().unwrap()).args(["--list", "--skip", "mutants::"]).output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// The way in which a model ended.
#[derive(Debug, PartialEq)]
enum End {
    Passed,
    /// The last panic message.
    Failed(String),
    OutOfTime,
}

fn run(model: &str, patience: Duration, variables: &[(&str, &str)]) -> End {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", model, "--test-threads=1", "--nocapture"]).envs(variables.iter().copied());
    let log = env::temp_dir().join(format!("slotline-model-{}-{:?}", std::process::id(), thread::current().id()));
    let file = fs::File::create(&log).unwrap();
    command.stdout(file.try_clone().unwrap()).stderr(file).stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if start.elapsed() > patience => break None,
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let said = String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
    fs::remove_file(&log).unwrap();
    assert!(status.is_none() || said.contains("running 1 test"), "there is no model {model}");
    match status {
        None => End::OutOfTime,
        Some(status) if status.success() => End::Passed,
        Some(_) => {
            let panic = said.lines().skip_while(|line| !line.contains("panicked at")).nth(1);
            End::Failed(panic.unwrap_or("it aborted").trim().to_owned())
        }
    }
}

/// Calls `each` with every item, on as many threads as there are cores.
fn in_parallel<T: Sync>(items: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Relaxed)) {
                    each(item)
                }
            });
        }
    });
}

/// Returns the operations that the models execute within their first interleavings, each with the
/// models that execute it, the fastest model first.
fn sites() -> BTreeMap<Site, Vec<String>> {
    let found = Mutex::new(BTreeMap::<Site, Vec<(Duration, String)>>::new());
    in_parallel(&models(), |model| {
        let path = env::temp_dir().join(format!("slotline-sites-{}-{}", std::process::id(), model.replace("::", "-")));
        let start = Instant::now();
        let few = [("LOOM_CHECKPOINT_INTERVAL", "300"), ("LOOM_MAX_PERMUTATIONS", "300")];
        let end = run(model, PATIENCE, &[few[0], few[1], ("SLOTLINE_SITES", path.to_str().unwrap())]);
        assert_eq!(end, End::Passed, "{model} fails without a mutant");
        let mut found = found.lock().unwrap();
        for line in fs::read_to_string(&path).unwrap().lines() {
            let [place, operation, ordering] = *line.split('|').collect::<Vec<_>>() else {
                panic!("not a site: {line}")
            };
            let [column, line, file] = *place.rsplitn(3, ':').collect::<Vec<_>>() else {
                panic!("not a place: {place}")
            };
            let site = Site {
                file: file.to_owned(),
                line: line.parse().unwrap(),
                column: column.parse().unwrap(),
                operation: operation.to_owned(),
                ordering: ordering.to_owned(),
            };
            // Operations in the models themselves are left out, except the fences of the models'
            // `Futex`, which stand for those of any implementation of `Futex`.
            if !site.file.starts_with("core/src") && !operation.ends_with("fence") {
                continue;
            }
            found.entry(site).or_default().push((start.elapsed(), model.clone()));
        }
        fs::remove_file(&path).unwrap();
    });
    let by_time = |mut models: Vec<(Duration, String)>| {
        models.sort();
        models.into_iter().map(|(_, model)| model).collect()
    };
    found.into_inner().unwrap().into_iter().map(|(site, models)| (site, by_time(models))).collect()
}

/// Parses the list.
fn listed() -> BTreeMap<Name, Verdict> {
    let text = include_str!("mutants.txt");
    let mut listed = BTreeMap::new();
    let (mut place, mut source) = (None, None);
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let entry = line.trim_start();
        match line.len() - entry.len() {
            0 => place = entry.split_once(", "),
            4 => source = Some(entry),
            8 => {
                let parse = || {
                    let (change, verdict) = entry.split_once(": ")?;
                    let (from, weaker) = change.split_once(" -> ")?;
                    let last = from.rsplit(' ').next()?;
                    let is_ordering = ["Acquire", "Release", "AcqRel", "SeqCst"].contains(&last);
                    let (operation, ordering) = if is_ordering { from.rsplit_once(' ')? } else { (from, "") };
                    let (file, function) = place?;
                    let [file, function, text] = [file, function, source?].map(str::to_owned);
                    let [operation, ordering, weaker] = [operation, ordering, weaker].map(str::to_owned);
                    let verdict = match verdict.strip_prefix('(') {
                        Some(reason) => Verdict::Harmless(reason.strip_suffix(')')?.to_owned()),
                        None => Verdict::CaughtBy(verdict.to_owned()),
                    };
                    Some((Name { file, function, text, operation, ordering, weaker }, verdict))
                };
                let (name, verdict) = parse().unwrap_or_else(|| panic!("mutants.txt has an invalid line: {line}"));
                assert!(listed.insert(name, verdict).is_none(), "mutants.txt has a duplicate line: {line}");
            }
            _ => panic!("mutants.txt has an invalid line: {line}"),
        }
    }
    listed
}

/// Returns the sites of each mutant, with the models that execute them.
fn mutants(sources: &Sources, sites: &BTreeMap<Site, Vec<String>>) -> BTreeMap<Name, Vec<(Site, Vec<String>)>> {
    let mut mutants = BTreeMap::<_, Vec<_>>::new();
    for (site, models) in sites {
        for name in sources.names(site) {
            mutants.entry(name).or_default().push((site.clone(), models.clone()));
        }
    }
    mutants
}

fn run_mutant(site: &Site, weaker: &str, model: &str, patience: Duration) -> End {
    let mutant = format!("{}:{}:{}|{}|{weaker}", site.file, site.line, site.column, site.operation);
    run(model, patience, &[("SLOTLINE_MUTANT", &mutant)])
}

#[test]
#[ignore = "proof/mutants runs it: it takes a minute, and no other test should run at the same time"]
fn every_mutant_is_caught() {
    let (sources, sites, listed) = (Sources::read(), sites(), listed());
    let mutants = mutants(&sources, &sites);
    let faults = Mutex::new(Vec::new());
    let fault = |text: String| faults.lock().unwrap().push(text);
    for (file, line) in sources.operations() {
        if !sites.keys().any(|site| site.file == file && site.line == line) {
            fault(format!("no model executes {file}:{line}: {}", sources.0[file][line - 1].trim()));
        }
    }
    let find_all = env::var("SLOTLINE_MUTANTS").is_ok_and(|what| what == "all");
    for name in listed.keys().filter(|name| !mutants.contains_key(name)) {
        fault(format!("mutants.txt names a mutant that does not exist:\n{name}"));
    }
    for name in mutants.keys().filter(|name| !find_all && !listed.contains_key(name)) {
        fault(format!("mutants.txt has no line for\n{name}"));
    }
    let found = Mutex::new(BTreeMap::<Name, String>::new());
    let note = |name: &Name, verdict: String| {
        found.lock().unwrap().insert(name.clone(), verdict);
    };
    let all: Vec<_> = mutants.iter().collect();
    in_parallel(&all, |(name, sites)| match listed.get(name) {
        Some(Verdict::Harmless(reason)) if !find_all => note(name, format!("({reason})")),
        Some(Verdict::CaughtBy(model)) if !find_all => {
            for (site, _) in *sites {
                match run_mutant(site, &name.weaker, model, PATIENCE) {
                    End::Failed(_) => note(name, model.clone()),
                    end => fault(format!("{model} does not catch this ({end:?}):\n{name}")),
                }
            }
        }
        None if !find_all => {}
        verdict => match find(sites, &name.weaker) {
            Some((model, said)) => {
                eprintln!("{name}: {model}: {said}");
                note(name, model);
            }
            None => {
                eprintln!("{name}: survives");
                match verdict {
                    Some(Verdict::Harmless(reason)) => note(name, format!("({reason})")),
                    _ => fault(format!("no model catches\n{name}")),
                }
            }
        },
    });
    let (found, faults) = (found.into_inner().unwrap(), faults.into_inner().unwrap());
    if find_all {
        print_list(&found);
    }
    let harmless = found.values().filter(|verdict| verdict.starts_with('(')).count();
    println!("{} mutants: {} caught, {harmless} harmless", mutants.len(), found.len() - harmless);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Returns a model that catches the mutant at each of its sites.
fn find(sites: &[(Site, Vec<String>)], weaker: &str) -> Option<(String, String)> {
    let common = sites[0].1.iter().filter(|&model| sites.iter().all(|(_, models)| models.contains(model)));
    for model in common {
        let ends = sites.iter().map(|(site, _)| run_mutant(site, weaker, model, PATIENCE));
        let said: Option<Vec<_>> =
            ends.map(|end| if let End::Failed(said) = end { Some(said) } else { None }).collect();
        if let Some(said) = said {
            return Some((model.clone(), said.join(" / ")));
        }
    }
    None
}

fn print_list(found: &BTreeMap<Name, String>) {
    let mut printed = BTreeSet::new();
    for (name, verdict) in found {
        let place = format!("{}, {}", name.file, name.function);
        if printed.insert(place.clone()) {
            println!("\n{place}");
        }
        if printed.insert(format!("{place}\n{}", name.text)) {
            println!("    {}", name.text);
        }
        println!("        {}: {verdict}", name.change());
    }
}
