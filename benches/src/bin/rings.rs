//! scratch
use std::collections::BTreeMap;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rounds = args.get(1).map_or(5, |a| a.parse().unwrap());
    let bench = args.get(2).cloned().unwrap_or_default();
    let peers: Vec<&str> = args.get(3).map(|a| a.split(',').collect()).unwrap_or_default();
    let mut all: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    slotline_benches::rings::visit(
        rounds,
        |b, p| b.contains(&bench) && (peers.is_empty() || peers.iter().any(|q| p.contains(q))),
        |run| all.entry((run.bench, run.peer)).or_default().push(run.ns),
    );
    let mut rows: Vec<_> = all
        .into_iter()
        .map(|((b, p), mut v)| {
            v.sort_by(f64::total_cmp);
            if std::env::var_os("ALL").is_some() {
                println!("{p} {}", v.iter().map(|x| format!("{x:.2}")).collect::<Vec<_>>().join(" "));
            }
            (b, v[v.len() / 2], v[0], v[v.len() - 1], p)
        })
        .collect();
    rows.sort_by(|a, b| a.0.cmp(b.0).then(a.1.total_cmp(&b.1)));
    for (b, m, lo, hi, p) in rows {
        println!("{b:36} {p:24} {m:8.2} ({lo:.2} .. {hi:.2})");
    }
}
