//! Fill-in-the-middle: [`Fim`].

use slotline::rng::rand_core::Rng;

/// A map that rearranges documents so that a model learns to fill in their middle (Bavarian et al.,
/// "Efficient Training of Language Models to Fill in the Middle", arXiv 2207.14255; the defaults
/// and the order of tokens are StarCoder's).
///
/// A document is cut at two random places into prefix, middle and suffix, each of which may be
/// empty, and becomes
///
/// | | |
/// |---|---|
/// | PSM | `<prefix>` prefix `<suffix>` suffix `<middle>` middle |
/// | SPM | `<prefix>` `<suffix>` suffix `<middle>` prefix middle |
///
/// so it gets three more tokens. The cuts are between tokens; StarCoder cuts between characters and
/// tokenizes again.
///
/// ```
/// use slotline::dataset::{Dataset, from_fn};
/// use slotline::sample::PaddedToLongest;
/// use slotline_sequences::tokens::{Fim, FimTokens};
///
/// let texts = from_fn(100, |index, _| Ok(PaddedToLongest::owned((100..110 + index as i64).collect(), 256)));
/// let fim = Fim::new(FimTokens { prefix: 1, suffix: 2, middle: 3 }).rate(0.9)?;
/// let texts = texts.map(move |text, cx| {
///     let mut rearranged = Vec::new();
///     fim.apply(text.as_slice(), cx.rng(), &mut rearranged);
///     Ok(PaddedToLongest::owned(rearranged, 256))
/// });
/// let mut loader = slotline::Loader::builder(texts).batch_size(100).seed(42).build()?;
/// let batch = loader.epoch()?.next().expect("a batch")?;
/// let changed = (0..100).filter(|&row| batch.tensors().row(row)[0] == 1).count();
/// assert!((80..100).contains(&changed));
/// # Ok::<(), slotline::BoxError>(())
/// ```
///
/// If the random numbers are drawn from [`Context::rng`](slotline::dataset::Context::rng), the
/// result depends on the document's position in the pass, not on workers or ranks. Documents that
/// are packed must keep their lengths: use [`keep_length`](Self::keep_length).
#[derive(Clone, Debug)]
pub struct Fim<T> {
    tokens: FimTokens<T>,
    rate: f64,
    spm_rate: f64,
    keep_length: bool,
}

/// The tokens that mark the parts of a document, for example `<fim_prefix>`, `<fim_suffix>` and
/// `<fim_middle>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FimTokens<T> {
    /// The first token of a rearranged document. With PSM, the prefix follows it.
    pub prefix: T,
    /// The token before the suffix.
    pub suffix: T,
    /// The token before the middle (PSM), or before prefix and middle (SPM).
    pub middle: T,
}

/// The error of [`Fim`]: a rate is not from 0 to 1.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("Fim: {option} is {value}; set it to a number from 0 to 1")]
pub struct FimError {
    option: &'static str,
    value: f64,
}

impl<T: Copy> Fim<T> {
    /// Makes a map that rearranges half of the documents, half of these as PSM and half as SPM.
    pub fn new(tokens: FimTokens<T>) -> Self {
        Self { tokens, rate: 0.5, spm_rate: 0.5, keep_length: false }
    }

    /// Sets the share of documents that are rearranged; 0.5 by default (StarCoder's `fim_rate`).
    ///
    /// # Errors
    ///
    /// If `rate` is not from 0 to 1.
    pub fn rate(self, rate: f64) -> Result<Self, FimError> {
        Ok(Self { rate: checked("rate", rate)?, ..self })
    }

    /// Sets the share of rearranged documents that become SPM instead of PSM; 0.5 by default
    /// (StarCoder's `fim_spm_rate`).
    ///
    /// # Errors
    ///
    /// If `spm_rate` is not from 0 to 1.
    pub fn spm_rate(self, spm_rate: f64) -> Result<Self, FimError> {
        Ok(Self { spm_rate: checked("spm_rate", spm_rate)?, ..self })
    }

    /// Sets whether a document keeps its length; false by default. If true, the end of the
    /// document's suffix is left out to make room for the three tokens, and a document whose suffix
    /// is too short for that is left as it is. (StarCoder's `fim_truncate_or_pad`.)
    #[must_use]
    pub fn keep_length(self, keep_length: bool) -> Self {
        Self { keep_length, ..self }
    }

