//! Made-up offenders: each rule finds its own, and nothing in their mended twins.

use crate::{
    Finding,
    debts::{Debts, Verdict},
    rule,
    workspace::Workspace,
};

/// The findings of a rule in made-up files, as `file:line`.
fn found(name: &str, files: &[(&str, &str)]) -> Vec<String> {
    let findings = (rule(name).check)(&Workspace::made_up(files));
    findings.iter().map(|finding| format!("{}:{}", finding.file, finding.line)).collect()
}

#[track_caller]
fn one(name: &str, file: (&str, &str), expected: &[usize]) {
    let expected: Vec<String> = expected.iter().map(|line| format!("{}:{line}", file.0)).collect();
    assert_eq!(found(name, &[file]), expected, "{name} in {}", file.1);
}

#[test]
fn long_lines_are_found_but_not_tables_and_links() {
    let long = "word ".repeat(30);
    one("line-length", ("a/src/x.rs", &format!("//! Short.\n// {long}\n")), &[2]);
    one("line-length", ("README.md", &format!("{long}\n| {long} |\nhttps://x.y {long}\n")), &[1]);
    one("line-length", ("README.md", &"ä".repeat(100)), &[]);
}

#[test]
fn banned_words_are_found_in_comments_literals_and_documents() {
    let word = ["who", "ever"].concat();
    let source = format!("/// Wakes {word} waits.\nfn f() {{\n    g(\"{word}\"); // {word}\n}}\n");
    let mut lines = found("words", &[("a/src/x.rs", &source)]);
    lines.sort();
    assert_eq!(lines, ["a/src/x.rs:1", "a/src/x.rs:3", "a/src/x.rs:3"]);
    one("words", ("README.md", &format!("# Title\n\nText that names\n{word} waits.\n")), &[4]);
    one("words", ("a/Cargo.toml", &format!("# For {word}.\nx = 1\n")), &[1]);
    one("words", ("a/src/x.rs", &format!("fn {word}() {{}}\n")), &[]);
}

#[test]
fn banned_words_are_found_across_lines_and_at_the_start_of_sentences() {
    let source = ["// A thread waits no", "t an", "y\n// more than once.\n"].concat();
    one("words", ("a/src/x.rs", &source), &[1]);
    let clause = ["// It ends. Wha", "t it wrote stays.\n"].concat();
    one("words", ("a/src/x.rs", &clause), &[1]);
    one("words", ("a/src/x.rs", "// It ends. What does it write?\n"), &[]);
}

#[test]
fn references_that_lead_nowhere_are_found() {
    let file = |name: &str| ["see `", name, "`"].concat();
    let source = format!("// {}\n// {}\nfn f() {{}}\n", file("gone.rs"), file("x.rs"));
    one("references", ("a/src/x.rs", &source), &[1]);
    let document = "# One\n\n[a](#one)\n\n[b](#two)\n\n[c](gone.md)\n\nSee *One*, see *Two*.\n";
    let mut lines = found("references", &[("README.md", document)]);
    lines.sort();
    lines.dedup();
    assert_eq!(lines, ["README.md:5", "README.md:7", "README.md:9"]);
    let commands = "cargo bench --bench old\n\ncargo bench --bench new\n";
    let files = [("README.md", commands), ("benches/benches/new.rs", "")];
    assert_eq!(found("references", &files), ["README.md:1"]);
}

#[test]
fn dependencies_without_a_use_are_found() {
    let manifest = "[dependencies]\nused.workspace = true\nun-used.workspace = true\n\
                    [dev-dependencies]\nin-tests = \"1\"\nused = \"1\"\n";
    let files = [
        ("a/Cargo.toml", manifest),
        ("a/src/lib.rs", "use used::Thing;\n"),
        ("a/tests/x.rs", "use in_tests::Thing;\nuse un_used::Thing;\n"),
    ];
    assert_eq!(found("dependencies", &files), ["a/Cargo.toml:3", "a/Cargo.toml:2"]);
    let workspace = "[workspace.dependencies]\nused = \"1\"\nleft-over = \"1\"\n";
    let files = [files[0], files[1], files[2], ("Cargo.toml", workspace)];
    assert!(found("dependencies", &files).contains(&"Cargo.toml:3".to_owned()));
}

#[test]
fn unsafe_code_without_reasons_is_found() {
    let source = "/// # Safety\n///\n/// Never.\nunsafe fn good() {}\n\
                  /// Does it.\nunsafe fn bad() {}\n\
                  fn f() {\n    // SAFETY: it is.\n    unsafe { good() };\n\
                  \x20   let x =\n        // SAFETY: it is.\n        unsafe { good() };\n\
                  \x20   unsafe { bad() };\n}\n\
                  unsafe impl Send for X {}\n\
                  // SAFETY: it is.\nunsafe impl T for X {\n    unsafe fn f() {}\n}\n";
    one("unsafe", ("a/src/x.rs", source), &[6, 13, 15]);
}

#[test]
fn unfinished_code_is_found() {
    let source = ["fn f() {\n    to", "do!(\"later\")\n}\n"].concat();
    one("unfinished", ("a/src/x.rs", &source), &[2]);
}

