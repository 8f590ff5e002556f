//! Loaders go on from a state as if they had never stopped.

mod support;

use slotline::Loader;
use slotline::loader::State;

use support::{Got, Run, items, pass};

#[test]
fn a_loader_goes_on_in_the_middle_of_a_pass() {
    let run = Run { len: 50, batch_size: 4, drop_last: false, shuffle: true, seed: 7 };
    let loader = |workers| run.over(items(run.len, |_, _| Ok(()))).num_workers(workers).build().unwrap();
    let mut first = loader(2);
    let mut got = vec![pass(&mut first)];
    let mut second = first.epoch().unwrap();
    let part: Vec<Got> = second.by_ref().take(5).map(|batch| Got::from(&batch.unwrap())).collect();
    let state = serde_json::to_string(&second.state()).unwrap();
    println!("{state}");
    let state: State = serde_json::from_str(&state).unwrap();
    let mut other: Loader<_> = loader(0);
    other.load_state(&state).unwrap();
    let rest = pass(&mut other);
    got.push([part, rest].concat());
    got.push(pass(&mut other));
    assert_eq!(got, run.expected(3));
}
