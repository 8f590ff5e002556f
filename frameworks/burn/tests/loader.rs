//! Tests of burn's `DataLoader` implemented with a slotline loader.

use burn::data::dataloader::DataLoader as _;
use burn::tensor::{Device, Int, Tensor};
use slotline::dataset::from_fn;
use slotline::loader::{Budget, OnError};
use slotline::{BoxError, Dataset};
use slotline_burn::DataLoader;

/// Returns a loader whose items are the lists of indices of the batches.
fn indices(len: usize, shuffle: bool) -> Result<DataLoader<impl Dataset, Vec<i64>>, BoxError> {
    DataLoader::new(
        from_fn(len, |index, _| if index == 99 { Err("sample 99 is bad".into()) } else { Ok(index as i64) }),
        &Device::flex(),
        move |builder| builder.batch_size(4).shuffle(shuffle).seed(1).num_workers(2),
        |batch, _| {
            let [indices] = batch.into_array()?;
            Ok(indices.try_to_vec::<i64>()?)
        },
    )
}

#[test]
fn each_iterator_is_the_next_epoch() -> Result<(), BoxError> {
    let loader = indices(10, true)?;
    let epoch = || loader.iter().collect::<Result<Vec<_>, _>>();
    let (first, second) = (epoch()?, epoch()?);
    assert_eq!(first.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
    assert_ne!(first, second);
    for epoch in [first, second] {
        let mut all = epoch.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..10));
    }
    // An iterator that is dropped early ends its epoch.
    assert_eq!(loader.iter().next().expect("a batch")?.len(), 4);
    assert_eq!(epoch()?.concat().len(), 10);
    Ok(())
}

#[test]
fn bad_samples_are_left_out() -> Result<(), BoxError> {
    let loader = DataLoader::new(
        from_fn(10, |index, _| if index == 3 { Err("sample 3 is bad".into()) } else { Ok(index as i64) }),
        &Device::flex(),
        |builder| builder.batch_size(4).on_error(OnError::Skip(Budget::Samples(1))),
        |batch, _| {
            let [indices] = batch.into_array()?;
            Ok(indices.try_to_vec::<i64>()?)
        },
    )?;
    let batches = loader.iter().collect::<Result<Vec<_>, _>>()?;
    assert_eq!(batches, [vec![0, 1, 2], vec![4, 5, 6, 7], vec![8, 9]]);
    Ok(())
}

#[test]
fn progress_counts_samples() -> Result<(), BoxError> {
    let loader = indices(10, false)?;
    assert_eq!(loader.num_items(), 10);
    let mut iter = loader.iter();
    for expected in [0, 4, 8, 10] {
        let progress = iter.progress();
        assert_eq!((progress.items_processed, progress.items_total), (expected, 10));
        iter.next().transpose()?;
    }
    Ok(())
}

#[test]
fn a_slice_reads_a_part() -> Result<(), BoxError> {
    let loader = indices(30, false)?;
    let slice = loader.slice(5, 15);
    assert_eq!(slice.num_items(), 10);
    let all = |loader: &dyn burn::data::dataloader::DataLoader<Vec<i64>>| {
        Ok::<_, BoxError>(loader.iter().collect::<Result<Vec<_>, _>>()?.concat())
    };
    assert!(all(&*slice)?.into_iter().eq(5..15));
    let nested = slice.slice(2, 100);
    assert!(all(&*nested)?.into_iter().eq(7..15));
    assert_eq!((slice.slice(10, 20).num_items(), all(&*slice.slice(10, 20))?.len()), (0, 0));
    // Slices have their own workers.
    let (mut a, mut b) = (loader.iter(), slice.iter());
    assert_eq!((a.next().expect("a batch")?[0], b.next().expect("a batch")?[0]), (0, 5));
    Ok(())
}

#[test]
fn tensors_are_on_the_device() -> Result<(), BoxError> {
    let loader = DataLoader::new(
        from_fn(4, |index, _| Ok(index as i64)),
        &Device::flex(),
        |builder| builder.batch_size(4),
        |batch, device| {
            let [indices] = batch.into_array()?;
            Ok(Tensor::<1, Int>::from_data(indices, device))
        },
    )?;
    assert_eq!(loader.iter().next().expect("a batch")?.device(), Device::flex());
    let moved = loader.to_device(&Device::ndarray());
    let batch = moved.iter().next().expect("a batch")?;
    assert_eq!((batch.device(), batch.dims()), (Device::ndarray(), [4]));
    Ok(())
}

#[test]
fn errors_are_items() -> Result<(), BoxError> {
    let loader = indices(104, false)?;
    let items: Vec<_> = loader.iter().collect();
    assert_eq!((items.len(), items.iter().filter(|item| item.is_err()).count()), (26, 1));
    let error = items[24].as_ref().unwrap_err();
    assert!(format!("{error} {:?}", std::error::Error::source(error)).contains("sample 99 is bad"), "{error}");

    let mut first = loader.iter();
    let error = loader.iter().next().expect("an error").unwrap_err().to_string();
    assert!(error.contains("another iterator of this loader exists"), "{error}");
    assert_eq!(first.next().expect("a batch")?, [0, 1, 2, 3]);
    Ok(())
}

#[test]
fn a_loader_that_cannot_be_built_is_an_error() {
    let build = |batch_size| {
        DataLoader::new(
            from_fn(4, |index, _| Ok(index as i64)),
            &Device::flex(),
            move |builder| builder.batch_size(batch_size),
            |batch, _| Ok(batch),
        )
    };
    assert!(build(2).is_ok());
    assert!(build(0).unwrap_err().to_string().contains("batch_size is 0"));
}