    /// Writes a document to `to`, rearranged or not. The previous contents of `to` are replaced.
    ///
    /// This draws one random number, and if the document is rearranged, three more: two for the
    /// places of the cuts and one for the form.
    pub fn apply(&self, document: &[T], rng: &mut impl Rng, to: &mut Vec<T>) {
        to.clear();
        let drawn = happens(self.rate, rng).then(|| {
            let mut cuts = [0; 2].map(|_: usize| below(document.len() + 1, rng));
            cuts.sort_unstable();
            (cuts, happens(self.spm_rate, rng))
        });
        let Some(([start, end], is_spm)) = drawn else { return to.extend_from_slice(document) };
        let (prefix, middle, mut suffix) = (&document[..start], &document[start..end], &document[end..]);
        if self.keep_length {
            match suffix.len().checked_sub(3) {
                Some(kept) => suffix = &suffix[..kept],
                None => return to.extend_from_slice(document),
            }
        }
        to.push(self.tokens.prefix);
        if !is_spm {
            to.extend_from_slice(prefix);
        }
        to.push(self.tokens.suffix);
        to.extend_from_slice(suffix);
        to.push(self.tokens.middle);
        if is_spm {
            to.extend_from_slice(prefix);
        }
        to.extend_from_slice(middle);
    }
}

fn checked(option: &'static str, value: f64) -> Result<f64, FimError> {
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(FimError { option, value }) }
}

/// Returns true with this probability.
fn happens(probability: f64, rng: &mut impl Rng) -> bool {
    // Uses 53 bits, the precision of an `f64`.
    ((rng.next_u64() >> 11) as f64) < probability * (1_u64 << 53) as f64
}

/// Draws a number below `n`.
fn below(n: usize, rng: &mut impl Rng) -> usize {
    // The upper half of the product; the probability of a number is off by at most n / 2^64.
    ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotline::rng::SampleRng;

    const TOKENS: FimTokens<i32> = FimTokens { prefix: -1, suffix: -2, middle: -3 };

    /// Splits a rearranged document into prefix, middle and suffix; `None` if it was not
    /// rearranged.
    fn parts(of: &[i32]) -> Option<[Vec<i32>; 3]> {
        let at = |token| of.iter().position(|&other| other == token);
        let (0, suffix, middle) = (at(-1)?, at(-2)?, at(-3)?) else { return None };
        let [first, second, rest] = [&of[1..suffix], &of[suffix + 1..middle], &of[middle + 1..]].map(<[i32]>::to_vec);
        Some([first, rest, second])
    }

    #[test]
    fn documents_can_be_put_together_again() {
        let fim = Fim::new(TOKENS).rate(1.0).unwrap();
        let mut out = vec![7];
        for length in [0, 1, 2, 50] {
            let document: Vec<i32> = (0..length).collect();
            for (spm_rate, is_spm) in [(0.0, false), (1.0, true)] {
                let fim = fim.clone().spm_rate(spm_rate).unwrap();
                let mut starts = std::collections::BTreeSet::new();
                for position in 0..200 {
                    fim.apply(&document, &mut SampleRng::new(1, 0, position), &mut out);
                    let [prefix, middle, suffix] = parts(&out).expect("three parts");
                    let together: Vec<i32> = [prefix.clone(), middle, suffix].concat();
                    assert_eq!((together, out.len()), (document.clone(), document.len() + 3));
                    assert!(!is_spm || prefix.is_empty());
                    starts.insert(prefix.len());
                }
                assert!(is_spm || starts.len() > length.min(30) as usize, "{starts:?}");
            }
        }
    }

    #[test]
    fn a_length_is_kept_by_cutting_the_suffix() {
        let fim = Fim::new(TOKENS).rate(1.0).unwrap().spm_rate(0.0).unwrap().keep_length(true);
        let document: Vec<i32> = (0..20).collect();
        let mut changed = 0;
        let mut out = Vec::new();
        for position in 0..300 {
            fim.apply(&document, &mut SampleRng::new(2, 0, position), &mut out);
            assert_eq!(out.len(), document.len());
            if let Some(parts) = parts(&out) {
                assert_eq!(parts.concat(), document[..17]);
                changed += 1;
            } else {
                assert_eq!(out, document);
            }
        }
        assert!((150..280).contains(&changed), "{changed}");
        fim.apply(&[1, 2], &mut SampleRng::new(2, 0, 0), &mut out);
        assert_eq!(out, [1, 2]);
    }

    #[test]
    fn rates_are_shares_of_the_documents() {
        let fim = Fim::new(TOKENS).rate(0.3).unwrap();
        let document: Vec<i32> = (0..1000).collect();
        let mut out = Vec::new();
        let (mut changed, mut spm) = (0, 0);
        for position in 0..4000 {
            fim.apply(&document, &mut SampleRng::new(3, 0, position), &mut out);
            changed += usize::from(out.len() == 1003);
            spm += usize::from(out[..2] == [-1, -2]);
        }
        assert!((1100..1300).contains(&changed) && (520..680).contains(&spm), "{changed} {spm}");
        fim.clone().rate(0.0).unwrap().apply(&document, &mut SampleRng::new(3, 0, 1), &mut out);
        assert_eq!(out, document);
    }

    #[test]
    fn a_rate_that_is_none_is_an_error() {
        for value in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let error = Fim::new(TOKENS).rate(value).unwrap_err().to_string();
            assert!(error.contains("Fim: rate is") && error.contains("from 0 to 1"), "{error}");
            assert!(Fim::new(TOKENS).spm_rate(value).unwrap_err().to_string().contains("spm_rate"));
        }
    }
}
