//! Rule: the files of a crate do not import in circles.
//!
//! A file imports another when it names an item that the other defines: in a `use`, or in a path
//! such as `crate::x::f()`. Names lead through re-exports to the file that defines them, so a
//! `mod.rs` of re-exports is no part of a circle. Calls of methods do not count, nor does code for
//! tests. The circles are the strongly connected components of this graph, found by Tarjan's
//! algorithm.

use crate::{
    Finding,
    code::is_for_tests,
    workspace::{File, Workspace},
};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::{
    Item, ItemUse, Macro, UseTree,
    visit::{self, Visit},
};

/// Crates that may have one circle of up to [`SMALL`] files.
const MAY_HAVE_ONE: [&str; 2] = ["buffer", "btree"];
const SMALL: usize = 3;

/// The files that are part of a circle, one finding for each.
pub fn circles(workspace: &Workspace) -> Vec<Finding> {
    let roots = workspace.with_extension("rs").filter(|file| {
        let parts: Vec<&str> = file.path.split('/').collect();
        matches!(parts[..], [_, "src", "lib.rs" | "main.rs"])
    });
    let mut findings = Vec::new();
    for root in roots {
        let graph = Graph::new(workspace, root);
        let circles = graph.circles();
        let is_small = circles.len() == 1 && circles[0].len() <= SMALL;
        if is_small && MAY_HAVE_ONE.contains(&root.package.as_str()) {
            continue;
        }
        for circle in circles {
            for &member in &circle {
                let ties = graph.ties(member, &circle);
                findings.push(graph.files[member].finding(1, ties));
            }
        }
    }
    findings
}

/// A name in a module.
#[derive(Clone)]
enum Target {
    /// An item that the file of this module defines, and its name.
    Item(usize, String),
    Module(usize),
    /// A path of a `use`.
    Path(Vec<String>),
}

#[derive(Default)]
struct Module {
    file: usize,
    parent: Option<usize>,
    names: BTreeMap<String, Vec<Target>>,
    globs: Vec<Vec<String>>,
}

/// The import graph of one crate.
struct Graph<'a> {
    files: Vec<&'a File>,
    modules: Vec<Module>,
    /// The names that a file takes from another.
    edges: BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>>,
}

impl<'a> Graph<'a> {
    fn new(workspace: &'a Workspace, root: &'a File) -> Self {
        let mut graph = Self { files: Vec::new(), modules: Vec::new(), edges: BTreeMap::new() };
        let mut syntaxes = Vec::new();
        graph.add_file(workspace, root, None, &mut syntaxes);
        for (module, syntax) in &syntaxes {
            let mut paths = Paths { graph: &mut graph, module: *module };
            paths.items(&syntax.items);
        }
        graph
    }

    fn add_file(
        &mut self,
        workspace: &'a Workspace,
        file: &'a File,
        parent: Option<usize>,
        syntaxes: &mut Vec<(usize, syn::File)>,
    ) -> usize {
        self.files.push(file);
        let syntax = file.syntax();
        let module = self.add_module(self.files.len() - 1, parent);
        let name = file.path.rsplit('/').next().expect("a name").trim_end_matches(".rs");
        let directory = match name {
            "lib" | "main" | "mod" => file.directory().to_owned(),
            name => format!("{}/{name}", file.directory()),
        };
        self.add_items(workspace, module, &directory, &syntax.items, syntaxes);
        syntaxes.push((module, syntax));
        module
    }

    fn add_module(&mut self, file: usize, parent: Option<usize>) -> usize {
        self.modules.push(Module { file, parent, ..Module::default() });
        self.modules.len() - 1
    }

