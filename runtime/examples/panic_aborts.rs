//! A panic while a sample is read is usually an error of that sample only. In a program that is
//! built with `panic = "abort"` it ends the process, and a loader logs a warning about this. To see
//! the warning:
//! `cargo run -p slotline --example panic_aborts --config 'profile.dev.panic="abort"'`.

use slotline::dataset::from_fn;
use slotline::loader::{Budget, Error, OnError, Warning};
use slotline::{BoxError, Loader};

fn main() -> Result<(), BoxError> {
    let aborts = cfg!(panic = "abort");
    let numbers = from_fn(6, move |index, _| match index {
        2 if aborts => Err("sample 2 is bad".into()),
        2 => panic!("sample 2 is bad"),
        _ => Ok(index as i64),
    });
    let builder = Loader::builder(numbers).batch_size(3).num_workers(1).on_error(OnError::Skip(Budget::Samples(1)));
    let mut loader = builder.build()?;
    println!("panic = \"{}\": {:?}", if aborts { "abort" } else { "unwind" }, loader.warnings());
    assert_eq!(loader.warnings().contains(&Warning::PanicAborts), aborts);
    let batches: Result<Vec<_>, Error> =
        loader.epoch()?.map(|batch| Ok(batch?.tensors().as_slice().to_vec())).collect();
    assert_eq!(batches?, [vec![0, 1], vec![3, 4, 5]]);
    Ok(())
}
