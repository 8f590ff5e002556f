//! Runs the tests of the C++ layer that are written in C++.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::native::{compile, here, run, scratch, tool};
use crate::readme::programs;

/// Tests C++20, where loaders and passes must satisfy the concepts of ranges.
#[test]
fn the_cpp_layer_compiles_as_cpp20() {
    let Some(cxx) = tool("CXX", "g++") else { return };
    for source in ["layer", "exceptions", "observing", "without_exceptions"] {
        accepts(&cxx, "c++20", &cpp(source));
    }
}

#[test]
fn the_cpp_layer_compiles_with_clang() {
    let Some(clang) = tool("CLANGXX", "clang++") else { return };
    let folder = scratch("clang");
    let (programs, snippets) = programs();
    let mut sources: Vec<_> = programs
        .into_iter()
        .chain([snippets])
        .enumerate()
        .map(|(i, program)| {
            let path = folder.join(format!("readme{i}.cpp"));
            std::fs::write(&path, program).unwrap();
            path
        })
        .collect();
    let files = std::fs::read_dir(here().join("tests/cpp")).unwrap();
    sources
        .extend(files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|ext| ext == "cpp")));
    assert!(sources.len() > 10, "{sources:?}");
    for source in sources {
        accepts(&clang, "c++17", &source);
        accepts(&clang, "c++20", &source);
    }
    // A view that outlives its batch causes a warning, which is an error here.
    let path = scratch("dangling").join("dangling.cpp");
    let source = "#include <slotline.hpp>\nslotline::batch next();\n\
        const float* dangling() { const auto& batch = next(); return batch.field<float>(0).data(); }\n\
        slotline::view<float> dangles() { slotline::batch batch = next(); return batch.field<float>(0); }\n";
    std::fs::write(&path, source).unwrap();
    let mut command = Command::new(&clang);
    command.args(["-std=c++17", "-fsyntax-only", "-Werror", "-I"]).arg(here().join("include"));
    let output = command.arg(path).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && message.contains("stack memory associated with local variable 'batch'"),
        "{message}"
    );
}

/// Returns the path of one of the layer's tests.
fn cpp(name: &str) -> PathBuf {
    here().join("tests/cpp").join(name).with_extension("cpp")
}

/// Compiles a source file without linking it; a warning is an error.
fn accepts(cxx: &str, standard: &str, source: &Path) {
    let mut command = Command::new(cxx);
    command.arg(format!("-std={standard}")).args([
        "-fsyntax-only",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-Wshadow",
    ]);
    // The README's programs use implicit conversions that lose nothing.
    if source.starts_with(here().join("tests")) {
        command.arg("-Wconversion");
    } else {
        command.arg("-Wno-unused");
    }
    command.args(["-DSLOTLINE_HAS_CUDA", "-DSLOTLINE_HAS_IMAGE", "-I"]).arg(here().join("include"));
    run(command.arg(source));
}

