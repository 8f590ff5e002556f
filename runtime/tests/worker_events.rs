//! Tests of `tracing` events in worker processes, which the program's subscriber must receive. This
//! is a separate program, since it has a global subscriber.
#![cfg(all(target_os = "linux", not(any(shuttle, delays))))]

mod support;
#[path = "support/warnings.rs"]
mod warnings;

use std::time::{Duration, Instant};

use slotline::Loader;

use crate::support::{LONG, from_fn};
use crate::warnings::Warnings;

#[test]
fn events_of_worker_processes_come_to_the_programs_subscriber() {
    let subscriber = Warnings::default();
    tracing::subscriber::set_global_default(subscriber.clone()).unwrap();
    let parent = std::process::id();
    let dataset = from_fn(40, move |index, _| {
        if std::process::id() != parent && index % 10 == 3 {
            tracing::warn!(index, "rusty");
            tracing::info!("not wanted");
        }
        Ok(index as i64)
    });
    let mut loader = Loader::builder(dataset).batch_size(4).num_workers(2).processes().build().unwrap();
    drop(subscriber.take());
    assert_eq!(loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 40);
    let (begun, mut events) = (Instant::now(), Vec::new());
    while events.len() < 4 {
        assert!(begun.elapsed() < LONG, "{events:?}");
        events.extend(subscriber.take());
        std::thread::sleep(Duration::from_millis(2));
    }
    for index in [3, 13, 23, 33] {
        let event = format!("worker_events: rusty index={index} worker=");
        assert_eq!(events.iter().filter(|text| text.contains(&event)).count(), 1, "{events:?}");
    }
    assert_eq!(events.len(), 4, "{events:?}");
    drop(loader);
    assert_eq!(subscriber.take(), Vec::<String>::new());

    // A worker with its own rings emits an event in the middle of a batch.
    let dataset = from_fn(20, move |index, _| {
        if std::process::id() != parent {
            tracing::warn!(index, "rusty");
            std::thread::sleep(Duration::from_millis(3));
        }
        Ok(index as i64)
    });
    let builder = Loader::builder(dataset).batch_size(4).num_workers(2).round_robin(true);
    let mut loader = builder.processes().build().unwrap();
    assert_eq!(loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 20);
    assert_eq!(subscriber.take().len(), 20);
}
