//! No circle of files that need each other is larger than two, so that every file can be read after those that it needs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::iter::successors;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

const CRATES: [&str; 5] = ["core", "runtime", "image", "cuda", "ffi"];

#[test]
fn no_circle_of_files_is_larger_than_two() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project");
    for name in CRATES {
        let code = Code::read(&project.join(name).join("src"));
        let needs = code.needs();
        let edges: usize = needs.values().map(BTreeSet::len).sum();
        assert!(edges > code.files.len(), "{name}: {edges} imports among {} files", code.files.len());
        let circles = circles(&needs);
        assert!(circles.is_empty(), "{name}: {circles:#?}");
    }
}

#[test]
fn a_circle_through_names_that_are_passed_on_is_found() {
    let mut code = Code::default();
    let mut file = |path: &str, text: &str| code.add(path.into(), text.parse().expect("Rust"));
    file("lib.rs", "mod a; mod b; mod c; pub use a::{A, C};");
    file("a.rs", "use crate::b; pub use crate::c::C; pub struct A(b::inner::B); #[cfg(test)] use crate::Nothing;");
    file("b.rs", "pub mod inner { pub struct B(Box<super::super::C>); }");
    file("c.rs", "use super::*; pub struct C(Option<crate::A>);");
    let needs = code.needs();
    let circle: BTreeSet<PathBuf> = ["a.rs", "b.rs", "c.rs"].map(PathBuf::from).into();
    assert_eq!(circles(&needs), [circle].into(), "{needs:?}");
}

type Module = Vec<String>;
type Needs = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// The files of a crate, and its modules.
#[derive(Default)]
struct Code {
    files: Vec<PathBuf>,
    modules: BTreeMap<Module, Contents>,
}

/// What a module has, without tests and without what is only for documentation.
#[derive(Default)]
struct Contents {
    file: PathBuf,
    imports: Vec<Import>,
    /// Paths of at least two names, from elsewhere than imports.
    paths: BTreeSet<Vec<String>>,
    words: BTreeSet<String>,
    items: BTreeSet<String>,
}

struct Import {
    path: Vec<String>,
    /// What it is called here; `*` if the import is all of a module.
    name: String,
    is_public: bool,
}

impl Code {
    fn read(root: &Path) -> Self {
        let (mut code, mut left) = (Self::default(), vec![root.to_owned()]);
        while let Some(path) = left.pop() {
            if path.is_dir() {
                left.extend(fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path()));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                code.add(path.strip_prefix(root).expect("inside").to_owned(), text.parse().expect("Rust"));
            }
        }
        code
    }

    fn add(&mut self, file: PathBuf, tokens: TokenStream) {
        let mut module: Module = file.with_extension("").iter().map(|name| name.to_string_lossy().into()).collect();
        module.pop_if(|last| ["mod", "lib"].contains(&&**last));
        self.files.push(file.clone());
        self.contents(&module, &file);
        self.scan(tokens, &module, &file);
    }

    fn contents(&mut self, module: &Module, file: &Path) -> &mut Contents {
        let contents = self.modules.entry(module.clone()).or_default();
        contents.file = file.to_owned();
        contents
    }

    fn scan(&mut self, tokens: TokenStream, module: &Module, file: &Path) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is =
            |at: usize, char: char| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == char);
        let group = |at: usize| match tokens.get(at) {
            Some(TokenTree::Group(group)) => Some(group),
            _ => None,
        };
        let word = |at: usize| match tokens.get(at) {
            Some(TokenTree::Ident(word)) => Some(word.to_string()),
            _ => None,
        };
        let ends = |at: usize| is(at, ';') || group(at).is_some_and(|group| group.delimiter() == Delimiter::Brace);
        let mut at = 0;
        while at < tokens.len() {
            if is(at, '#')
                && let Some(attribute) = group(at + 1)
            {
                at += 2;
                if is_left_out(&attribute.stream().to_string()) {
                    while at < tokens.len() && !ends(at) {
                        at += 1;
                    }
                    at += 1;
                }
            } else if let Some(group) = group(at) {
                self.scan(group.stream(), module, file);
                at += 1;
            } else if let Some(first) = word(at) {
                match (&*first, word(at + 1), group(at + 2)) {
                    ("use", ..) => {
                        let end = (at..tokens.len()).find(|&at| is(at, ';')).unwrap_or(tokens.len());
                        let before = at.checked_sub(1);
                        let is_public =
                            before.is_some_and(|at| group(at).is_some() || word(at).is_some_and(|word| word == "pub"));
                        let tree: TokenStream = tokens[at + 1..end].iter().cloned().collect();
                        let mut names = Vec::new();
                        imported(tree, &[], &mut names);
                        let imports = names.into_iter().map(|(path, name)| Import { path, name, is_public });
                        self.contents(module, file).imports.extend(imports);
                        at = end;
                    }
                    ("mod", Some(name), Some(body)) => {
                        let inner = [&module[..], &[name]].concat();
                        self.contents(&inner, file);
                        self.scan(body.stream(), &inner, file);
                        at += 3;
                    }
                    ("mod", Some(_), None) => at += 2,
                    ("struct" | "enum" | "union" | "trait" | "fn" | "type" | "const" | "static", Some(name), _) => {
                        self.contents(module, file).items.insert(name);
                        at += 2;
                    }
                    _ => {
                        let mut path = vec![first];
                        at += 1;
                        while is(at, ':')
                            && is(at + 1, ':')
                            && let Some(next) = word(at + 2)
                        {
                            path.push(next);
                            at += 3;
                        }
                        let contents = self.contents(module, file);
                        contents.words.insert(path[0].clone());
                        if path.len() > 1 {
                            contents.paths.insert(path);
                        }
                    }
                }
            } else {
                at += 1;
            }
        }
    }

    /// Returns which files each file needs. What it only passes on to others, it does not need.
    fn needs(&self) -> Needs {
        let mut needs: Needs = self.files.iter().map(|file| (file.clone(), BTreeSet::new())).collect();
        for (module, contents) in &self.modules {
            let used = contents.imports.iter().filter(|import| match &*import.name {
                "*" => false,
                name => !import.is_public || contents.words.contains(name),
            });
            let everything = contents.imports.iter().filter(|import| import.name == "*");
            let by_glob = everything.filter_map(|import| self.find(module, &import.path, 0)).flat_map(|from| {
                let words = contents.words.iter().filter(|word| !contents.items.contains(*word));
                words.filter_map(move |word| self.item(&from, word, 0))
            });
            let paths = used.map(|import| &import.path).chain(&contents.paths);
            let found = paths.filter_map(|path| self.find(module, path, 0)).chain(by_glob);
            let found = found.map(|module| self.modules[&module].file.clone());
            needs.get_mut(&contents.file).expect("a file").extend(found.filter(|file| *file != contents.file));
        }
        needs
    }

    /// Returns the module that a path leads to, or that has the item that it leads to.
    fn find(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (first, mut rest) = path.split_first()?;
        let mut module = match &**first {
            "crate" => Module::new(),
            "self" => from.clone(),
            "super" => from[..from.len().checked_sub(1)?].to_vec(),
            _ => {
                rest = path;
                from.clone()
            }
        };
        while let Some((name, after)) = rest.split_first() {
            let inner = [&module[..], std::slice::from_ref(name)].concat();
            module = if name == "super" {
                module.pop()?;
                module
            } else if self.modules.contains_key(&inner) {
                inner
            } else {
                let next = self.item(&module, name, depth)?;
                // An item may be a module by another name.
                let is_module = next.last() == Some(name);
                if !is_module {
                    return Some(next);
                }
                next
            };
            rest = after;
        }
        Some(module)
    }

    /// Returns the module that defines a name that this module has.
    fn item(&self, module: &Module, name: &str, depth: usize) -> Option<Module> {
        let contents = &self.modules.get(module)?;
        if depth > 9 {
            return None;
        }
        if contents.items.contains(name) {
            return Some(module.clone());
        }
        if let Some(import) = contents.imports.iter().find(|import| import.name == name) {
            return self.find(module, &import.path, depth + 1);
        }
        let everything = contents.imports.iter().filter(|import| import.name == "*" && import.is_public);
        let mut from = everything.filter_map(|import| self.find(module, &import.path, depth + 1));
        from.find_map(|from| self.item(&from, name, depth + 1))
    }
}

