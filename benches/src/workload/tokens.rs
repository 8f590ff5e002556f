//! The source of `token-crops`: crops of a mapped file of tokens.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};
use memmap2::Mmap;
use slotline::BoxError;
use slotline::dataset::{Context, Dataset, prefetch};
use slotline::loader::BatchOf;
use slotline::sample::{Fields, Row, Sample};

use super::Source;

/// The number of tokens in the file, which is 400 MB long.
const TOKENS: usize = 200_000_000;
/// The number of tokens in x and in y of a crop. y begins one token after x.
pub const CROP: usize = 1_024;
/// The number of crops in a pass.
const CROPS: usize = 16_000;
/// The difference between consecutive tokens, modulo [`MODULUS`].
const STEP: u32 = 7_919;
/// The modulus of the tokens.
const MODULUS: u32 = 50_257;

/// Crops at random places of a file of tokens.
#[derive(Clone, Copy, Debug)]
pub struct Crops {
    tokens: &'static [u16],
}

impl Crops {
    /// Maps `tokens.u16` in `directory`, and makes the file if it does not exist.
    pub fn open(directory: &Path) -> Result<Self> {
        static MAP: OnceLock<Mmap> = OnceLock::new();
        if MAP.get().is_none() {
            let path = directory.join("tokens.u16");
            let map = map(&path).with_context(|| format!("cannot make the token file {}", path.display()))?;
            // Another thread may have mapped the same file in the meantime.
            let _ = MAP.set(map);
        }
        let bytes: &'static [u8] = MAP.get().expect("set above");
        // SAFETY: every pair of bytes is a valid u16.
        let (before, tokens, _) = unsafe { bytes.align_to() };
        ensure!(before.is_empty() && tokens.len() == TOKENS, "the token file has {} bytes", bytes.len());
        Ok(Self { tokens })
    }

    /// Returns the tokens of a crop. All tokens except the last are x, and all except the first are
    /// y.
    #[inline]
    pub fn crop(&self, index: usize) -> &'static [u16] {
        let start = (place(index as u64) % (TOKENS - CROP) as u64) as usize;
        &self.tokens[start..=start + CROP]
    }

    /// Checks that the rows of x and y are consecutive tokens of the file.
    fn compare(x: &[i64], y: &[i64]) -> Result<()> {
        ensure!(x.len() == y.len() && x.len().is_multiple_of(CROP), "x has {} tokens and y has {}", x.len(), y.len());
        let next = |token: i64| (token + i64::from(STEP)) % i64::from(MODULUS);
        for (x, y) in x.chunks_exact(CROP).zip(y.chunks_exact(CROP)) {
            ensure!(x[1..] == y[..CROP - 1], "y is not x shifted by one");
            ensure!(x.iter().zip(y).all(|(&x, &y)| y == next(x)), "the tokens differ from the file");
        }
        Ok(())
    }
}

/// Returns a pseudo-random number for an index (splitmix64), which scatters the crops over the
/// file.
fn place(index: u64) -> u64 {
    let mut x = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Makes the file if it does not exist, and maps it with all its pages in memory.
fn map(path: &Path) -> Result<Mmap> {
    if !path.exists() {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let mut token = 0;
        for _ in 0..TOKENS {
            file.write_all(&(token as u16).to_ne_bytes())?;
            token = (token + STEP) % MODULUS;
        }
        file.flush()?;
    }
    // SAFETY: only this program uses the file, and it does not write to it after this point.
    let map = unsafe { Mmap::map(&File::open(path)?)? };
    // Reads every page once, so that no pass is the first to read one.
    std::hint::black_box(map.iter().step_by(4096).map(|&byte| u64::from(byte)).sum::<u64>());
    Ok(map)
}

/// Returns the sum of the first token of each row.
#[inline]
fn first_tokens(x: &[i64]) -> u64 {
    x.iter().step_by(CROP).sum::<i64>() as u64
}

impl Source for Crops {
    type Item = &'static [u16];
    type Batch = (Vec<i64>, Vec<i64>);
    type Data = Self;

    fn len(&self) -> usize {
        CROPS
    }

    #[inline]
    fn get(&self, index: usize) -> &'static [u16] {
        self.crop(index)
    }

    #[inline]
    fn collate(&self, items: impl ExactSizeIterator<Item = Self::Item>) -> Self::Batch {
        let mut x = Vec::with_capacity(items.len() * CROP);
        let mut y = Vec::with_capacity(items.len() * CROP);
        for crop in items {
            x.extend(crop[..CROP].iter().map(|&token| i64::from(token)));
            y.extend(crop[1..].iter().map(|&token| i64::from(token)));
        }
        (x, y)
    }

    #[inline]
    fn check(&self, (x, _): &Self::Batch) -> u64 {
        first_tokens(x)
    }

    fn verify(&self, (x, y): &Self::Batch) -> Result<()> {
        Self::compare(x, y)
    }

    fn dataset(&self) -> Self {
        *self
    }

    #[inline]
    fn check_ours(&self, batch: &BatchOf<Self>) -> u64 {
        first_tokens(batch.tensors().0.as_slice())
    }

    fn verify_ours(&self, batch: &BatchOf<Self>) -> Result<()> {
        let (x, y) = batch.tensors();
        Self::compare(x.as_slice(), y.as_slice())
    }

    fn total(&self) -> u64 {
        (0..CROPS).map(|index| u64::from(self.crop(index)[0])).sum()
    }
}

/// A crop as a sample, which converts its tokens to i64 when it is written to its row: x and y.
#[derive(Clone, Copy, Debug)]
pub struct Crop(&'static [u16]);

impl Sample for Crop {
    type Schema = (i64, i64);

    fn declare(&self, fields: &mut Fields) {
        fields.fixed(slotline::dtype::DType::I64, &[CROP]);
        fields.fixed(slotline::dtype::DType::I64, &[CROP]);
    }

    #[inline]
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        for tokens in [&self.0[..CROP], &self.0[1..]] {
            let wide = row.fill::<i64>(&[CROP])?;
            wide.iter_mut().zip(tokens).for_each(|(to, &token)| *to = i64::from(token));
        }
        Ok(())
    }
}

impl Dataset for Crops {
    type Sample<'a> = Crop;

    fn len(&self) -> usize {
        CROPS
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Crop, BoxError> {
        Ok(Crop(self.crop(index)))
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        prefetch(self.crop(index));
    }
}
