//! Tests that loaders with bad samples resume as if they had not been interrupted: bad samples are
//! skipped or replaced in the same way, and the limit on their number counts the whole pass,
//! including the bad samples before the interruption.

use proptest::prelude::*;
use slotline::dataset::{Context, Dataset};
use slotline::loader::{BatchOf, Budget, OnError, Overflow};
use slotline::rng::rand_core::Rng;
use slotline::sample::{Fields, Packed, Row, Sample, Text};
use slotline::{BoxError, Loader};

use crate::resumed::*;
use crate::support::{pixels, sleep_sometimes};

/// The ways in which a sample fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Error,
    Panic,
    /// Fails after writing part of its row.
    Write,
    WritePanic,
    Mismatch,
}

const FAULTS: [Fault; 5] = [Fault::Error, Fault::Panic, Fault::Write, Fault::WritePanic, Fault::Mismatch];

/// A sample with fields of each kind. If there are packed fields, they are often too long.
struct Sheet {
    index: usize,
    word: u64,
    packed: bool,
    fault: Option<Fault>,
}

impl Sample for Sheet {
    type Schema = i64;

    fn declare(&self, fields: &mut Fields) {
        (0_i64, [[0_u8; 3]; 2], 0_u64, Text::new("", 9)).declare(fields);
        if self.packed {
            (Packed::new(&[0_u16], 4), Packed::new(&[0_u8], 4)).declare(fields);
        }
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let text = &"a sample's text"[self.index % 6..][..self.index % 10];
        (self.index as i64, pixels(self.index), self.word, Text::new(text, 9)).write(row)?;
        if self.packed {
            Packed::new(&[self.index as u16; 40][..self.index % 40 / (1 + self.index % 3)], 4).write(row)?;
        }
        match self.fault {
            Some(Fault::Write) => return Err("torn".into()),
            Some(Fault::WritePanic) => panic!("torn"),
            Some(Fault::Mismatch) => return [0_f32; 2].write(row),
            _ => {}
        }
        if self.packed { Packed::new(text.as_bytes(), 4).write(row) } else { Ok(()) }
    }
}

/// The choice of bad samples, and the options for them.
#[derive(Clone, Debug)]
struct Bad {
    /// One in this many samples is bad. `salt` selects them.
    one_in: usize,
    salt: usize,
    on_error: OnError,
    packed: bool,
    spill: bool,
}

struct Sheets {
    len: usize,
    bad: Bad,
    sleeps: bool,
    many: bool,
}

impl Dataset for Sheets {
    type Sample<'a> = Sheet;

    fn len(&self) -> usize {
        self.len
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Sheet, BoxError> {
        if self.sleeps {
            sleep_sometimes(index, cx);
        }
        let Bad { one_in, salt, packed, .. } = self.bad;
        let word = index.wrapping_add(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let fault = word.is_multiple_of(one_in).then(|| FAULTS[word / one_in % FAULTS.len()]);
        match fault {
            Some(Fault::Error) => Err("bad".into()),
            Some(Fault::Panic) => panic!("worse"),
            _ => Ok(Sheet { index, word: cx.rng().next_u64() ^ cx.position(), packed, fault }),
        }
    }

    fn reads_many(&self) -> bool {
        self.many
    }

    fn prefetch(&self, index: usize) {
        assert!(self.bad.on_error == OnError::Raise || index % 23 != 5, "prefetch fails");
    }

    fn fields(&self) -> Option<Fields> {
        Some(Fields::of(&Sheet { index: 0, word: 0, packed: self.bad.packed, fault: None }))
    }
}

fn bad(budget: impl Strategy<Value = usize>) -> impl Strategy<Value = Bad> {
    let on_error = (budget, 0..5).prop_map(|(budget, kind)| match kind {
        0 => OnError::Raise,
        1 | 2 => OnError::Skip(Budget::Samples(budget)),
        _ => OnError::Replace(Budget::Samples(budget)),
    });
    (1_usize..12, any::<usize>(), on_error, any::<bool>(), any::<bool>())
        .prop_map(|(one_in, salt, on_error, packed, spill)| Bad { one_in, salt, on_error, packed, spill })
}

/// Returns a function that builds loaders over a dataset with bad samples.
fn over(bad: &Bad) -> impl Fn(&What, &How) -> Loader<BatchOf<Sheets>> + use<> {
    let bad = bad.clone();
    move |what, how| {
        let (sleeps, many) = (!how.in_order, how.prefetch == 2);
        let builder = Loader::builder(Sheets { len: what.len, bad: bad.clone(), sleeps, many }).on_error(bad.on_error);
        let builder = if bad.spill { builder.on_overflow(Overflow::Spill) } else { builder };
        // Worker processes cannot spill, that is, take memory from the heap for a batch that is too
        // long.
        let processes = how.processes && !bad.spill;
        let part_size = how.part_size.filter(|_| !bad.packed);
        build_from(builder, what, &How { part_size, processes, ..how.clone() })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn an_interrupted_run_equals_an_uninterrupted_one(
        what in what(),
        parts in parts(true),
        last in how(true),
        bad in bad(prop_oneof![0_usize..20, Just(usize::MAX)]),
    ) {
        let delivered = interrupted_by(&what, &parts, &last, over(&bad));
        prop_assert_eq!(delivered, uninterrupted_by(&what, over(&bad)));
    }

    #[test]
    fn out_of_order_each_batch_arrives_once(
        what in what(),
        parts in parts(false),
        last in how(true),
        bad in bad(Just(usize::MAX)),
    ) {
        let mut delivered = interrupted_by(&what, &parts, &last, over(&bad));
        delivered.sort_by_key(Outcome::key);
        prop_assert_eq!(delivered, uninterrupted_by(&what, over(&bad)));
    }
}
