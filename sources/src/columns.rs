//! Choosing among the columns of a table, for Arrow and Parquet.

use std::path::Path;

use crate::Error;
use crate::record::MOST_FIELDS;

/// Returns the columns that `names` lists, in that order, or all. A struct's name stands for all its members, whose names
/// start with it and a dot. `others` are columns that can't be read, and what they hold.
pub(crate) fn choose<C: Clone>(
    path: &Path,
    names: Option<&[String]>,
    all: &[C],
    name: impl Fn(&C) -> &str,
    others: &[(String, String)],
) -> Result<Vec<C>, Error> {
    let wrong = |problem: String, advice| Err(Error::format(path.display(), None, problem, advice));
    let unread = |(name, what): &(String, String)| {
        let problem = format!("the column {name} holds {what}, which is not read");
        wrong(problem, "list others with `columns`")
    };
    let is_in = |name: &str, chosen: &str| {
        name.strip_prefix(chosen).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let columns = match names {
        None => match others.first() {
            Some(other) => return unread(other),
            None => all.to_vec(),
        },
        Some(names) => {
            let mut columns = Vec::new();
            for chosen in names {
                if let Some(other) = others.iter().find(|(other, _)| is_in(other, chosen)) {
                    return unread(other);
                }
                let before = columns.len();
                columns.extend(all.iter().filter(|column| is_in(name(column), chosen)).cloned());
                if columns.len() == before {
                    let all: Vec<&str> = all.iter().map(&name).collect();
                    let problem = format!("no column {chosen}, but {}", all.join(", "));
                    return wrong(problem, "choose among these columns");
                }
            }
            columns
        }
    };
    let same = |(i, column): &(usize, &C)| columns[..*i].iter().any(|other| name(other) == name(column));
    if let Some((_, column)) = columns.iter().enumerate().find(same) {
        return wrong(format!("two columns {}", name(column)), "choose different ones with `columns`");
    }
    match columns.len() {
        0 => wrong("no columns".to_owned(), "choose some with `columns`"),
        1..=MOST_FIELDS => Ok(columns),
        many => wrong(format!("{many} columns; the maximum is {MOST_FIELDS}"), "choose some with `columns`"),
    }
}
