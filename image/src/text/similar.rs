//! Suggestions for mistyped names.

/// Returns ` (did you mean …?)` with the most similar candidate, or an empty text if none is
/// similar.
pub(crate) fn advice<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    let plain =
        |name: &str| -> Vec<char> { name.to_lowercase().chars().filter(|char| char.is_alphanumeric()).collect() };
    let name = plain(name);
    candidates
        .map(|candidate| (distance(&name, &plain(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().min(name.len()) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map_or(String::new(), |(_, candidate)| format!(" (did you mean {candidate}?)"))
}

/// Returns the number of characters that must be inserted, removed or replaced to turn `a` into
/// `b`.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::advice;

    #[test]
    fn the_most_similar_name_is_suggested_and_nothing_for_others() {
        let names = ["resize", "center_crop", "random_crop", "random_resized_crop", "hflip"];
        let advice = |name| advice(name, names.into_iter());
        assert_eq!(advice("RandomCrop"), " (did you mean random_crop?)");
        assert_eq!(advice("centre_crop"), " (did you mean center_crop?)");
        assert_eq!(advice("hlfip"), "");
        assert_eq!(advice("hflp"), " (did you mean hflip?)");
        assert_eq!(advice("x"), "");
        assert_eq!(advice("mixup"), "");
    }
}
