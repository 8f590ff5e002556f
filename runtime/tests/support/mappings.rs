//! The memory that worker processes share with their loader.

/// The mappings of this process that it shares with others, by address and size.
pub(crate) fn shared_mappings() -> Vec<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains(" rw-s "));
    let range = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let [start, end] = [start, end].map(|number| usize::from_str_radix(number, 16).ok());
        Some((start?, end? - start?))
    };
    shared.filter_map(range).collect()
}