    fn add_items(
        &mut self,
        workspace: &'a Workspace,
        module: usize,
        directory: &str,
        items: &[Item],
        syntaxes: &mut Vec<(usize, syn::File)>,
    ) {
        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            match item {
                Item::Use(item) => self.add_use(module, &item.tree, Vec::new()),
                Item::Mod(item) => {
                    let name = item.ident.to_string();
                    let inner = format!("{directory}/{name}");
                    let child = match &item.content {
                        Some((_, items)) => {
                            let child = self.add_module(self.modules[module].file, Some(module));
                            self.add_items(workspace, child, &inner, items, syntaxes);
                            child
                        }
                        None => {
                            let paths = [format!("{inner}.rs"), format!("{inner}/mod.rs")];
                            let found = paths.iter().find_map(|path| workspace.file(path));
                            let file = found.unwrap_or_else(|| panic!("no file of mod {inner}"));
                            self.add_file(workspace, file, Some(module), syntaxes)
                        }
                    };
                    self.add_name(module, name, Target::Module(child));
                }
                item => {
                    for name in names(item) {
                        let target = Target::Item(module, name.clone());
                        self.add_name(module, name, target);
                    }
                }
            }
        }
    }

    fn add_name(&mut self, module: usize, name: String, target: Target) {
        self.modules[module].names.entry(name).or_default().push(target);
    }

    fn add_use(&mut self, module: usize, tree: &UseTree, mut path: Vec<String>) {
        match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.add_use(module, &tree.tree, path);
            }
            UseTree::Name(tree) if tree.ident == "self" => {
                let name = path.last().cloned().unwrap_or_default();
                self.add_name(module, name, Target::Path(path));
            }
            UseTree::Name(tree) => {
                path.push(tree.ident.to_string());
                self.add_name(module, tree.ident.to_string(), Target::Path(path));
            }
            UseTree::Rename(tree) => {
                if tree.ident != "self" {
                    path.push(tree.ident.to_string());
                }
                self.add_name(module, tree.rename.to_string(), Target::Path(path));
            }
            UseTree::Glob(_) => self.modules[module].globs.push(path),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(module, tree, path.clone());
                }
            }
        }
    }

    /// The module that defines the item of a path, or the module that the path names.
    fn resolve(&self, module: usize, path: &[String], depth: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        if depth > 32 {
            return None;
        }
        let start = match first.as_str() {
            "crate" => 0,
            "self" => module,
            "super" => self.modules[module].parent?,
            _ => return self.look_up(module, path, depth),
        };
        match rest.first().map(String::as_str) {
            None => Some(Target::Module(start)),
            Some("super") => self.resolve(start, rest, depth + 1),
            Some(name) => {
                let unknown = Target::Item(start, name.to_owned());
                self.look_up(start, rest, depth).or(Some(unknown))
            }
        }
    }

    /// As [`Self::resolve`], for a path that begins with a name of the module.
    fn look_up(&self, module: usize, path: &[String], depth: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let here = &self.modules[module];
        let found = here.names.get(first).into_iter().flatten().filter_map(|target| match target {
            // `use foo::{self}` and the like would name themselves.
            Target::Path(other) if other.len() == 1 && other[0] == *first => None,
            Target::Path(other) => self.resolve(module, other, depth + 1),
            target => Some(target.clone()),
        });
        let mut found: Vec<Target> = found.collect();
        for glob in &here.globs {
            let target = self.resolve(module, glob, depth + 1);
            if let Some(Target::Module(other)) = target
                && other != module
                && found.is_empty()
            {
                found.extend(self.look_up(other, &path[..1], depth + 8));
            }
        }
        let is_module = |target: &&Target| matches!(target, Target::Module(_));
        if rest.is_empty() {
            return found.iter().find(|target| !is_module(target)).or(found.first()).cloned();
        }
        match found.iter().find(is_module).or(found.first())? {
            Target::Module(child) => {
                let unknown = Target::Item(*child, rest[0].clone());
                self.look_up(*child, rest, depth + 1).or(Some(unknown))
            }
            target => Some(target.clone()),
        }
    }

    /// Notes that a module names an item.
    fn add_edge(&mut self, module: usize, path: &[String]) {
        let Some(Target::Item(other, name)) = self.resolve(module, path, 0) else { return };
        let (from, to) = (self.modules[module].file, self.modules[other].file);
        if from != to {
            let names = self.edges.entry(from).or_default().entry(to).or_default();
            names.insert(name);
        }
    }

    fn next(&self, file: usize) -> impl Iterator<Item = usize> {
        self.edges.get(&file).into_iter().flat_map(BTreeMap::keys).copied()
    }

    /// Strongly connected components of more than one file.
    fn circles(&self) -> Vec<BTreeSet<usize>> {
        let mut tarjan = Tarjan::new(self);
        for file in 0..self.files.len() {
            if !tarjan.order.contains_key(&file) {
                tarjan.visit(file);
            }
        }
        tarjan.circles
    }

    /// The imports of a file from the others of its circle.
    fn ties(&self, file: usize, circle: &BTreeSet<usize>) -> String {
        let others = self.edges[&file].iter().filter(|(other, _)| circle.contains(other));
        let ties = others.map(|(&other, names)| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            format!("{} of {}", names.join(", "), self.files[other].path)
        });
        let ties: Vec<String> = ties.collect();
        format!("circle of {} files: takes {}", circle.len(), ties.join("; "))
    }
}

