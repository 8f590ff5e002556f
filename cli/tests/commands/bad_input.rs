//! Bad input ends the program with a message that names the cause: exit code 1, or 2 for a wrong command line.

use std::fs;

use crate::program::failure;

#[track_caller]
fn fails(arguments: &str, code: i32, parts: &[&str]) {
    let (got, message) = failure(arguments);
    assert_eq!(got, code, "slotline {arguments}: {message}");
    for part in parts {
        assert!(message.contains(part), "slotline {arguments}: no {part:?} in {message:?}");
    }
}

#[test]
fn wrong_command_lines_are_usage_errors() {
    fails("", 2, &["Usage"]);
    fails("teach", 2, &["teach"]);
    fails("feed", 2, &["<SOURCE>"]);
    fails("feed csv:a.csv", 2, &["csv:a.csv", "no such file or folder", "idx:FILE"]);
    fails("feed idx:", 2, &["idx:", "path of a file"]);
    fails("feed digits --batch-size many", 2, &["--batch-size", "many"]);
    fails("feed digits --batch-size -1", 2, &["-1"]);
    fails("feed digits --epochs 0", 2, &["--epochs"]);
    fails("feed digits --timeout -1", 2, &["-1", "expected a number of seconds"]);
    fails("feed digits --state x --state-every -1", 2, &["-1", "expected a number of seconds"]);
    fails("feed digits --timeout soon", 2, &["--timeout", "soon"]);
    fails("feed digits --affinity everywhere", 2, &["--affinity", "everywhere"]);
    fails("feed digits --wait sleep", 2, &["--wait", "sleep", "park"]);
    fails("feed digits --worker-kind fibre", 2, &["--worker-kind", "fibre", "thread, process"]);
    fails("feed digits --in-order maybe", 2, &["--in-order", "maybe"]);
    fails("order digits --len 5", 2, &["--len"]);
    fails("demo digits", 2, &["digits"]);
}

#[test]
fn invalid_loader_options_are_errors() {
    fails("feed digits --batch-size 0", 1, &["cannot build the loader", "batch_size is 0"]);
    fails("order --hold 0", 1, &["hold is 0"]);
    fails("demo --part-size 0", 1, &["part_size is 0"]);
    fails("feed digits --num-workers 1 --prefetch-factor 0", 1, &["prefetch_factor is 0"]);
    fails("feed digits --timeout 5", 1, &["timeout and num_workers = 0 exclude each other"]);
    fails("demo --num-workers 0 --timeout 5", 1, &["timeout"]);
    fails("feed digits --num-workers 18446744073709551615", 1, &["num_workers"]);
    fails("feed digits --num-workers 1 --affinity 99999", 1, &["99999"]);
    fails("feed digits --memory-limit 1000", 1, &["memory_limit", "1000"]);
    fails("order --len 0 --shuffle", 1, &["cannot build the loader"]);
    fails("demo --restart-workers 1", 1, &["--restart-workers", "add --worker-kind process"]);
}

#[test]
fn bad_files_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).expect("written");
    write("three", &[0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]);
    write("two", &[0, 0, 8, 1, 0, 0, 0, 2, 7, 8]);
    write("cut", &[0, 0, 8, 1, 0, 0, 0, 3, 7]);
    write("text", b"1,2,3\n");
    fails(&format!("feed idx:{path}/none"), 1, &["cannot load idx:", "/none", "No such file"]);
    fails(&format!("feed npy:{path}/three"), 1, &["/three", "an IDX file"]);
    fails(&format!("feed idx:{path}/text"), 1, &["/text", "expected an IDX file"]);
    fails(&format!("feed idx:{path}/cut"), 1, &["/cut", "expected 11 bytes", "only 9"]);
    fails(&format!("feed idx:{path}/three,{path}/two"), 1, &["/three,", "the first has 3 rows, number 2 has 2"]);
    fails(&format!("order npy:{path}"), 1, &["is a directory"]);
    assert_eq!(
        crate::program::stdout(&format!("order idx:{path}/two")),
        "{\"epoch\":0,\"batch\":0,\"indices\":[0,1]}\n"
    );
}

#[test]
fn one_file_for_two_flags_is_rejected_untouched() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    let name = path.display();
    fs::write(&path, "mine").expect("written");
    let flags = [
        "--state",
        "--log",
        "--stats",
        "--resume",
        #[cfg(feature = "trace")]
        "--trace",
    ];
    // Another path to the same file.
    let other = folder.path().join(".").join("file");
    for (i, first) in flags.iter().enumerate() {
        for second in flags[i + 1..].iter().filter(|second| [*first, **second] != ["--state", "--resume"]) {
            let arguments = format!("feed digits {first} {name} {second} {}", other.display());
            fails(&arguments, 1, &[first, second, "separate file"]);
            assert_eq!(fs::read(&path).expect("it is there"), b"mine", "{arguments}");
        }
    }
    fails(&format!("feed digits --state {name} --log {name}.next"), 1, &["separate file"]);
}

#[test]
fn a_source_file_is_not_written_to_under_any_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.npy");
    let header = format!("{:<117}\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (64, 64), }");
    let bytes = [b"\x93NUMPY\x01\x00\x76\x00", header.as_bytes(), &[7; 4096]].concat();
    fs::write(&path, &bytes).expect("written");
    let link = folder.path().join("link");
    fs::hard_link(&path, &link).expect("linked");
    for name in [&path, &link] {
        for flag in ["--state", "--log", "--stats"] {
            let arguments = format!("feed npy:{} {flag} {}", path.display(), name.display());
            fails(&arguments, 1, &["SOURCE", flag, "separate file"]);
            assert_eq!(fs::read(&path).expect("it is there"), bytes, "{arguments}");
        }
    }
}
