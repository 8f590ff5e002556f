//! Tests of verdicts on made-up statistics.

use super::*;
use crate::loader::error::run::By;

fn percent(share: u64) -> Duration {
    Duration::from_millis(10 * share)
}

/// Returns statistics of one second on four cores, from these percentages: the consumer's waiting
/// and loading, and each worker's reading, writing and waiting.
fn stats<const N: usize>(waiting: u64, loading: u64, workers: [[u64; 3]; N]) -> Stats {
    let worker = |[reading, writing, waiting]: [u64; 3]| {
        let [reading, writing, waiting] = [reading, writing, waiting].map(percent);
        WorkerStats { reading, writing, waiting, ..WorkerStats::default() }
    };
    Stats {
        batches: 10,
        elapsed: percent(100),
        waiting: percent(waiting),
        in_order: true,
        cores: 4,
        workers: workers.map(worker).into(),
        consumer: WorkerStats { reading: percent(loading), ..WorkerStats::default() },
        ..Stats::default()
    }
}

#[track_caller]
fn says(stats: &Stats, words: &[&str]) {
    let text = stats.verdict().to_string();
    assert!(words.iter().all(|words| text.contains(words)), "{text}");
}

#[test]
fn a_loop_that_hardly_waits_is_the_limit() {
    says(&stats(2, 3, [[40, 0, 50]]), &["bound by the loop", "5.0 %"]);
    says(&stats(0, 4, []), &["bound by the loop"]);
    says(&Stats::default(), &["no batch"]);
    // All of the batches may have been errors.
    says(&Stats { batches: 0, errors: 9, ..stats(90, 0, []) }, &["no batch was delivered"]);
}

#[test]
fn busy_workers_are_the_limit_and_more_are_suggested() {
    // Work of 1.9 s must be done in the half second that the loop itself takes.
    let busy = stats(50, 0, [[90, 5, 0], [90, 5, 0]]);
    says(&busy, &["bound by reading: 2 of 2 workers busy 95 %", "would help, up to 4 (4 cores)"]);
    assert!(matches!(busy.verdict(), Verdict::Reading(Bound { workers: 2, own: false, enough: 4, .. })));
    says(&stats(30, 0, [[0, 95, 0], [0, 95, 0]]), &["bound by writing", "would help, up to 3"]);
    says(&stats(99, 0, [[90, 5, 0]; 2]), &["would help, up to 4 (4 cores)"]);
    says(&stats(90, 0, [[95, 0, 0]; 4]), &["4 for 4 cores"]);
    says(&stats(90, 0, [[95, 0, 0]; 6]), &["6 for 4 cores"]);
    says(&stats(15, 0, [[60, 5, 30]; 2]), &["2 of 2 workers busy 65 %", "on average that is enough"]);
}

#[test]
fn the_loop_loads_without_workers_or_while_they_rest() {
    says(&stats(0, 90, []), &["the loop's own thread loads everything, 90 %", "would help, up to 4"]);
    let Verdict::Reading(bound) = stats(0, 40, []).verdict() else { panic!("nothing else took time") };
    assert!(bound.resting.is_sign_positive(), "it is printed");
    says(&stats(0, 40, []), &["bound by reading", "would help, up to 1 "]);
    let mut helped = stats(5, 80, [[15, 0, 0]; 2]);
    says(&helped, &["the loop's own thread did most of it while it would have waited, 80 %", "up to 4"]);
    helped.workers.iter_mut().for_each(|worker| worker.resting = percent(70));
    says(&helped, &["the loop's own thread did most of it, 80 %", "faster than workers could"]);
}

