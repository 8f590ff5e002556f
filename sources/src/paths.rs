//! Patterns for lists of files, with braces, globs and `::`.
//!
//! | pattern | files |
//! |---|---|
//! | `train-{000..012}.tar` | `train-000.tar` to `train-012.tar` |
//! | `{train,val}.tar`, `{a..c}.tar`, `{0..9..3}.tar` | alternatives, letters, every third number |
//! | `train-*.tar`, `**/?.tar`, `[0-4].tar` | the files that exist, sorted |
//! | `train.tar::val-{0..3}.tar` | the files of several patterns, in order |
//!
//! Braces work as in bash and in Python's `braceexpand` (0.1.7), which webdataset uses. They may be
//! nested, the files that they name must exist, and `\` before a character makes it an ordinary
//! one. Globs are applied after braces. A path that exists is used as it is, whatever characters it
//! has.
//!
//! Braces in URLs are expanded, too. A glob in a URL lists the objects in the folder before it. Web
//! servers cannot list folders, so a glob is an error there, and a `?` begins the query, which is
//! not changed.

use std::path::{Path, PathBuf};

use glob::MatchOptions;

use crate::Error;
use crate::files::is_url;
use crate::kind::{is_web, without_query};
use crate::saved::is_index;

/// The options of matching globs.
const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// The maximum number of paths that one pattern with braces may expand to.
const MAX: usize = 1 << 20;

/// The maximum depth of nested braces.
const DEEPEST: usize = 16;

/// Returns the files that these patterns stand for, in order.
///
/// ```
/// use slotline_sources::paths::expand;
///
/// let paths = expand(["data/train-{08..10}.tar::data/val.tar"])?;
/// let names = ["data/train-08.tar", "data/train-09.tar", "data/train-10.tar", "data/val.tar"];
/// assert_eq!(paths, names.map(std::path::PathBuf::from));
/// # Ok::<(), slotline_sources::Error>(())
/// ```
///
/// # Errors
///
/// - Braces are not balanced, expand to more than 2^20 paths, or are nested more than 16 deep.
/// - A glob is invalid or matches no file, or a folder can't be listed.
/// - There are no patterns.
///
/// A path without a glob need not exist.
pub fn expand(patterns: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Vec<PathBuf>, Error> {
    let mut paths = Vec::new();
    for pattern in patterns {
        let pattern = pattern.as_ref();
        match pattern.to_str() {
            Some(text) if !pattern.exists() => {
                for part in parts(text) {
                    // The query of a URL is not a pattern.
                    let (part, query) = part.split_at(without_query(Path::new(part)).as_os_str().len());
                    for path in braces(part)? {
                        globbed(path + query, &mut paths)?;
                    }
                }
            }
            _ => paths.push(pattern.to_owned()),
        }
    }
    if paths.is_empty() {
        return Err(Error::usage("no files", "pass at least one path"));
    }
    Ok(paths)
}

/// Splits a text at `::`. In the query of a URL, `::` separates only if another URL follows.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    for (at, _) in text.match_indices("::") {
        let (part, next) = (&text[start..at], text[at + 2..].split("::").next().unwrap_or(""));
        if without_query(Path::new(part)).as_os_str().len() == part.len() || is_url(Path::new(next)) {
            parts.push(part);
            start = at + 2;
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Adds the files that match, if the path is a glob.
fn globbed(path: String, paths: &mut Vec<PathBuf>) -> Result<(), Error> {
    let Some(glob) = first_glob(&path).filter(|_| !Path::new(&path).exists()) else {
        paths.push(path.into());
        return Ok(());
    };
    #[cfg(feature = "remote")]
    if is_url(Path::new(&path)) {
        return listed(&path, glob, paths);
    }
    let _ = glob;
    let matches = glob::glob_with(&path, OPTIONS).map_err(|error| invalid(&path, error))?;
    let before = paths.len();
    for found in matches {
        let found = found.map_err(|error| {
            let folder = error.path().to_owned();
            Error::io(&folder, "list", error.into())
        })?;
        if !found.is_dir() && !is_index(&found.to_string_lossy()) {
            paths.push(found);
        }
    }
    if paths.len() == before {
        return Err(no_match(&path));
    }
    Ok(())
}

/// Returns the position of the first glob character. In URLs of web servers, `?` and the characters
/// after it are not part of the path.
fn first_glob(path: &str) -> Option<usize> {
    match is_web(Path::new(path)) {
        true => path.split('?').next().and_then(|path| path.find(['*', '['])),
        false => path.find(['*', '?', '[']),
    }
}

/// Adds the objects whose URLs match a glob.
#[cfg(feature = "remote")]
fn listed(pattern: &str, glob: usize, paths: &mut Vec<PathBuf>) -> Result<(), Error> {
    let (folder, relative) = pattern.split_at(pattern[..glob].rfind('/').map_or(0, |slash| slash + 1));
    if !crate::remote::can_list(folder)? {
        let problem = format!("{pattern} is a pattern, and web servers can't be asked which files they have");
        return Err(Error::usage(
            problem,
            "name the files, as in `{000..003}`; or write `%2A` and `%5B` for `*` and `[`",
        ));
    }
    let matcher = glob::Pattern::new(relative).map_err(|error| invalid(pattern, error))?;
    let before = paths.len();
    let wanted = |name: &str| matcher.matches_with(name, OPTIONS);
    for object in crate::remote::list(folder, wanted)? {
        if wanted(&object.name) {
            paths.push(crate::remote::below(folder, &object.name).into());
        }
    }
    if paths.len() == before { Err(no_match(pattern)) } else { Ok(()) }
}

fn invalid(pattern: &str, error: glob::PatternError) -> Error {
    Error::usage(format!("the pattern {pattern} is not valid: {error}"), "write `[*]` for a literal asterisk")
}

fn no_match(pattern: &str) -> Error {
    let advice = match is_url(Path::new(pattern)) {
        true => "check the pattern, and what is in the bucket",
        false => "check the pattern, and the working directory",
    };
    Error::usage(format!("no file matches {pattern}"), advice)
}

/// Returns the strings that a pattern with braces expands to.
fn braces(pattern: &str) -> Result<Vec<String>, Error> {
    let mut texts = sequence(pattern, pattern, 0)?;
    for text in texts.iter_mut().filter(|text| text.contains('\\')) {
        let mut plain = String::with_capacity(text.len());
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            plain.push(if char == '\\' { chars.next().unwrap_or('\\') } else { char });
        }
        *text = plain;
    }
    Ok(texts)
}

/// Expands a part of `pattern` that may have braces anywhere.
fn sequence(part: &str, pattern: &str, depth: usize) -> Result<Vec<String>, Error> {
    if depth > DEEPEST {
        let problem = format!("the braces of {pattern} are nested more than {DEEPEST} deep");
        return Err(Error::usage(problem, "list the files instead"));
    }
    let mut texts = vec![String::new()];
    let mut rest = part;
    while let Some(open) = marks(rest).find(|&(_, byte)| byte != b',') {
        let close = closing(rest, open).ok_or_else(|| {
            Error::usage(format!("the braces of {pattern} are not balanced"), "write `\\{` and `\\}` for literal ones")
        })?;
        let choices = choices(&rest[open.0 + 1..close], pattern, depth)?;
        if texts.len().saturating_mul(choices.len()) > MAX {
            return Err(too_many(pattern));
        }
        let head = &rest[..open.0];
        texts =
            texts.iter().flat_map(|text| choices.iter().map(move |choice| format!("{text}{head}{choice}"))).collect();
        rest = &rest[close + 1..];
    }
    texts.iter_mut().for_each(|text| text.push_str(rest));
    Ok(texts)
}

fn too_many(pattern: &str) -> Error {
    Error::usage(format!("{pattern} stands for more than {MAX} paths"), "check the ranges")
}

/// Returns the position of the brace that closes the one at `open`. Returns `None` if there is
/// none, or if `open` is itself a closing brace.
fn closing(text: &str, open: (usize, u8)) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in marks(text).filter(|&(at, _)| at >= open.0) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 && byte == b'}' {
            return Some(at);
        }
    }
    None
}

