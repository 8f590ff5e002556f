//! Sets the cfg `processes` on platforms that support worker processes.

use std::env::var_os;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(processes)");
    // Worker processes need Linux's futexes and `fork`, and model checkers can only replace threads.
    let is_modelled = ["CARGO_CFG_SHUTTLE", "CARGO_CFG_DELAYS"].into_iter().any(|name| var_os(name).is_some());
    if var_os("CARGO_CFG_TARGET_OS").is_some_and(|os| os == "linux") && !is_modelled {
        println!("cargo::rustc-cfg=processes");
    }
}
