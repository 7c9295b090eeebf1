//! The files that the rules read.

use crate::Finding;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// A text file of the repository.
pub struct File {
    /// From the root, with `/`.
    pub path: String,
    /// First component of the path, or `root`.
    pub package: String,
    pub text: String,
}

/// All text files, and the paths of all files.
pub struct Workspace {
    pub files: Vec<File>,
    pub paths: BTreeSet<String>,
}

/// The directory of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

impl Workspace {
    /// Reads the repository, without `target` and hidden directories other than `.ci` and `.cargo`.
    pub fn read() -> Self {
        let root = root();
        let mut files = Vec::new();
        let mut paths = BTreeSet::new();
        let walk = walkdir::WalkDir::new(&root).sort_by_file_name().into_iter();
        let kept = walk.filter_entry(|entry| {
            let name = entry.file_name().to_string_lossy();
            entry.depth() == 0
                || name == ".ci"
                || name == ".cargo"
                || !(name == "target" || name == "shared" || name.starts_with('.'))
        });
        for entry in kept {
            let entry = entry.expect("an entry of the workspace");
            if !entry.file_type().is_file() {
                continue;
            }
            let path = entry.path().strip_prefix(&root).expect("a path in the workspace");
            let path = path.to_str().expect("a path in UTF-8").to_owned();
            if Self::is_text(&path) {
                let text = std::fs::read_to_string(entry.path()).expect("a text in UTF-8");
                files.push((path.clone(), text));
            }
            paths.insert(path);
        }
        Self::new(files, paths)
    }

    /// A workspace of these files only.
    pub fn made_up(files: &[(&str, &str)]) -> Self {
        let files: Vec<_> =
            files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect();
        let paths = files.iter().map(|(path, _)| path.clone()).collect();
        Self::new(files, paths)
    }

    fn new(files: Vec<(String, String)>, paths: BTreeSet<String>) -> Self {
        let files = files
            .into_iter()
            .map(|(path, text)| {
                let package = path.split_once('/').map_or("root", |(first, _)| first);
                let package = if package.starts_with('.') { "root" } else { package };
                File { package: package.to_owned(), path, text }
            })
            .collect();
        Self { files, paths }
    }

    fn is_text(path: &str) -> bool {
        path.ends_with(".rs")
            || path.ends_with(".md")
            || path.ends_with(".toml")
            || path.starts_with(".ci/")
    }

    pub fn with_extension(&self, extension: &str) -> impl Iterator<Item = &File> {
        self.files.iter().filter(move |file| file.extension() == extension)
    }

    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl File {
    pub fn extension(&self) -> &str {
        Path::new(&self.path).extension().and_then(|end| end.to_str()).unwrap_or("")
    }

    /// Directory of the file, from the root.
    pub fn directory(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(directory, _)| directory)
    }

    /// Whether only tests use the file.
    pub fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or("");
        self.path.split('/').any(|part| part == "tests")
            || name == "tests.rs"
            || name.ends_with("_tests.rs")
    }

    pub fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding {
            package: self.package.clone(),
            file: self.path.clone(),
            line,
            message: message.into(),
        }
    }

    /// The tokens of a Rust file.
    pub fn tokens(&self) -> proc_macro2::TokenStream {
        match self.text.parse() {
            Ok(tokens) => tokens,
            Err(error) => panic!("{}: {error}", self.path),
        }
    }

    /// The syntax tree of a Rust file.
    pub fn syntax(&self) -> syn::File {
        match syn::parse_file(&self.text) {
            Ok(syntax) => syntax,
            Err(error) => {
                panic!("{}:{}: {error}", self.path, error.span().start().line)
            }
        }
    }
}