/// Returns the positions of braces and commas that are not escaped.
fn marks(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let mut escaped = false;
    text.bytes().enumerate().filter(move |&(_, byte)| {
        let ordinary = std::mem::take(&mut escaped);
        escaped = byte == b'\\' && !ordinary;
        !ordinary && matches!(byte, b'{' | b'}' | b',')
    })
}

/// Returns the strings that a pair of braces expands to, given the text between them.
fn choices(inside: &str, pattern: &str, depth: usize) -> Result<Vec<String>, Error> {
    if let Some(range) = range(inside) {
        return range.ok_or_else(|| {
            Error::usage(format!("a range of {pattern} has more than {MAX} numbers"), "check the range")
        });
    }
    let (mut texts, mut start, mut open) = (Vec::new(), 0, 0_usize);
    for (at, byte) in marks(inside) {
        match byte {
            b'{' => open += 1,
            b'}' => open = open.saturating_sub(1),
            _ if open == 0 => {
                texts.extend(sequence(&inside[start..at], pattern, depth + 1)?);
                if texts.len() > MAX {
                    return Err(too_many(pattern));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = sequence(&inside[start..], pattern, depth + 1)?;
    if start == 0 {
        // This is neither a range nor a list of alternatives, so the braces are ordinary
        // characters.
        return Ok(last.into_iter().map(|text| format!("{{{text}}}")).collect());
    }
    texts.extend(last);
    Ok(texts)
}

/// Expands `1..9`, `a..e` or `0..9..3`. Returns `None` if the text is not a range, and `Some(None)`
/// if the range is too long.
fn range(inside: &str) -> Option<Option<Vec<String>>> {
    let parts: Vec<&str> = inside.split("..").collect();
    let (first, last, step) = match parts[..] {
        [first, last] => (first, last, 1),
        [first, last, step] => (first, last, digits(step)?.unsigned_abs().max(1)),
        _ => return None,
    };
    if let ([first @ (b'A'..=b'Z' | b'a'..=b'z')], [last @ (b'A'..=b'Z' | b'a'..=b'z')]) =
        (first.as_bytes(), last.as_bytes())
    {
        // The alphabet of braceexpand: all capital letters, then all small letters.
        let alphabet: Vec<u8> = (b'A'..=b'Z').chain(b'a'..=b'z').collect();
        let place = |letter| alphabet.iter().position(|each| each == letter).map_or(0, |place| place as i64);
        let letter = |place: i64| char::from(alphabet[place as usize]).to_string();
        return Some(steps(place(first), place(last), step).map(|places| places.into_iter().map(letter).collect()));
    }
    let padded = |text: &str| text.trim_start_matches('-').starts_with('0') && text != "0" && text != "-0";
    let width = if padded(first) || padded(last) { first.len().max(last.len()) } else { 0 };
    let numbers = steps(digits(first)?, digits(last)?, step);
    Some(numbers.map(|numbers| numbers.into_iter().map(|number| format!("{number:0width$}")).collect()))
}

/// Parses digits with an optional sign.
fn digits(text: &str) -> Option<i64> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    (!unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Returns every `step`th number from `first` to `last`, in either direction; `None` if there are
/// too many.
fn steps(first: i64, last: i64, step: u64) -> Option<Vec<i64>> {
    let count = (first.abs_diff(last) / step).saturating_add(1);
    let offset = |i: u64| if first <= last { (i * step) as i64 } else { ((i * step) as i64).wrapping_neg() };
    (count <= MAX as u64).then(|| (0..count).map(|i| first.wrapping_add(offset(i))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_those_of_braceexpand() {
        // The expected results are those of braceexpand 0.1.7.
        let cases: [(&str, &[&str]); 18] = [
            ("a", &["a"]),
            ("item{1..3}", &["item1", "item2", "item3"]),
            ("{a..c}", &["a", "b", "c"]),
            ("{Y..b}", &["Y", "Z", "a", "b"]),
            ("{c..a}", &["c", "b", "a"]),
            ("x{,.y}", &["x", "x.y"]),
            ("p{2.{5..6},3.{2,3}}", &["p2.5", "p2.6", "p3.2", "p3.3"]),
            ("{07..10}", &["07", "08", "09", "10"]),
            ("{a..g..3}", &["a", "d", "g"]),
            ("{4..1}", &["4", "3", "2", "1"]),
            ("{2..-1}", &["2", "1", "0", "-1"]),
            ("{-01..1}", &["-01", "000", "001"]),
            ("{0..9..4}", &["0", "4", "8"]),
            ("{0..9..-4}", &["0", "4", "8"]),
            ("{0..3..0}", &["0", "1", "2", "3"]),
            ("{a}{1,2}", &["{a}1", "{a}2"]),
            ("{}{1..1}", &["{}1"]),
            (r"{1\{2,\,}", &["1{2", ","]),
        ];
        for (pattern, texts) in cases {
            assert_eq!(braces(pattern).unwrap(), texts, "{pattern}");
        }
    }

    #[test]
    fn braces_that_make_no_sense_are_errors() {
        let most = "{-9223372036854775808..9223372036854775807}";
        for pattern in ["{1{2,3}", "}", "a}{", "{", "{1..99999999}", "{0..-9223372036854775808}", most] {
            braces(pattern).expect_err(pattern);
        }
        braces(&"{0..9}".repeat(7)).expect_err("ten million");
        braces(&format!("{{{}b}}", "{1..1000000},".repeat(300))).expect_err("three hundred million");
        braces(&("{a,".repeat(100) + &"}".repeat(100))).expect_err("too deep");
    }

    #[test]
    fn the_query_of_a_url_is_no_pattern() {
        let query = r"?sig={1..2}*[a]{b\,c}::d&e={";
        let pattern = format!("http://host/{{a,b}}.tar{query}::https://host/c.tar?f={{1,2}}::d-{{0..1}}.tar");
        let urls = ["http://host/a.tar", "http://host/b.tar"].map(|url| url.to_owned() + query);
        let last = "https://host/c.tar?f={1,2}::d-{0..1}.tar".to_owned();
        assert_eq!(expand([pattern]).unwrap(), urls.into_iter().chain([last]).map(PathBuf::from).collect::<Vec<_>>());
        // Braces before the query are expanded.
        let paths = ["http://host/a1?b", "http://host/a2?b"].map(PathBuf::from);
        assert_eq!(expand(["http://host/a{1,2}?b"]).unwrap(), paths);
    }

    #[test]
    fn globs_find_files_that_exist() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.tar", "a.tar", ".c.tar", "[x].tar", "d.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let names = |pattern: &str| {
            let paths = expand([folder.path().join(pattern)]).unwrap();
            paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("*.tar"), ["[x].tar", "a.tar", "b.tar"]);
        assert_eq!(names("[x].tar"), ["[x].tar"]);
        assert_eq!(names("{b,a}.t*"), ["b.tar", "a.tar"]);
        expand([folder.path().join("*.zip")]).expect_err("none");
        expand(Vec::<PathBuf>::new()).expect_err("no patterns");
    }
}
