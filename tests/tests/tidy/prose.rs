//! The sentences of a file: comments and string literals of Rust, comments of other languages,
//! paragraphs of Markdown.

use crate::workspace::File;
use proc_macro2::{TokenStream, TokenTree};
use std::ops::Range;

/// A block of text that belongs together, in one line, where `\n` separates its paragraphs.
pub struct Prose {
    pub text: String,
    pub is_literal: bool,
    /// Where each source line begins in `text`: byte and line number.
    starts: Vec<(usize, usize)>,
}

impl Prose {
    fn new(is_literal: bool) -> Self {
        Self { text: String::new(), is_literal, starts: Vec::new() }
    }

    fn push(&mut self, line: usize, text: &str) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push(' ');
        }
        self.starts.push((self.text.len(), line));
        self.text.push_str(text);
    }

    fn end_paragraph(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    /// Number of the source line of a byte of `text`.
    pub fn line(&self, byte: usize) -> usize {
        let after = self.starts.partition_point(|&(start, _)| start <= byte);
        self.starts[after.max(1) - 1].1
    }
}

/// All prose of a file.
pub fn prose(file: &File) -> Vec<Prose> {
    match file.extension() {
        "rs" => {
            let tokens = Tokens::new(&file.text, file.tokens());
            let mut all = tokens.comments(&file.text);
            all.extend(tokens.literals(&file.text));
            all
        }
        "md" => markdown(&file.text),
        _ => hash_comments(&file.text),
    }
}

/// Byte ranges of the tokens that are not comments.
pub struct Tokens {
    code: Vec<Range<usize>>,
    literals: Vec<Range<usize>>,
}

impl Tokens {
    pub fn new(source: &str, tokens: TokenStream) -> Self {
        let mut all = Self { code: Vec::new(), literals: Vec::new() };
        all.add(source, tokens);
        all
    }

    /// A documentation comment reads as the tokens of an attribute with the place of the comment.
    fn add(&mut self, source: &str, tokens: TokenStream) {
        let is_comment = |range: &Range<usize>| {
            source[range.clone()].starts_with("//") || source[range.clone()].starts_with("/*")
        };
        for token in tokens {
            let range = token.span().byte_range();
            if is_comment(&range) {
                continue;
            }
            match token {
                TokenTree::Group(group) => {
                    self.code.push(group.span_open().byte_range());
                    self.add(source, group.stream());
                    self.code.push(group.span_close().byte_range());
                }
                TokenTree::Literal(literal) => {
                    if literal.to_string().contains('"') {
                        self.literals.push(range.clone());
                    }
                    self.code.push(range);
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => self.code.push(range),
            }
        }
    }

    /// For each line: whether it has code, and its comment without the marks, if any.
    pub fn lines<'a>(&self, source: &'a str) -> Vec<(bool, Option<&'a str>)> {
        let mut lines = Vec::new();
        let mut start = 0;
        let mut next = 0;
        for line in source.split_inclusive('\n') {
            let end = start + line.len();
            let mut comment_start = start;
            let mut has_code = false;
            while next < self.code.len() && self.code[next].start < end {
                has_code = true;
                comment_start = self.code[next].end;
                if self.code[next].end > end {
                    break;
                }
                next += 1;
            }
            let comment = source.get(comment_start.min(end)..end).unwrap_or("").trim();
            let has_comment = !comment.is_empty();
            lines.push((has_code, has_comment.then(|| without_marks(comment))));
            start = end;
        }
        lines
    }

    fn comments(&self, source: &str) -> Vec<Prose> {
        let mut all = Vec::new();
        let mut block = Prose::new(false);
        for (index, (has_code, comment)) in self.lines(source).into_iter().enumerate() {
            if has_code || comment.is_none() {
                finish(&mut all, &mut block);
            }
            match comment {
                Some("") => block.end_paragraph(),
                Some(comment) => block.push(index + 1, comment),
                None => {}
            }
        }
        finish(&mut all, &mut block);
        all
    }

    fn literals(&self, source: &str) -> Vec<Prose> {
        let mut all = Vec::new();
        for range in &self.literals {
            let first = source[..range.start].matches('\n').count() + 1;
            let mut block = Prose::new(true);
            for (index, line) in source[range.clone()].lines().enumerate() {
                block.push(first + index, line.trim().trim_end_matches('\\'));
            }
            all.push(block);
        }
        all
    }
}

fn finish(all: &mut Vec<Prose>, block: &mut Prose) {
    if !block.text.is_empty() {
        all.push(std::mem::replace(block, Prose::new(false)));
    }
}

fn without_marks(comment: &str) -> &str {
    let comment = comment.strip_suffix("*/").unwrap_or(comment);
    let marks = ["///", "//!", "//", "/**", "/*!", "/*", "* "];
    let text = marks.iter().find_map(|mark| comment.strip_prefix(mark)).unwrap_or(comment);
    text.trim()
}

fn markdown(text: &str) -> Vec<Prose> {
    let mut all = Vec::new();
    let mut block = Prose::new(false);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let alone = line.starts_with(['|', '#']) || line.starts_with("```");
        if line.is_empty() || alone || line.starts_with("- ") {
            finish(&mut all, &mut block);
        }
        if !line.is_empty() {
            block.push(index + 1, line);
        }
        if alone {
            finish(&mut all, &mut block);
        }
    }
    finish(&mut all, &mut block);
    all
}

/// Comments of shell scripts and TOML.
fn hash_comments(text: &str) -> Vec<Prose> {
    let mut all = Vec::new();
    let mut block = Prose::new(false);
    for (index, line) in text.lines().enumerate() {
        match line.trim().strip_prefix('#') {
            Some(comment) => block.push(index + 1, comment.trim()),
            None => finish(&mut all, &mut block),
        }
    }
    finish(&mut all, &mut block);
    all
}
