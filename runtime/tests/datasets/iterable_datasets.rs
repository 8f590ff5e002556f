//! Tests of iterable datasets without a loader, which call their cursors as a worker does.

use std::io::{BufRead, BufReader, Cursor};
use std::sync::Arc;

use slotline::dataset::{ChainDataset, Context, IterableDataset, iter_fn};
use slotline::{BoxError, Loader, WorkerInfo};

/// Returns the rest of a pass: the result of `look` for each sample, and errors as text.
fn rest<D: IterableDataset, T>(
    dataset: &D,
    cursor: &mut D::Cursor,
    look: impl for<'a> Fn(D::Sample<'a>) -> T,
) -> Vec<Result<T, String>> {
    let (mut cx, mut got) = (Context::default(), Vec::new());
    loop {
        match dataset.next(cursor, &mut cx) {
            Ok(Some(sample)) => got.push(Ok(look(sample))),
            Ok(None) => return got,
            Err(error) => got.push(Err(error.to_string())),
        }
        assert!(got.len() < 1_000, "the pass does not end");
    }
}

/// Returns a whole pass; see [`rest`].
fn pass<D: IterableDataset, T>(dataset: &D, look: impl for<'a> Fn(D::Sample<'a>) -> T) -> Vec<Result<T, String>> {
    rest(dataset, &mut dataset.iter(None).unwrap(), look)
}

/// A dataset of the lines of a text, borrowed from the cursor that reads them. The line "?" cannot
/// be read, and the text "!" cannot be opened.
#[derive(Clone)]
struct Lines(&'static str);

struct Reading {
    from: BufReader<Cursor<&'static str>>,
    line: String,
}

impl IterableDataset for Lines {
    type Sample<'a> = &'a [u8];
    type Cursor = Reading;

    fn iter(&self, _: Option<WorkerInfo>) -> Result<Reading, BoxError> {
        if self.0 == "!" {
            return Err("the text is missing".into());
        }
        Ok(Reading { from: BufReader::new(Cursor::new(self.0)), line: String::new() })
    }

    fn next<'a>(&'a self, at: &'a mut Reading, _: &'a mut Context) -> Result<Option<&'a [u8]>, BoxError> {
        at.line.clear();
        if at.from.read_line(&mut at.line)? == 0 {
            return Ok(None);
        }
        match at.line.trim_end() {
            "?" => Err("cannot be read".into()),
            line => Ok(Some(line.as_bytes())),
        }
    }
}

/// A dataset of two samples of bytes: the first is borrowed from the dataset, and the second from
/// the context.
struct Bytes(Vec<u8>);

impl IterableDataset for Bytes {
    type Sample<'a> = &'a [u8];
    type Cursor = usize;

    fn iter(&self, _: Option<WorkerInfo>) -> Result<usize, BoxError> {
        Ok(0)
    }

    fn next<'a>(&'a self, given: &'a mut usize, cx: &'a mut Context) -> Result<Option<&'a [u8]>, BoxError> {
        *given += 1;
        Ok(match *given {
            1 => Some(&self.0),
            2 => {
                let copy = cx.buffer::<u8>(self.0.len());
                copy.copy_from_slice(&self.0);
                copy.reverse();
                Some(copy)
            }
            _ => None,
        })
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8(line.to_vec()).unwrap()
}

fn lines(want: &[Result<&str, &str>]) -> Vec<Result<String, String>> {
    want.iter().map(|line| line.map(str::to_owned).map_err(str::to_owned)).collect()
}

#[test]
fn chains_pass_borrowed_samples_through() {
    let want = lines(&[Ok("a"), Ok("b"), Ok("xyz"), Ok("zyx"), Ok("c")]);
    let mixed = Lines("a\nb").chain(Bytes(b"xyz".to_vec())).chain(ChainDataset::new([Lines(""), Lines("c")]));
    assert_eq!(pass(&mixed, text), want);
    assert_eq!(pass(&Arc::new(mixed), text), want);
}

#[test]
fn an_error_in_a_chain_loses_no_other_sample() {
    let want = lines(&[Ok("a"), Err("cannot be read"), Ok("b"), Err("cannot be read"), Ok("c")]);
    assert_eq!(pass(&ChainDataset::new([Lines("a\n?\nb\n?"), Lines("c")]), text), want);
    assert_eq!(pass(&Lines("a\n?\nb").chain(Lines("?\nc")), text), want);
}

