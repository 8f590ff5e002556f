//! Runs that share each pass with other ranks.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::program::{failure, slotline, stdout};

/// Returns the indices of all batches from the output of `order`.
fn indices(text: &str) -> Vec<i64> {
    let batches = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let lists = batches.map(|batch| batch["indices"].as_array().expect("a list").clone());
    lists.flat_map(|list| list.into_iter().map(|index| index.as_i64().expect("an index"))).collect()
}

fn in_turn(shares: &[Vec<i64>]) -> Vec<i64> {
    (0..shares[0].len()).flat_map(|i| shares.iter().map(move |share| share[i])).collect()
}

#[test]
fn ranks_share_the_order() {
    let order = |flags: &str| indices(&stdout(&format!("order --len 20 --batch-size 3 --shuffle --seed 5 {flags}")));
    let alone = order("--rank 0 --world-size 1");
    assert_eq!(alone.iter().collect::<BTreeSet<_>>().len(), 20);
    let shares: Vec<_> = (0..4).map(|rank| order(&format!("--rank {rank} --world-size 4"))).collect();
    assert_eq!(in_turn(&shares), alone);

    let run = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slotline"));
        command.args("order --len 20 --batch-size 3 --shuffle --seed 5 --ranks env".split(' '));
        for name in ["RANK", "WORLD_SIZE", "SLURM_PROCID", "PMI_RANK", "OMPI_COMM_WORLD_RANK"] {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied()).output().expect("the program starts")
    };
    let found = run(&[("RANK", "2"), ("WORLD_SIZE", "4")]);
    assert_eq!(String::from_utf8_lossy(&found.stderr), "rank 2 of 4 (RANK and WORLD_SIZE of torchrun)\n");
    assert_eq!(indices(std::str::from_utf8(&found.stdout).unwrap()), shares[2]);
    let none = run(&[]);
    assert_eq!(String::from_utf8_lossy(&none.stderr), "rank 0 of 1 (no launcher has set its variables)\n");
    assert_eq!(indices(std::str::from_utf8(&none.stdout).unwrap()), alone);
    let half = run(&[("RANK", "2")]);
    assert!(!half.status.success() && String::from_utf8_lossy(&half.stderr).contains("RANK but not WORLD_SIZE"));
}

#[test]
fn merged_states_are_resumed_by_other_ranks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let run = "digits --batch-size 16 --shuffle --seed 7";
    for rank in 0..2 {
        stdout(&format!("feed {run} --rank {rank} --world-size 2 --state {}", path(&format!("rank{rank}.json"))));
    }
    let (first, second, merged) = (path("rank0.json"), path("rank1.json"), path("merged.json"));
    let said = stdout(&format!("state merge {first} {second} --output {merged}"));
    assert_eq!(said, "merged 2 states: pass 1, 0 batches delivered\n");
    let pass = |rank, world_size, resume: &str| {
        let log = path(&format!("log{rank}of{world_size}{}", resume.len()));
        stdout(&format!("feed {run} --epochs 2 --rank {rank} --world-size {world_size} --log {log} {resume}"));
        let text = std::fs::read_to_string(log).expect("a log");
        indices(&text.lines().filter(|line| line.contains("\"epoch\":1")).collect::<Vec<_>>().join("\n"))
    };
    let alone = pass(0, 1, "");
    let shares: Vec<_> = (0..3).map(|rank| pass(rank, 3, &format!("--resume {merged}"))).collect();
    assert_eq!(in_turn(&shares)[..alone.len()], alone);

    stdout(&format!("feed {run} --epochs 2 --rank 1 --world-size 2 --state {second}"));
    let (_, error) = failure(&format!("state merge {first} {second} --output {merged}"));
    assert!(error.contains("state 1 is of pass 2 after 0 batches, but the first one of pass 1 after 0"), "{error}");
    assert!(!slotline(&format!("state merge {} --output {merged}", path("none"))).status.success());
}

#[test]
fn impossible_ranks_are_errors() {
    let (_, error) = failure("order --rank 2 --world-size 2");
    assert!(error.contains("rank 2 is not one of 2"), "{error}");
    let (code, error) = failure("order --rank 2");
    assert!(code == 2 && error.contains("--world-size"), "{error}");
}