/// Without this error, a stream whose `resume` cannot be called would silently be read again from
/// its start when a loader resumes.
#[test]
fn a_stream_with_save_but_no_resume_does_not_compile() {
    let Some(cxx) = tool("CXX", "g++") else { return };
    // `resume` must be const, so a non-const one does not count.
    let source = r#"
#include <slotline.hpp>
struct stream {
  struct cursor {
    bool next(slotline::sample&) { return false; }
    std::string save() const { return {}; }
  };
  std::vector<slotline::field> fields() const { return {slotline::fixed<int>("at")}; }
  cursor open(const slotline::worker&) const { return {}; }
  cursor resume(const slotline::worker&, const std::string&) QUALIFIER { return {}; }
};
slotline::dataset made() { return stream{}; }
"#;
    let path = scratch("never_resumed").join("stream.cpp");
    std::fs::write(&path, source).unwrap();
    let compile = |qualifier: &str| {
        let mut command = Command::new(&cxx);
        command.args(["-std=c++17", "-fsyntax-only", qualifier, "-I"]).arg(here().join("include")).arg(&path);
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    assert_eq!(compile("-DQUALIFIER=const"), "");
    assert!(compile("-DQUALIFIER=").contains("a stream that can be resumed has both"));
}

/// Without this error, a number would silently be converted to `true`.
#[test]
fn numbers_for_flags_do_not_compile() {
    let good = [
        "sampler::random(true, 10)",
        "options().shuffle()",
        "options().shuffle(std::true_type())",
        "options().in_order(is_on)",
        "budget::samples(3u)",
    ];
    let bad = [
        "sampler::random(10)",
        "sampler::random(10, true)",
        "sampler::random(nullptr)",
        "sampler::weighted(weights, 5, 5)",
        "sampler::distributed(8, 2, 42)",
        "sampler::distributed(8, 2, true, 42, 7)",
        "batch_sampler::of(sampler::random(), 64, 0)",
        "pipeline(\"hflip\", dtype::f32, 3)",
        "options().processes(4)",
        "options().shuffle(42)",
        "options().drop_last(1.0)",
        "options().in_order(0)",
        "options().pin_memory(\"yes\")",
        "options().persistent_workers(4)",
        "options().rethrow(1)",
        "options().round_robin(4)",
        "options().help(2)",
        "budget::samples(0.01)",
        "budget::samples(true)",
    ];
    let line = |at: usize, call: &&str| format!("inline void f{at}() {{ static_cast<void>(slotline::{call}); }}");
    let source = |calls: &[&str]| {
        let lines: Vec<_> = calls.iter().enumerate().map(|(at, call)| line(at, call)).collect();
        format!(
            "#include <slotline.hpp>\nstatic const double weights[3] = {{1, 2, 3}};\nstatic bool is_on;\n{}\n",
            lines.join("\n")
        )
        .replace("(sampler::", "(slotline::sampler::")
        .replace("dtype::", "slotline::dtype::")
    };
    assert_eq!(refused("flags", &source(&good)).as_deref(), Some(""));
    let Some(message) = refused("flags", &source(&bad)) else { return };
    for (at, call) in bad.iter().enumerate() {
        assert!(message.contains(&format!("flags.cpp:{}:", at + 4)), "{call} compiles: {message}");
    }
}

/// For a class that lacks a part of a dataset, the compiler names the part.
#[test]
fn what_a_dataset_lacks_is_one_message() {
    let fields = "std::vector<slotline::field> fields() const { return {}; }";
    let (size, read) = ("std::size_t size() const { return 1; }", "void read(std::size_t, slotline::sample&) const {}");
    let open = "struct cursor { NEXT }; cursor open(const slotline::worker&) const { return {}; }";
    let next = open.replace("NEXT", "bool next(slotline::sample&) { return false; }");
    let (endless, changing) = (open.replace("NEXT", ""), fields.replace("const ", ""));
    for (members, expected) in [
        ([fields, size, read], ""),
        ([fields, "", &next], ""),
        (["", size, read], "`std::vector<slotline::field> fields() const`"),
        (["", "", &next], "`std::vector<slotline::field> fields() const`"),
        ([&changing, size, read], "`std::vector<slotline::field> fields() const`"),
        (["int fields() const { return 1; }", size, read], "`std::vector<slotline::field> fields() const`"),
        ([fields, "", read], "`std::size_t size() const`"),
        ([fields, "", &endless], "`bool next(slotline::sample&)`"),
        ([fields, size, ""], "`void read(std::size_t, slotline::sample&) const`"),
    ] {
        let members = members.join("\n");
        let Some(message) = refused(
            "lacking",
            &format!(
                "#include <slotline.hpp>\nstruct data {{ {members} }};\nslotline::dataset made() {{ return data{{}}; }}\n"
            ),
        ) else {
            return;
        };
        let errors = message.matches("error:").count();
        assert!(message.contains(expected) && errors == usize::from(!expected.is_empty()), "{members}: {message}");
    }
}

/// Returns what the compiler prints about a source that it rejects; `None` if there is no compiler.
fn refused(name: &str, source: &str) -> Option<String> {
    let cxx = tool("CXX", "g++")?;
    let path = scratch(name).join(name).with_extension("cpp");
    std::fs::write(&path, source).unwrap();
    let mut command = Command::new(cxx);
    command.args(["-std=c++17", "-fsyntax-only", "-DSLOTLINE_HAS_IMAGE", "-I"]).arg(here().join("include")).arg(&path);
    Some(String::from_utf8(command.output().unwrap().stderr).unwrap())
}

#[test]
fn the_device_layer_compiles() {
    let Some(cxx) = tool("CXX", "g++") else { return };
    let mut command = Command::new(cxx);
    command.args([
        "-std=c++17",
        "-fsyntax-only",
        "-DSLOTLINE_HAS_CUDA",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-I",
    ]);
    run(command.arg(here().join("include")).arg(here().join("tests/cpp/device.cpp")));
}

/// The fake driver is preloaded, so it is the `libcuda.so` that the library finds.
#[cfg(feature = "cuda")]
#[test]
fn the_device_layer_runs_over_the_fake_driver() {
    let Some(cxx) = tool("CXX", "g++") else { return };
    let program = scratch("device").join("device");
    compile(&cxx, &["-std=c++17", "-O1", "-DSLOTLINE_HAS_CUDA"], &here().join("tests/cpp/device.cpp"), &program);
    let fake = slotline_cuda_fake::Fake::find().unwrap();
    let printed = run(Command::new(program).env("LD_PRELOAD", fake));
    assert_eq!(printed, "1 devices\nthe loader was stopped; to continue, build a new one and load the state\n");
}

/// Tests that each header compiles by itself, and that the C header is C99.
#[test]
fn headers_are_self_contained() {
    let (Some(cc), Some(cxx)) = (tool("CC", "gcc"), tool("CXX", "g++")) else { return };
    let folder = scratch("headers");
    let layer = std::fs::read_dir(here().join("include/slotline")).unwrap();
    let mut headers: Vec<String> =
        layer.map(|file| format!("slotline/{}", file.unwrap().file_name().into_string().unwrap())).collect();
    headers.extend(["slotline.h".to_owned(), "slotline.hpp".to_owned()]);
    let check = |compiler: &str, flags: &[&str], source: &str, header: &str| {
        let path = folder.join(source);
        std::fs::write(&path, format!("#include <{header}>\n#include <{header}>\n")).unwrap();
        let mut command = Command::new(compiler);
        command
            .args(["-fsyntax-only", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-pedantic"])
            .args(flags);
        run(command.arg("-I").arg(here().join("include")).arg(path));
    };
    for header in headers {
        check(&cxx, &["-std=c++17"], "header.cpp", &header);
    }
    check(&cxx, &["-std=c++20", "-DSLOTLINE_HAS_CUDA", "-DSLOTLINE_HAS_IMAGE"], "header.cpp", "slotline.hpp");
    check(&cc, &["-std=c99"], "header.c", "slotline.h");
}

#[test]
fn the_cpp_layer_works_without_exceptions_and_rtti() {
    let folder = scratch("without_exceptions");
    // The other library is compiled with exceptions.
    let elsewhere = folder.join("elsewhere.cpp");
    let throws = "std::exception_ptr thrown_elsewhere() { return std::make_exception_ptr(std::runtime_error(\"elsewhere\")); }\n";
    std::fs::write(&elsewhere, format!("#include <stdexcept>\nstd::exception_ptr thrown_elsewhere();\n{throws}"))
        .unwrap();
    for (variable, name) in [("CXX", "g++"), ("CLANGXX", "clang++")] {
        let Some(cxx) = tool(variable, name) else { continue };
        let object = folder.join(name).with_extension("o");
        run(Command::new(&cxx).args(["-std=c++17", "-c"]).arg(&elsewhere).arg("-o").arg(&object));
        for flags in [&["-fno-exceptions"][..], &["-fno-rtti"], &["-fno-exceptions", "-fno-rtti"]] {
            let program = folder.join(name.to_owned() + &flags.concat());
            let all = [&["-std=c++17", object.to_str().unwrap()], flags].concat();
            compile(&cxx, &all, &cpp("without_exceptions"), &program);
            assert_eq!(run(&mut Command::new(&program)), "ok\n");
            for (argument, words) in [("bad:source", "source: expected digits"), ("elsewhere", "it failed elsewhere")] {
                let output = Command::new(&program).arg(argument).output().unwrap();
                let message = String::from_utf8_lossy(&output.stderr);
                assert!(!output.status.success() && message.contains(words), "{flags:?} {argument}: {message}");
            }
        }
    }
}

/// A dataset that is passed as its base class would be copied without the members of the derived
/// class, and a raw pointer does not say how long the object exists.
#[test]
fn what_a_dataset_cannot_hold_is_one_clear_error() {
    let Some(cxx) = tool("CXX", "g++") else { return };
    let source = r"
#include <slotline.hpp>
#include <mutex>
struct base {
  virtual ~base() = default;
  virtual std::size_t size() const { return 1; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<int>(std::string())}; }
  virtual void read(std::size_t, slotline::sample&) const {}
};
struct last final : base {};
struct locked {
  std::mutex lock;
  std::size_t size() const { return 1; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<int>(std::string())}; }
  void read(std::size_t, slotline::sample&) const {}
};
slotline::dataset made(const base& reference, const last& copied, locked& alone) {
  (void)reference, (void)copied, (void)alone;
  return GIVEN;
}
";
    let path = scratch("cut").join("cut.cpp");
    std::fs::write(&path, source).unwrap();
    let compile = |given: &str| {
        let mut command = Command::new(&cxx);
        command.args(["-std=c++17", "-fsyntax-only", &format!("-DGIVEN={given}"), "-I"]);
        String::from_utf8(command.arg(here().join("include")).arg(&path).output().unwrap().stderr).unwrap()
    };
    for accepted in ["copied", "std::ref(reference)", "std::ref(alone)", "std::make_shared<locked>()"] {
        assert_eq!(compile(accepted), "", "{accepted}");
    }
    for (refused, words) in [
        ("reference", "a class with virtual functions is not accepted by value"),
        ("alone", "this dataset cannot be copied"),
        ("&reference", "a pointer does not say how long the dataset lives"),
        ("&alone", "a pointer does not say how long the dataset lives"),
        ("5", "a dataset must have `void read"),
    ] {
        let message = compile(refused);
        assert!(message.contains(words) && message.matches("error:").count() == 1, "{refused}: {message}");
    }
}
