//! Rule: files, sections and commands that comments and documents name exist.

use crate::{
    Finding,
    prose::prose,
    workspace::{File, Workspace},
};
use regex::Regex;
use std::collections::BTreeSet;

/// References that lead nowhere.
pub fn references(workspace: &Workspace) -> Vec<Finding> {
    let rule = References::new(workspace);
    let mut findings = Vec::new();
    for file in &workspace.files {
        for block in prose(file).iter().filter(|block| !block.is_literal) {
            for (byte, message) in rule.dangling(file, &block.text) {
                findings.push(file.finding(block.line(byte), message));
            }
        }
    }
    findings
}

struct References<'a> {
    workspace: &'a Workspace,
    link: Regex,
    file_name: Regex,
    section: Regex,
    target: Regex,
    /// Values of `--bench`, `--test`, `--bin` and `-p` that cargo knows.
    targets: BTreeSet<(String, String)>,
}

impl<'a> References<'a> {
    fn new(workspace: &'a Workspace) -> Self {
        let regex = |pattern| Regex::new(pattern).expect("a pattern");
        Self {
            workspace,
            link: regex(r"\]\(([^)\s]+)\)"),
            file_name: regex(r"(?:^|[\s`(\[\x22])([\w./-]*\w\.(?:rs|md|toml))\b"),
            section: regex(r"\b[Ss]ee \*([^*]+)\*"),
            target: regex(r"(--bench|--test|--bin|-p) ([a-z][\w-]*)"),
            targets: targets(workspace),
        }
    }

    /// Byte and message of each reference of a text that leads nowhere.
    fn dangling(&self, file: &File, text: &str) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        if file.extension() == "md" {
            for link in self.link.captures_iter(text) {
                let (start, target) = (link.get(1).unwrap().start(), &link[1]);
                if !self.link_exists(file, target) {
                    found.push((start, format!("the link {target} leads nowhere")));
                }
            }
            for section in self.section.captures_iter(text) {
                let name = &section[1];
                if !headings(&file.text).any(|heading| heading == name) {
                    found.push((section.get(0).unwrap().start(), format!("no section {name}")));
                }
            }
        }
        for name in self.file_name.captures_iter(text) {
            let (start, name) = (name.get(1).unwrap().start(), &name[1]);
            if !text[..start].ends_with("://") && !self.file_exists(name) {
                found.push((start, format!("there is no file {name}")));
            }
        }
        for target in self.target.captures_iter(text) {
            let (kind, name) = (target[1].to_owned(), target[2].to_owned());
            if text.contains("cargo") && !self.targets.contains(&(kind.clone(), name.clone())) {
                let start = target.get(0).unwrap().start();
                found.push((start, format!("cargo does not know {kind} {name}")));
            }
        }
        found
    }

    /// Whether a file of the repository has this name, or a path that ends with it.
    fn file_exists(&self, name: &str) -> bool {
        let name = name.trim_start_matches("./").trim_start_matches("../");
        let end = format!("/{name}");
        self.workspace.paths.iter().any(|path| path == name || path.ends_with(&end))
    }

    fn link_exists(&self, file: &File, target: &str) -> bool {
        let (path, anchor) = match target.split_once('#') {
            Some((path, anchor)) => (path, Some(anchor)),
            None => (target, None),
        };
        let is_item = !path.contains(['/', '.']) && anchor.is_none();
        if target.contains("://") || is_item && path.contains("::") {
            return true;
        }
        let path = if path.is_empty() { file.path.clone() } else { join(file.directory(), path) };
        let directory = format!("{path}/");
        let exists = self.workspace.paths.contains(&path)
            || self.workspace.paths.iter().any(|known| known.starts_with(&directory));
        exists
            && anchor.is_none_or(|anchor| {
                let text = &self.workspace.file(&path).expect("a document").text;
                headings(text).any(|heading| slug(heading) == anchor)
            })
    }
}

/// Path of `relative`, as seen from a directory.
fn join(directory: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn headings(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| line.trim_start_matches('#').trim())
}

/// The anchor of a heading, as GitHub makes it.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn targets(workspace: &Workspace) -> BTreeSet<(String, String)> {
    let mut targets = BTreeSet::new();
    let mut add = |kind: &str, name: &str| targets.insert((kind.to_owned(), name.to_owned()));
    for path in &workspace.paths {
        let parts: Vec<&str> = path.split('/').collect();
        let (kind, name) = match parts[..] {
            [_, "tests", name] | [_, "tests", name, "main.rs"] => ("--test", name),
            [.., "src", "bin", name] => ("--bin", name),
            [_, "benches", name] | [_, "benches", name, "main.rs"] => ("--bench", name),
            _ => continue,
        };
        add(kind, name.trim_end_matches(".rs"));
    }
    for manifest in workspace.files.iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        let table: toml::Table = manifest.text.parse().expect("a manifest");
        let name = |value: &toml::Value| value.get("name")?.as_str().map(str::to_owned);
        if let Some(package) = table.get("package").and_then(name) {
            add("-p", &package);
        }
        let binaries = table.get("bin").and_then(toml::Value::as_array);
        for binary in binaries.into_iter().flatten().filter_map(name) {
            add("--bin", &binary);
        }
    }
    targets
}