#[test]
fn long_files_and_functions_are_found() {
    let lines = |count: usize| "    f();\n".repeat(count);
    let long = format!("fn f() {{\n{}}}\n", lines(79));
    one("function-length", ("a/src/x.rs", &long), &[1]);
    one("function-length", ("a/src/x.rs", &format!("fn f() {{\n{}}}\n", lines(78))), &[]);
    one("function-length", ("a/src/x.rs", &format!("// Long because it is.\n{long}")), &[]);
    one("function-length", ("a/src/x.rs", &format!("#[cfg(test)]\nmod tests {{\n{long}}}")), &[]);
    one("function-length", ("a/tests/x.rs", &long), &[]);
    one("file-length", ("a/src/x.rs", &"// Line.\n".repeat(601)), &[601]);
    one("file-length", ("a/src/x.rs", &"// Line.\n".repeat(600)), &[]);
    one("file-length", ("a/tests/x.rs", &"// Line.\n".repeat(601)), &[]);
}

#[test]
fn circles_of_imports_are_found_through_re_exports() {
    let facade = ("e/src/inner/mod.rs", "mod one;\nmod two;\npub(crate) use one::One;\n");
    let one = ("e/src/inner/one.rs", "use super::two::helper;\npub struct One;\n");
    let two = ("e/src/inner/two.rs", "pub fn helper(_: &crate::inner::One) {}\n");
    let root = ("e/src/lib.rs", "mod inner;\npub use inner::One;\n");
    let circle = ["e/src/inner/one.rs:1", "e/src/inner/two.rs:1"];
    assert_eq!(found("circles", &[root, facade, one, two]), circle);
    // Only tests close the circle.
    let two = ("e/src/inner/two.rs", "pub fn helper() {}\n#[cfg(test)]\nuse super::One;\n");
    assert!(found("circles", &[root, facade, one, two]).is_empty());
    // A path in a macro, from a glob.
    let two =
        ("e/src/inner/two.rs", "use super::*;\npub fn helper() {\n    assert!(One::f());\n}\n");
    assert_eq!(found("circles", &[root, facade, one, two]), circle);
}

#[test]
fn one_small_circle_is_allowed_in_the_tree_and_the_buffer() {
    let files = [
        ("btree/src/lib.rs", "mod a;\nmod b;\n"),
        ("btree/src/a.rs", "pub struct A(crate::b::B);\n"),
        ("btree/src/b.rs", "use crate::a;\npub struct B(*const a::A);\n"),
    ];
    assert!(found("circles", &files).is_empty());
    let moved = files.map(|(path, text)| (path.replace("btree", "wal"), text));
    let moved: Vec<(&str, &str)> = moved.iter().map(|(path, text)| (&path[..], *text)).collect();
    assert_eq!(found("circles", &moved), ["wal/src/a.rs:1", "wal/src/b.rs:1"]);
}

#[test]
fn debts_allow_so_many_findings_and_no_more() {
    let findings = |count: usize| -> Vec<Finding> {
        let file = Workspace::made_up(&[("a/src/x.rs", "")]);
        (0..count).map(|line| file.files[0].finding(line, "made up")).collect()
    };
    let debts = Debts::parse("# Comment\n\nwords a 2\nunsafe b 1\n");
    assert!(matches!(debts.judge("words", &findings(2)), Verdict::Holds));
    assert!(matches!(debts.judge("words", &findings(1)), Verdict::Holds));
    let Verdict::Fails(reasons) = debts.judge("words", &findings(3)) else { panic!("it held") };
    assert!(reasons.contains("words a: 3 findings, 2 allowed"), "{reasons}");
    let Verdict::Fails(reasons) = debts.judge("words", &[]) else { panic!("it held") };
    assert!(reasons.contains("`words a`: remove this line"), "{reasons}");
    assert!(matches!(debts.judge("unfinished", &findings(0)), Verdict::Holds));
}

#[test]
fn methods_without_an_example_are_found() {
    let path = "engine/src/x.rs";
    let method =
        |comment: &str, name: &str| format!("    /// {comment}\n    pub fn {name}() {{}}\n");
    let source = [
        "/// ```\n/// session.shown(1);\n/// ```\npub struct Session;\nimpl Session {\n"
            .to_string(),
        method("Shown above.", "shown"),
        method("As [`Session::shown`].", "like"),
        method("Twice removed; see [`crate::Session::like`].", "other"),
        method("Alone.\n    ///\n    /// # Errors\n    /// As [`Session::shown`].", "alone"),
        method("As [`Session::round`].", "round"),
        method("```\n    /// x.own();\n    /// ```", "own"),
        "    #[doc(hidden)]\n    pub fn hidden() {}\n    fn private() {}\n}\n".to_string(),
        "pub struct Minor;\nimpl Minor {\n    pub fn f() {}\n}\n".to_string(),
    ];
    one("examples", (path, &source.concat()), &[16, 18]);
    one("examples", ("btree/src/x.rs", &source.concat()), &[]);
}