/// The state of Tarjan's algorithm.
struct Tarjan<'a, 'b> {
    graph: &'a Graph<'b>,
    /// Order of the first visit, and the least that is reached from a file.
    order: BTreeMap<usize, (usize, usize)>,
    stack: Vec<usize>,
    circles: Vec<BTreeSet<usize>>,
}

impl<'a, 'b> Tarjan<'a, 'b> {
    fn new(graph: &'a Graph<'b>) -> Self {
        Self { graph, order: BTreeMap::new(), stack: Vec::new(), circles: Vec::new() }
    }

    fn visit(&mut self, file: usize) -> usize {
        let number = self.order.len();
        self.order.insert(file, (number, number));
        self.stack.push(file);
        let mut least = number;
        for next in self.graph.next(file) {
            if !self.order.contains_key(&next) {
                least = least.min(self.visit(next));
            } else if self.stack.contains(&next) {
                least = least.min(self.order[&next].0);
            }
        }
        self.order.insert(file, (number, least));
        if least == number {
            let start = self.stack.iter().position(|&other| other == file).expect("on the stack");
            let circle: BTreeSet<usize> = self.stack.drain(start..).collect();
            if circle.len() > 1 {
                self.circles.push(circle);
            }
        }
        least
    }
}

/// Adds the edges of all paths of a file.
struct Paths<'a, 'b> {
    graph: &'a mut Graph<'b>,
    module: usize,
}

impl Paths<'_, '_> {
    fn items(&mut self, items: &[Item]) {
        for item in items {
            self.visit_item(item);
        }
    }

    fn use_tree(&mut self, tree: &UseTree, mut path: Vec<String>) {
        match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.use_tree(&tree.tree, path);
            }
            UseTree::Name(tree) => {
                path.push(tree.ident.to_string());
                self.graph.add_edge(self.module, &path);
            }
            UseTree::Rename(tree) => {
                path.push(tree.ident.to_string());
                self.graph.add_edge(self.module, &path);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.use_tree(tree, path.clone());
                }
            }
            _ => {}
        }
    }

    /// Paths in the tokens of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end_path(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                token => {
                    self.end_path(&mut path);
                    colons = 0;
                    if let TokenTree::Group(group) = token {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.end_path(&mut path);
    }

    fn end_path(&mut self, path: &mut Vec<String>) {
        if !path.is_empty() {
            self.graph.add_edge(self.module, path);
            path.clear();
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_, '_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        let Item::Mod(inner) = item else { return visit::visit_item(self, item) };
        if let Some((_, items)) = &inner.content {
            let name = inner.ident.to_string();
            let found = self.graph.modules[self.module].names[&name].iter();
            let mut child = found.filter_map(|target| match target {
                Target::Module(child) => Some(*child),
                _ => None,
            });
            let outer = self.module;
            self.module = child.next_back().expect("an inline module");
            self.items(items);
            self.module = outer;
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        // A re-export uses nothing of its own.
        if matches!(item.vis, syn::Visibility::Inherited) {
            self.use_tree(&item.tree, Vec::new());
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names: Vec<String> =
                path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.graph.add_edge(self.module, &names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        self.tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

fn attributes(item: &Item) -> &[syn::Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The names that an item defines in its module.
fn names(item: &Item) -> Vec<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => match &item.ident {
            Some(ident) => ident,
            None => return names_of_tokens(item.mac.tokens.clone()),
        },
        _ => return Vec::new(),
    };
    vec![ident.to_string()]
}

/// The names of items in the tokens of a macro such as `thread_local!`.
fn names_of_tokens(tokens: TokenStream) -> Vec<String> {
    let mut names = Vec::new();
    let mut after_keyword = false;
    for token in tokens {
        let TokenTree::Ident(ident) = token else {
            after_keyword = false;
            continue;
        };
        let word = ident.to_string();
        if after_keyword {
            names.push(word.clone());
        }
        after_keyword = ["static", "struct", "fn", "const", "enum"].contains(&word.as_str());
    }
    names
}