/// Whether an attribute says that what follows is for tests or documentation only.
fn is_left_out(attribute: &str) -> bool {
    let attribute: String = attribute.split_whitespace().collect();
    attribute.starts_with("cfg(")
        && !attribute.contains("not(")
        && ["test", "doc"]
            .iter()
            .any(|word| attribute.split(|char: char| !char.is_alphanumeric()).any(|other| other == *word))
}

/// Lists the paths of an import, with the names that they get.
fn imported(tree: TokenStream, before: &[String], names: &mut Vec<(Vec<String>, String)>) {
    let (mut path, mut name) = (before.to_vec(), None);
    let mut renamed = false;
    let end = |path: &mut Vec<String>, name: &mut Option<String>, names: &mut Vec<_>| {
        let path = std::mem::replace(path, before.to_vec());
        if let Some(name) = name.take() {
            names.push((path, name));
        }
    };
    for token in tree {
        match token {
            TokenTree::Ident(word) if word == "as" => renamed = true,
            TokenTree::Ident(word) if renamed => (name, renamed) = (Some(word.to_string()), false),
            TokenTree::Ident(word) => {
                let word = word.to_string();
                // `self` in braces is the module itself.
                if word == "self" && !path.is_empty() {
                    name = path.last().cloned();
                } else {
                    path.push(word.clone());
                    name = Some(word);
                }
            }
            TokenTree::Group(group) => {
                imported(group.stream(), &path, names);
                name = None;
            }
            TokenTree::Punct(punct) if punct.as_char() == '*' => name = Some("*".into()),
            TokenTree::Punct(punct) if punct.as_char() == ',' => end(&mut path, &mut name, names),
            _ => {}
        }
    }
    end(&mut path, &mut name, names);
}

/// Returns circles of more than two files: for every need, the shortest way back that is not direct.
///
/// Two files that need each other are no such circle, nor are several such pairs with one file in common, as a trait and the
/// types that its methods return.
fn circles(needs: &Needs) -> BTreeSet<BTreeSet<PathBuf>> {
    let back = |from: &PathBuf, to: &PathBuf| {
        let (mut before, mut left) = (BTreeMap::from([(to, None)]), VecDeque::from([to]));
        while let Some(file) = left.pop_front() {
            if file == from {
                return Some(successors(Some(file), |file| before[*file]).cloned().collect());
            }
            for next in needs[file].iter().filter(|next| file != to || *next != from) {
                before.entry(next).or_insert_with(|| {
                    left.push_back(next);
                    Some(file)
                });
            }
        }
        None
    };
    needs.iter().flat_map(|(from, files)| files.iter().filter_map(move |to| back(from, to))).collect()
}
