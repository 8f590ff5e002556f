//! Two answers beside each other.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A list of more indices than this is in a file as its length, its ends and its hash.
const WHOLE: usize = 512;
/// So many indices of each end.
const END: usize = 8;
/// So many entries of a list are shown, and of a list in a list.
const SHOWN: [usize; 2] = [12, 4];
/// So many of them are before the first that differs.
const BEFORE: usize = 3;
/// So many characters of a string are shown.
const CHARACTERS: usize = 48;

/// Where slotline's answer is not torch's.
#[derive(Debug, thiserror::Error)]
#[error("{place} differs\n    torch:    {torch}\n    slotline: {ours}")]
pub(crate) struct Difference {
    /// The answer, and the place in it: `passes[1][17]`.
    place: String,
    torch: String,
    ours: String,
}

/// An error that says where the answers differ, unless they are the same.
pub(crate) fn same(what: &str, torch: &Value, ours: &Value) -> Result<(), Difference> {
    if torch == ours {
        return Ok(());
    }
    let (mut place, mut torch, mut ours) = (what.to_owned(), torch, ours);
    // Down to the innermost lists that differ.
    let first = loop {
        let (Some(theirs), Some(own)) = (torch.as_array(), ours.as_array()) else { break 0 };
        let Some(at) = theirs.iter().zip(own).position(|(torch, ours)| torch != ours) else {
            break theirs.len().min(own.len());
        };
        // With a list of another length it may be the lists' own beginning that is wrong.
        if theirs.len() != own.len() || !(theirs[at].is_array() && own[at].is_array()) {
            // Only says which entry it is: the entries around it are shown, too.
            let _ = write!(place, "[{at}]");
            break at;
        }
        let _ = write!(place, "[{at}]");
        (torch, ours) = (&theirs[at], &own[at]);
    };
    Err(Difference { place, torch: short(torch, first), ours: short(ours, first) })
}

/// The value in few words; a long list from shortly before entry `at` on.
pub(crate) fn short(value: &Value, at: usize) -> String {
    shorten(value, at, SHOWN[0])
}

/// [`short`], with so many entries of lists and objects.
fn shorten(value: &Value, at: usize, most: usize) -> String {
    let inner = |value| shorten(value, 0, SHOWN[1]);
    match value {
        Value::Array(list) => {
            let start = at.saturating_sub(BEFORE).min(list.len().saturating_sub(most));
            let shown = list.iter().skip(start).take(most).map(inner).collect::<Vec<_>>().join(", ");
            let end = start.saturating_add(most);
            match (start > 0, end < list.len()) {
                (false, false) => format!("[{shown}]"),
                (before, after) => {
                    let (before, after) = (if before { "…, " } else { "" }, if after { ", …" } else { "" });
                    format!("[{before}{shown}{after}] ({} in all)", list.len())
                }
            }
        }
        Value::Object(entries) => {
            let shown = entries.iter().take(most).map(|(key, value)| format!("{key}: {}", inner(value)));
            format!("{{{}}}", shown.collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => match text.char_indices().nth(CHARACTERS) {
            Some((end, _)) => format!("{:?}…", &text[..end]),
            None => format!("{text:?}"),
        },
        other => other.to_string(),
    }
}

/// Indices in the form that the files have them; the hash is over them as little-endian i64.
pub(crate) fn pack(indices: impl ExactSizeIterator<Item = usize> + Clone) -> Value {
    let len = indices.len();
    if len <= WHOLE {
        return indices.collect();
    }
    let mut hash = Sha256::new();
    for index in indices.clone() {
        hash.update((index as i64).to_le_bytes());
    }
    let sha256 = hash.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let (head, tail) = (indices.clone().take(END), indices.skip(len - END));
    json!({ "len": len, "sha256": sha256, "head": head.collect::<Value>(), "tail": tail.collect::<Value>() })
}
