//! Compares an answer of slotline with that of torch.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The length of the longest list of indices that the file of torch's answers contains in full. A
/// longer list is represented by its length, its ends and a hash.
const WHOLE: usize = 512;
/// The number of indices that are kept at each end of a longer list.
const END: usize = 8;
/// The numbers of entries that are shown of a list, and of a list within a list.
const SHOWN: [usize; 2] = [12, 4];
/// The number of entries that are shown before the first difference.
const BEFORE: usize = 3;
/// The number of characters shown of a string.
const CHARACTERS: usize = 48;

/// A place where slotline's answer differs from torch's.
#[derive(Debug, thiserror::Error)]
#[error("{place} differs\n    torch:    {torch}\n    slotline: {ours}")]
pub(crate) struct Difference {
    /// The name of the answer and the place in it, such as `passes[1][17]`.
    place: String,
    torch: String,
    ours: String,
}

/// Compares torch's and slotline's answers to the same question. `what` names it in errors.
///
/// # Errors
///
/// A [`Difference`] that shows where they differ.
pub(crate) fn same(what: &str, torch: &Value, ours: &Value) -> Result<(), Difference> {
    if torch == ours {
        return Ok(());
    }
    let (mut place, mut torch, mut ours) = (what.to_owned(), torch, ours);
    // Descends to the innermost lists that differ.
    let first = loop {
        let (Some(theirs), Some(own)) = (torch.as_array(), ours.as_array()) else { break 0 };
        let Some(at) = theirs.iter().zip(own).position(|(torch, ours)| torch != ours) else {
            break theirs.len().min(own.len());
        };
        // If the lengths differ, entries of the outer list may be missing, so that list is shown.
        if theirs.len() != own.len() || !(theirs[at].is_array() && own[at].is_array()) {
            // The entries around this one are shown as well, so the loop ends here.
            let _ = write!(place, "[{at}]");
            break at;
        }
        let _ = write!(place, "[{at}]");
        (torch, ours) = (&theirs[at], &own[at]);
    };
    Err(Difference { place, torch: short(torch, first), ours: short(ours, first) })
}

/// Abbreviates a value. A long list is shown from a few entries before `at`.
pub(crate) fn short(value: &Value, at: usize) -> String {
    shorten(value, at, SHOWN[0])
}

/// Works like [`short`], with at most `most` entries of lists and objects.
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

/// Returns indices in the form in which the file of torch's answers contains them (see [`WHOLE`]).
/// The hash is over the indices as little-endian `i64`.
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
