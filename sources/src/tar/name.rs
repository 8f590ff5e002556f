//! Splits the names of members into the keys of samples and the names of fields.

/// Splits a name at the first dot of the last component, into the key of the sample and the name of
/// the field. This is what webdataset does (1.0.2, `base_plus_ext` with the default `skip_meta`).
/// Returns `None` if webdataset skips the member.
///
/// A name whose last component starts with a dot is skipped, unless the name of the folder above it
/// has no dot; the key then ends with `/`.
pub(super) fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if is_metadata(name) {
        return None;
    }
    let last = after_last(name, b'/');
    let dot = last + name[last..].iter().position(|&byte| byte == b'.')?;
    // webdataset's regular expression is `^((?:.*/|)[^.]+)[.]([^/]*)$`. The match of `[^.]+` begins
    // at the start of the name, or after a slash.
    let no_dots = after_last(&name[..dot], b'.');
    let start = match no_dots {
        0 => 0,
        _ => no_dots + name[no_dots..dot].iter().position(|&byte| byte == b'/')? + 1,
    };
    let matches = start < dot && (start == 0 || !name[..start - 1].contains(&b'\n'));
    matches.then(|| (&name[..dot], &name[dot + 1..]))
}

/// Whether the name is `__…__`, or is in a folder with such a name.
fn is_metadata(name: &[u8]) -> bool {
    let first = name.split(|&byte| byte == b'/').next().unwrap_or(name);
    let long_enough = first.len() >= 4 || first.len() == name.len();
    first.starts_with(b"__") && first.ends_with(b"__") && long_enough
}

/// Returns the position after the last occurrence of `byte`, or 0.
fn after_last(name: &[u8], byte: u8) -> usize {
    name.iter().rposition(|&each| each == byte).map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_as_by_webdataset() {
        // The expected results are those of webdataset 1.0.2.
        let cases = [
            ("a.jpg", Some(("a", "jpg"))),
            ("a.seg.png", Some(("a", "seg.png"))),
            ("x.y/a.jpg", Some(("x.y/a", "jpg"))),
            ("./a.b.c", Some(("./a", "b.c"))),
            ("a.", Some(("a", ""))),
            ("a", None),
            ("x.y/a", None),
            (".hidden", None),
            (".hidden.txt", None),
            ("./.hidden", None),
            ("x/.hidden.txt", Some(("x/", "hidden.txt"))),
            ("w.v/x/.hidden.txt", Some(("w.v/x/", "hidden.txt"))),
            ("x.y/.hidden.txt", None),
            ("/.h", Some(("/", "h"))),
            ("..txt", None),
            ("a..txt", Some(("a", ".txt"))),
            ("__a__", None),
            ("__a.b__", None),
            ("__a__/b.txt", None),
            ("__.txt", Some(("__", "txt"))),
            ("__/b.txt", Some(("__/b", "txt"))),
            ("___/b.txt", Some(("___/b", "txt"))),
            ("x/__a.b__", Some(("x/__a", "b__"))),
            ("a.txt/", None),
            ("a\nb.txt", Some(("a\nb", "txt"))),
            ("x.\ny/z.txt", None),
            ("x\ny/z.txt", Some(("x\ny/z", "txt"))),
            ("", None),
        ];
        for (name, parts) in cases {
            let parts = parts.map(|(key, field): (&str, &str)| (key.as_bytes(), field.as_bytes()));
            assert_eq!(split(name.as_bytes()), parts, "{name:?}");
        }
    }
}
