//! Rules about Rust code: reasons of `unsafe`, macros of unfinished work, length of files and
//! functions.

use crate::{
    Finding,
    prose::Tokens,
    workspace::{File, Workspace},
};
use proc_macro2::Span;
use syn::{
    Attribute, Block, ExprUnsafe, ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemTrait, Macro,
    Signature, TraitItemFn,
    visit::{self, Visit},
};

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 80;
/// How the reason of a long function begins, in or above it.
const LONG_BECAUSE: &str = "Long because";

/// Whether an item is compiled for tests only.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let condition = list.tokens.to_string();
        list.path.is_ident("cfg")
            && condition.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
            && !condition.replace(' ', "").contains("not(test)")
    })
}

/// Every `unsafe fn` has `# Safety`, unless its trait has it. Every `unsafe` block and
/// `unsafe impl` has a `SAFETY:` comment.
pub fn unsafe_reasons(workspace: &Workspace) -> Vec<Finding> {
    walk(workspace, |file, code| {
        let mut findings = Vec::new();
        for (line, has_section) in &code.unsafe_functions {
            if !has_section {
                findings.push(file.finding(*line, "unsafe fn without `# Safety`"));
            }
        }
        if code.unsafe_blocks.is_empty() {
            return findings;
        }
        let lines = Tokens::new(&file.text, file.tokens()).lines(&file.text);
        for &line in &code.unsafe_blocks {
            if !has_reason(file, &lines, line) {
                findings.push(file.finding(line, "unsafe without a SAFETY comment"));
            }
        }
        findings
    })
}

/// No `todo!`, `unimplemented!` or `dbg!`.
pub fn unfinished(workspace: &Workspace) -> Vec<Finding> {
    walk(workspace, |file, code| {
        let unfinished = code.macros.iter().filter(|(_, name)| {
            ["todo", "unimplemented", "dbg"].iter().any(|banned| name == banned)
        });
        unfinished.map(|(line, name)| file.finding(*line, format!("{name}!"))).collect()
    })
}

/// Files outside of tests have at most 600 lines.
pub fn file_length(workspace: &Workspace) -> Vec<Finding> {
    let files = workspace.with_extension("rs").filter(|file| !file.is_test());
    let counts = files.map(|file| (file, file.text.lines().count()));
    let long = counts.filter(|&(_, lines)| lines > FILE_LINES);
    long.map(|(file, lines)| file.finding(lines, format!("{lines} lines"))).collect()
}

/// Functions outside of tests have at most 80 lines, or a comment `Long because ...`.
pub fn function_length(workspace: &Workspace) -> Vec<Finding> {
    walk(workspace, |file, code| {
        if file.is_test() {
            return Vec::new();
        }
        let lines: Vec<&str> = file.text.lines().collect();
        let mut findings = Vec::new();
        for (name, first, last) in &code.functions {
            let length = last + 1 - first;
            if length <= FUNCTION_LINES {
                continue;
            }
            let above = lines[..first - 1].iter().rev();
            let comments = above.take_while(|line| line.trim().starts_with(['/', '#'])).count();
            let text = lines[first - 1 - comments..*last].join("\n");
            if !text.contains(LONG_BECAUSE) {
                findings.push(file.finding(*first, format!("{name} has {length} lines")));
            }
        }
        findings
    })
}

fn walk(workspace: &Workspace, rule: impl Fn(&File, &CodeOfFile) -> Vec<Finding>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in workspace.with_extension("rs") {
        let mut code = CodeOfFile::default();
        code.visit_file(&file.syntax());
        findings.extend(rule(file, &code));
    }
    findings
}

/// Whether a comment with `SAFETY:` stands on the line, or above the statement of the line.
fn has_reason(file: &File, lines: &[(bool, Option<&str>)], line: usize) -> bool {
    let source: Vec<&str> = file.text.lines().collect();
    let says = |index: usize| lines[index].1.is_some_and(|comment| comment.contains("SAFETY:"));
    let mut index = line - 1;
    if says(index) {
        return true;
    }
    let mut in_comment = false;
    while index > 0 {
        index -= 1;
        let (has_code, comment) = lines[index];
        if comment.is_some() && !has_code {
            in_comment = true;
            if says(index) {
                return true;
            }
            continue;
        }
        let code = source[index].trim_end();
        if in_comment || says(index) || code.is_empty() {
            return says(index);
        }
        if code.ends_with([';', '}']) {
            return false;
        }
    }
    false
}

/// Whether the documentation has `# Safety`.
fn has_section(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::NameValue(value) = &attribute.meta else { return false };
        let syn::Expr::Lit(literal) = &value.value else { return false };
        matches!(&literal.lit, syn::Lit::Str(text) if text.value().contains("# Safety"))
    })
}

/// The places of one file that the rules look at, without functions that only tests have.
#[derive(Default)]
struct CodeOfFile {
    /// Line, and whether the documentation has `# Safety`.
    unsafe_functions: Vec<(usize, bool)>,
    /// Lines of `unsafe` blocks and implementations.
    unsafe_blocks: Vec<usize>,
    /// Name, first and last line.
    functions: Vec<(String, usize, usize)>,
    macros: Vec<(usize, String)>,
    /// Depth of modules for tests.
    in_tests: usize,
    /// Whether the trait documents the functions.
    in_implementation: bool,
}

fn line(span: Span) -> usize {
    span.start().line
}

impl CodeOfFile {
    fn function(&mut self, attributes: &[Attribute], signature: &Signature, block: Option<&Block>) {
        let is_test = self.in_tests > 0 || is_for_tests(attributes);
        if matches!(signature.safety, syn::Safety::Unsafe(_)) && !self.in_implementation {
            self.unsafe_functions.push((line(signature.fn_token.span), has_section(attributes)));
        }
        if let Some(block) = block.filter(|_| !is_test) {
            let last = block.brace_token.span.close().end().line;
            self.functions.push((signature.ident.to_string(), line(signature.fn_token.span), last));
        }
    }
}

impl<'ast> Visit<'ast> for CodeOfFile {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.attrs, &item.sig, Some(&item.block));
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.attrs, &item.sig, Some(&item.block));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.function(&item.attrs, &item.sig, item.default.as_ref());
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let for_tests = usize::from(is_for_tests(&item.attrs));
        self.in_tests += for_tests;
        visit::visit_item_mod(self, item);
        self.in_tests -= for_tests;
    }

    fn visit_expr_unsafe(&mut self, block: &'ast ExprUnsafe) {
        self.unsafe_blocks.push(line(block.unsafe_token.span));
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if let Some(token) = &item.unsafety {
            self.unsafe_blocks.push(line(token.span));
        }
        self.in_implementation = item.trait_.is_some();
        visit::visit_item_impl(self, item);
        self.in_implementation = false;
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        if item.unsafety.is_some() {
            self.unsafe_functions.push((line(item.trait_token.span), has_section(&item.attrs)));
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        if let Some(name) = item.path.segments.last() {
            self.macros.push((line(name.ident.span()), name.ident.to_string()));
        }
        visit::visit_macro(self, item);
    }
}
