//! Rule: public methods of the main types have an example, which `cargo test` runs.
//!
//! The example is in the comment of the method, or in that of its type, where it calls the method,
//! or in the comment of a method to which the comment refers with ``As [`Type::method`]`` or
//! ``see [`Type::method`]``. Errors do not count: a method may fail as another one does and do
//! something else.

use crate::{Finding, workspace::Workspace};
use std::collections::HashMap;
use syn::{Attribute, ImplItem, Item, Type, Visibility};

/// The types of the crate `wattle` that a program meets first.
const TYPES: [&str; 8] = [
    "Engine",
    "Session",
    "Transaction",
    "Snapshot",
    "Tree",
    "Options",
    "AsyncSession",
    "TypedTree",
];
/// Where they are defined.
const SOURCES: &str = "engine/src/";

/// Type and method.
type Name = (String, String);

#[derive(Default)]
struct Documented {
    /// Comments of types.
    types: HashMap<String, String>,
    /// Comment, path and line of each public method.
    methods: HashMap<Name, (String, String, usize)>,
}

/// Public methods of [`TYPES`] without an example.
pub fn examples(workspace: &Workspace) -> Vec<Finding> {
    let documented = Documented::read(workspace);
    let mut findings = Vec::new();
    for (name, (_, path, line)) in &documented.methods {
        let (of, method) = name;
        if TYPES.contains(&&of[..]) && !documented.has_example(name, &mut Vec::new()) {
            let file = workspace.file(path).expect("it was read");
            findings.push(file.finding(*line, format!("{of}::{method} has no example")));
        }
    }
    findings.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
    findings
}

impl Documented {
    fn read(workspace: &Workspace) -> Documented {
        let mut found = Documented::default();
        let files = workspace.with_extension("rs");
        for file in files.filter(|file| file.path.starts_with(SOURCES)) {
            for item in file.syntax().items {
                match item {
                    Item::Struct(item) => {
                        found.types.insert(item.ident.to_string(), comment(&item.attrs));
                    }
                    Item::Impl(item) if item.trait_.is_none() => {
                        let Type::Path(of) = &*item.self_ty else { continue };
                        let of = of.path.segments.last().expect("a name").ident.to_string();
                        found.add(&of, &item.items, &file.path);
                    }
                    _ => {}
                }
            }
        }
        found
    }

    fn add(&mut self, of: &str, items: &[ImplItem], path: &str) {
        for item in items {
            let ImplItem::Fn(method) = item else { continue };
            if matches!(method.vis, Visibility::Public(_)) && !is_hidden(&method.attrs) {
                let name = (of.to_string(), method.sig.ident.to_string());
                let line = method.sig.ident.span().start().line;
                self.methods.insert(name, (comment(&method.attrs), path.to_string(), line));
            }
        }
    }

    /// `asked`: methods whose comments lead here.
    fn has_example(&self, name: &Name, asked: &mut Vec<Name>) -> bool {
        let Some((comment, ..)) = self.methods.get(name) else { return false };
        if asked.contains(name) {
            return false;
        }
        asked.push(name.clone());
        let of_type = self.types.get(&name.0).is_some_and(|comment| calls(comment, &name.1));
        comment.contains("```")
            || of_type
            || references(comment).iter().any(|other| self.has_example(other, asked))
    }
}

/// Whether the examples of a comment call a method.
fn calls(comment: &str, method: &str) -> bool {
    let is_called = |example: &str| {
        [".", "::"].iter().any(|before| example.contains(&format!("{before}{method}(")))
    };
    comment.split("```").skip(1).step_by(2).any(is_called)
}

/// Methods to which a comment refers, before its errors.
fn references(comment: &str) -> Vec<Name> {
    let text = comment.split("# Errors").next().unwrap_or("");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for start in ["As [`", "see [`"] {
        for rest in text.split(start).skip(1) {
            let link = rest.split('`').next().unwrap_or("").trim_start_matches("crate::");
            if let Some((of, method)) = link.split_once("::") {
                found.push((of.to_string(), method.to_string()));
            }
        }
    }
    found
}

fn comment(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| {
        let syn::Meta::NameValue(value) = &attribute.meta else { return None };
        let syn::Expr::Lit(literal) = &value.value else { return None };
        match &literal.lit {
            syn::Lit::Str(text) if value.path.is_ident("doc") => Some(text.value()),
            _ => None,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("doc") && list.tokens.to_string() == "hidden",
        _ => false,
    })
}
