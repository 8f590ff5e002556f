//! Every file that a page names exists: links within the project, and paths in code spans.

use std::fs;
use std::path::{Path, PathBuf};

const ON_THE_WEB: &str = "https://github.com/slotline/slotline/blob/main/";

#[test]
fn the_pages_name_only_files_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project").to_owned();
    let folders: Vec<String> = names(&root).collect();
    let (mut checked, mut gone) = (0, Vec::new());
    for page in pages(&root) {
        let text = prose(&fs::read_to_string(&page).expect("a page"));
        let crate_root = root.join(page.strip_prefix(&root).expect("inside").iter().next().expect("a name"));
        let linked = links(&text).filter_map(|link| match link.strip_prefix(ON_THE_WEB) {
            Some(path) => Some(root.join(path)),
            None if link.contains("://") || link.starts_with("mailto:") => None,
            None => Some(page.parent().expect("a folder").join(link)),
        });
        // Only paths that begin with a folder of the project: others may be files of the user's.
        let spans = spans(&text).filter(|span| is_path(span) && folders.iter().any(|folder| begins(span, folder)));
        let named = spans.filter(|span| !crate_root.join(span).exists()).map(|span| root.join(span));
        for path in linked.chain(named) {
            checked += 1;
            if !path.exists() {
                gone.push(format!("{}: {}", page.display(), path.display()));
            }
        }
    }
    assert!(checked > 300, "only {checked} paths were found");
    assert!(gone.is_empty(), "{gone:#?}");
}

/// The names in a folder.
fn names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// All pages below a folder, without what was built or downloaded.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for name in names(folder).filter(|name| !name.starts_with('.') && !["target", "book", "kit"].contains(&&**name)) {
        let path = folder.join(&name);
        if path.is_dir() {
            pages.append(&mut self::pages(&path));
        } else if name.ends_with(".md") && name != "CHANGELOG.md" {
            pages.push(path);
        }
    }
    pages
}

/// A page without its blocks of code.
fn prose(page: &str) -> String {
    page.split("```").step_by(2).collect()
}

/// The targets of links, without the place on the page.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '#']).next());
    let titled = text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: "));
    let titled = titled.filter_map(|(_, target)| target.split('#').next());
    targets.chain(titled).filter(|target| !target.is_empty() && !target.contains(['<', ':']) || target.contains("://"))
}

/// The code spans.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Whether a code span is the path of a file.
fn is_path(span: &str) -> bool {
    let plain = span.chars().all(|char| char.is_ascii_alphanumeric() || "._-/".contains(char));
    plain && span.contains('/') && Path::new(span).extension().is_some()
}

fn begins(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}