#[test]
fn a_slow_sampler_and_an_overloaded_worker_are_named() {
    let mut drawn = stats(90, 0, [[5, 5, 0]; 2]);
    drawn.workers.iter_mut().for_each(|worker| worker.drawing = percent(80));
    says(&drawn, &["bound by the sampler", "80 %"]);
    let uneven = stats(90, 0, [[10, 0, 80], [90, 5, 0]]);
    says(&Stats { round_robin: true, ..uneven.clone() }, &["held up by worker 1", "95 %", "10 %"]);
    says(&uneven, &["held up by slow samples"]);
    let even = stats(90, 0, [[80, 0, 10], [90, 5, 0]]);
    says(&Stats { round_robin: true, ..even }, &["bound by reading"]);
    says(&Stats { round_robin: true, ..stats(90, 0, [[90, 5, 0]]) }, &["bound by reading"]);
}

#[test]
fn idle_workers_reveal_what_holds_up_the_ring() {
    let slow = stats(60, 0, [[50, 0, 45], [40, 0, 55]]);
    says(&slow, &["held up by slow samples", "60 %", "50 %", "prefetch_factor", "in_order(false)"]);
    let unordered = Stats { in_order: false, ..slow };
    says(&unordered, &["no single part", "60 %", "45 %"]);
    says(&stats(60, 0, [[20, 0, 5]; 2]), &["no single part"]);
    // The loop waits while workers are hardly ever busy: passing batches takes the time.
    let small = |stats| Stats { batches: 1_000_000, ..stats };
    says(&small(stats(30, 0, [[5, 0, 90]])), &["small batches", "1.0µs", "30 %", "batch_size"]);
    says(&small(stats(40, 0, [[10, 0, 85]; 2])), &["small batches"]);
    says(&stats(30, 0, [[5, 0, 90]]), &["no single part", "30 %", "5 %"]);
    says(&stats(40, 0, [[10, 0, 85]; 4]), &["held up by slow samples"]);
    says(
        &Stats { held: percent(50), ..stats(10, 0, [[5, 0, 90]]) },
        &["held up by held batches", "50 %", "raise hold"],
    );
    says(&Stats { starting: percent(60), ..stats(10, 0, [[5, 0, 5]]) }, &["held up by beginning passes: 60 %"]);
}

#[test]
fn the_parts_of_reading_and_decoding_are_told_apart() {
    let shares = |fetching, downloading, decoding| {
        let mut stats = stats(90, 0, [[60, 10, 0]; 2]);
        for worker in &mut stats.workers {
            worker.decoding = percent(decoding);
            (worker.fetching, worker.downloading) = (percent(fetching), percent(downloading));
        }
        stats
    };
    says(&shares(20, 10, 10), &["bound by reading: 2 of 2 workers"]);
    says(&shares(10, 45, 10), &["bound by the network", "such as 4, even beyond the 4 cores"]);
    says(&shares(45, 10, 10), &["bound by reading files", "they wait"]);
    says(&shares(30, 30, 65), &["bound by decoding: 2 of 2 workers", "up to 4 (4 cores)"]);
    let mut six = Stats { workers: vec![shares(10, 45, 10).workers[0].clone(); 6], ..shares(0, 0, 0) };
    says(&six, &["bound by the network", "such as 12"]);
    six.workers.iter_mut().for_each(|worker| worker.starved = percent(55));
    says(&six, &["starved of cores", "55 %", "4 cores", "fewer workers"]);
}

#[test]
fn a_sample_that_has_not_ended_is_named() {
    let slow = |samples, time| Slow { index: 7, samples, time: percent(time), by: By::Worker(1) };
    let hangs = |unfinished| Stats { unfinished: vec![unfinished], ..stats(90, 0, [[0, 0, 90], [95, 0, 0]]) };
    says(&hangs(slow(1, 80)), &["has not ended", "worker 1", "at sample 7 for 800.0ms"]);
    says(&Stats { batches: 0, ..hangs(slow(0, 80)) }, &["worker 1 has been beginning its stream"]);
    says(&hangs(slow(1, 20)), &["held up by slow samples"]);
    says(&Stats { waiting: Duration::ZERO, ..hangs(slow(1, 80)) }, &["bound by the loop"]);
}