#[test]
fn a_chain_continues_after_a_dataset_that_cannot_start() {
    let (missing, a) = (|| Lines("!"), || Lines("a"));
    let error = Err("the text is missing");
    for (datasets, want) in [
        (vec![a(), missing(), a()], vec![Ok("a"), error, Ok("a")]),
        (vec![missing(), a()], vec![error, Ok("a")]),
        (vec![a(), missing()], vec![Ok("a"), error]),
        (vec![missing(), missing()], vec![error, error]),
    ] {
        let want = lines(&want);
        if let [first, second] = &datasets[..] {
            assert_eq!(pass(&first.clone().chain(second.clone()), text), want);
        }
        assert_eq!(pass(&ChainDataset::new(datasets), text), want);
    }
    let nested = missing().chain(a()).chain(missing().chain(a()));
    assert_eq!(pass(&nested, text), lines(&[error, Ok("a"), error, Ok("a")]));
}

#[test]
fn an_empty_chain_has_no_samples() {
    let none = ChainDataset::<Lines>::new([]);
    assert_eq!(pass(&none, text), []);
    assert_eq!((none.len(), none.is_empty(), none.datasets().len()), (Some(0), true, 0));
}

#[test]
fn a_chain_has_a_length_if_all_its_parts_have_one() {
    let of = |len: usize| iter_fn(|_| Ok([0_i64].map(Ok))).with_len(len);
    let unknown = || iter_fn(|_| Ok([0_i64].map(Ok)));
    assert_eq!((of(3).len(), unknown().len(), Arc::new(of(3)).len()), (Some(3), None, Some(3)));
    assert_eq!(ChainDataset::new(vec![of(3), of(0), of(4)]).len(), Some(7));
    assert_eq!(of(usize::MAX).chain(of(0)).len(), Some(usize::MAX));
    assert_eq!((of(usize::MAX).chain(of(1)).len(), ChainDataset::new([of(2), of(usize::MAX)]).len()), (None, None));
    assert_eq!((of(1).chain(unknown()).len(), unknown().chain(of(1)).len()), (None, None));
    assert!(of(0).chain(of(0)).is_empty() && !of(0).chain(unknown()).is_empty());
}

#[test]
fn cursors_are_independent_and_can_change_threads() {
    let chain = Arc::new(Lines("a\nb").chain(Lines("c\nd")));
    let mut cx = Context::default();
    let (mut one, mut other) = (chain.iter(None).unwrap(), chain.iter(None).unwrap());
    for want in ["a", "b", "c"] {
        assert_eq!(chain.next(&mut one, &mut cx).unwrap(), Some(want.as_bytes()));
    }
    assert_eq!(chain.next(&mut other, &mut cx).unwrap(), Some(&b"a"[..]));
    let there = Arc::clone(&chain);
    let left = std::thread::spawn(move || rest(&*there, &mut one, text)).join().unwrap();
    assert_eq!(left, lines(&[Ok("d")]));
    assert_eq!(rest(&*chain, &mut other, text), lines(&[Ok("b"), Ok("c"), Ok("d")]));
}

#[test]
fn iter_fn_calls_its_function_once_per_pass() {
    let numbers = iter_fn(|_| Ok([Ok(1_i64), Err("two".into()), Ok(3)]));
    for _ in 0..2 {
        assert_eq!(pass(&numbers, |n| n), [Ok(1), Err("two".into()), Ok(3)]);
    }
    let failing = iter_fn(|_| Err::<[Result<i64, BoxError>; 0], _>("no start".into()));
    assert_eq!(failing.iter(None).err().unwrap().to_string(), "no start");
}

#[test]
fn small_batches_of_a_loader_are_read_further_ahead() {
    let depth = |batch_size, prefetch_factor: Option<usize>| {
        let builder = Loader::iterable(iter_fn(|_| Ok((0..100_i64).map(Ok)))).batch_size(batch_size).num_workers(2);
        let builder = match prefetch_factor {
            Some(batches) => builder.prefetch_factor(batches),
            None => builder,
        };
        builder.build().unwrap().depth()
    };
    assert_eq!(depth(1, None), depth(1, Some(32)));
    assert_eq!(depth(100_000, None), depth(100_000, Some(2)));
}
