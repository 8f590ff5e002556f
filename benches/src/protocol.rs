//! The protocol of peers that are separate programs.
//!
//! The program is started once for each variant of a workload and number of workers, with pipes for
//! its input and output:
//!
//! ```text
//! PROGRAM [--peer NAME] --workload small-images --workers 1 --data DIR
//! ```
//!
//! The program makes the workload's data, builds its loader, runs one pass to warm up, and prints
//! one of these lines:
//!
//! ```text
//! {"ready":true,"peer":"libtorch","version":"2.8.0"}
//! {"absent":"why it does not support this"}     (it then exits with status 0)
//! ```
//!
//! Then, for each line `pass` in its input, it runs one pass, measures the time from the request to
//! the end of the pass, and prints a line:
//!
//! ```text
//! {"batches":938,"seconds":0.0123,"check":1799970000}
//! ```
//!
//! At a line `quit`, or at the end of its input, it exits. Its stderr is shown only if it fails.
//!
//! | Workload | Data | A pass | `check` is the sum of the |
//! |---|---|---|---|
//! | empty-items | item i is i, as i64; 200,000 items, or fewer if the peer is slow | in order, batches of 1 | items |
//! | small-images | 60,000 × 28 × 28 bytes, byte i of all is i × 31 mod 251; label j is j, as i64 | shuffled, batches of 64 | labels |
//! | large-images | 2,000 × 3 × 224 × 224 bytes, with the same values | shuffled, batches of 32 | labels |
//! | token-crops | `DIR/tokens.u16`, 400 MB, token i is i × 7919 mod 50257, mapped; x and y are 1,024 tokens as i64, y shifted by one | 16,000 random places, batches of 16 | first x of each row |
//! | first-batch | the data of large-images, made in advance | from building the loader to its first batch; `batches` is 1 | labels |
//! | slow-samples-8, slow-samples-1 | 200 items as in empty-items; those whose index is a multiple of 16 take 50 ms of sleep, the others 1 ms | in order, batches of 8, of 1 | items |
//! | slow-samples-8-arrival, slow-samples-1-arrival | the items of slow-samples-8 | batches of 8, of 1, delivered as they are finished | items |
//! | slow-samples-1-prefetch-16 | the items of slow-samples-8 | in order, batches of 1, 16 loaded ahead for each worker | items |
//!
//! The workloads of transformed pictures (jpeg-crops-small, jpeg-crops-large, pngs and
//! rand-augment) are described in `peers/python/pictures.py`, and those of sequences (packing and
//! padding) in `peers/python/sequences.py`. Those of Python loaders are described in
//! `peers/python/loader.py`; their checksum is the number of samples.
//!
//! In `batches`, a last batch that is not full counts as one batch. Except in
//! slow-samples-1-prefetch-16, loaders prefetch as much as they do by default. Crop k of
//! token-crops starts at splitmix64(k) modulo (number of tokens - 1,024). If a `PROGRAM` implements
//! several peers, `--peer` selects one.

use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use serde::{Deserialize, Serialize};

use crate::rounds::{Contender, Pass};

/// The arguments of a program.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
pub struct Request {
    /// The workload's name.
    #[arg(long)]
    pub workload: String,
    /// The number of workers.
    #[arg(long)]
    pub workers: usize,
    /// The folder of the data files.
    #[arg(long)]
    pub data: PathBuf,
}

impl Request {
    /// Returns the command-line arguments.
    pub fn arguments(&self) -> [OsString; 6] {
        let (workload, workers) = (self.workload.clone(), self.workers.to_string());
        let data = self.data.clone().into();
        ["--workload".into(), workload.into(), "--workers".into(), workers.into(), "--data".into(), data]
    }
}

/// A line that a program prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reply {
    /// The reply of a program that does not support the request.
    Absent {
        /// The reason.
        absent: String,
    },
    /// The reply of a program that is warm.
    Ready {
        /// Always true.
        ready: bool,
        /// The name of the peer.
        peer: String,
        /// The version of the peer.
        version: String,
    },
    /// The reply after a pass.
    Pass(Answer),
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The number of batches.
    pub batches: u64,
    /// The time of the pass, in seconds.
    pub seconds: f64,
    /// The checksum of the contents.
    pub check: u64,
}

/// Runs the program's side of the protocol: builds the requested loader with `make`, and answers
/// requests until `quit`.
pub fn serve<P>(peer: &str, version: &str, make: impl FnOnce() -> Result<P>) -> Result<()>
where
    P: FnMut() -> Result<Answer>,
{
    let mut output = std::io::stdout().lock();
    let mut print = |reply: &Reply| -> Result<()> {
        writeln!(output, "{}", serde_json::to_string(reply)?)?;
        Ok(output.flush()?)
    };
    let mut pass = match make() {
        Ok(pass) => pass,
        Err(why) => return print(&Reply::Absent { absent: format!("{why:#}") }),
    };
    pass()?;
    print(&Reply::Ready { ready: true, peer: peer.into(), version: version.into() })?;
    for line in std::io::stdin().lock().lines() {
        match line?.trim() {
            "pass" => print(&Reply::Pass(pass()?))?,
            _ => break,
        }
    }
    Ok(())
}

/// Like [`serve`], for a contender that compares the checksum itself. `make` also returns that
/// checksum.
pub fn serve_contender(peer: &str, make: impl FnOnce() -> Result<(Contender, u64)>) -> Result<()> {
    serve(peer, env!("CARGO_PKG_VERSION"), || {
        let (mut contender, check) = make()?;
        Ok(move || {
            let Pass { batches, seconds } = contender()?;
            Ok(Answer { batches: batches.ceil() as u64, seconds, check })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_round_trip() {
        let request = Request { workload: "slow-samples-8".into(), workers: 2, data: "/tmp/x".into() };
        let parsed = Request::parse_from([OsString::from("program")].into_iter().chain(request.arguments()));
        assert_eq!(parsed, request);
    }

    #[test]
    fn replies_are_distinguished_by_their_fields() {
        let parse = |text| serde_json::from_str::<Reply>(text).unwrap();
        assert_eq!(parse(r#"{"absent":"no"}"#), Reply::Absent { absent: "no".into() });
        assert!(matches!(parse(r#"{"ready":true,"peer":"p","version":"1"}"#), Reply::Ready { .. }));
        let pass = parse(r#"{"batches":3,"seconds":0.5,"check":7}"#);
        assert_eq!(pass, Reply::Pass(Answer { batches: 3, seconds: 0.5, check: 7 }));
    }
}
