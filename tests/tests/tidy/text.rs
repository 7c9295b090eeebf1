//! Rules about lines and words.

use crate::{
    Finding,
    prose::prose,
    workspace::{File, Workspace},
};
use regex::Regex;

const LINE: usize = 100;

/// Patterns that a reader stumbles over, with the better words. Letters stand in brackets where
/// this file would otherwise find itself.
const WORDS: [(&str, &str); 25] = [
    (r"(?i)\bwho[e]ver\b", "name the subject: the thread, caller, transaction that ..."),
    (r"(?i)\bno[b]ody\b", "no thread, no caller, no transaction"),
    (r"(?i)\ban[y] more\b", "no longer"),
    (r"(?i)\bwhateve[r] (it|that|this) (is|was)\b", "any"),
    (r"(?i)\bo[f] before\b", "previous, earlier"),
    (r"(?i)\bb[y] (itself|themselves)\b", "auto-committed, single, alone, on its own"),
    (r"(?i)\b(bring|brings|brought|bringing) (it |them |pages? )?nea[r]\b", "prefetch"),
    (r"(?i)\bpatienc[e]\b", "timeout"),
    (r"(?i)\bcompan[y]\b", "commit group"),
    (r"(?i)\bgive[n] up\b", "evicted, cancelled, abandoned, refused"),
    (r"(?i)\ba[s] of one\b", "a consistent snapshot"),
    (r"(?i)\bbehin[d]\b", "after, past, later than"),
    (r"(?i)\bane[w]\b", "again, from the start"),
    (
        r"(?i)\bwh[o] (has|have|had|comes?|came|is|was|needs?|waits?|found|finds|meets?|met)\b",
        "a noun as the subject: a caller that ...",
    ),
    (
        r"(?i)\bwh[o] (reads?|writes?|wants?|asks?|gets?|holds?|takes?|knows?|sees?|looks?)\b",
        "a noun as the subject: a caller that ...",
    ),
    (r"(?:^|[.:;!?]\s+|\n)Wh[o] [a-z][^.?!\n]*(?:[.!\n]|$)", "a noun as the subject"),
    (r"(?:^|[.:;!?]\s+|\n)Wh[o]se [a-z][^.?!\n]*(?:[.!\n]|$)", "a noun as the subject"),
    (r"(?:^|[.:;!?]\s+|\n)Wha[t] [a-z][^.?!\n]*(?:[.!\n]|$)", "a noun, not a `what` clause"),
    (
        r"(?i)\bwha[t] (came|comes|follows|follow|stands|stood|lies|lay)\b",
        "a noun, not a `what` clause: the records after it",
    ),
    (r"(?i)\bth[e] one before\b", "the previous one"),
    (r"(?i)\bho[w] things are\b", "the state"),
    (r"(?i)\b(is|are|was|were) tol[d] of\b", "is notified of, is given"),
    (r"(?i)\bo[f] its own accord\b", "on its own"),
    (r"\bTOD[O]\b|\bFIXM[E]\b|\bXX[X]\b", "an issue, not a note in the code"),
    (r"(?i)\bissu[e] #?\d+\b", "the reason itself, which stays readable without the issue"),
];

/// Lines longer than 100 characters, but for tables, links and words that cannot be split.
pub fn line_length(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &workspace.files {
        for (index, line) in file.text.lines().enumerate() {
            let length = line.chars().count();
            if length > LINE && !may_be_long(file, line) {
                findings.push(file.finding(index + 1, format!("{length} characters")));
            }
        }
    }
    findings
}

fn may_be_long(file: &File, line: &str) -> bool {
    let text = line.trim().trim_start_matches(['/', '!', '#', ' ']);
    let is_table = text.starts_with('|') && text.ends_with('|');
    let is_link = text.contains("://") || (file.extension() == "md" && text.contains("]("));
    let is_one_word = !text.trim_start_matches("- ").contains(' ');
    is_table || is_link || is_one_word
}

/// Words of [`WORDS`] in comments, literals and documents.
pub fn words(workspace: &Workspace) -> Vec<Finding> {
    let patterns: Vec<(Regex, &str)> = WORDS
        .iter()
        .map(|&(pattern, better)| (Regex::new(pattern).expect("a pattern"), better))
        .collect();
    let mut findings = Vec::new();
    for file in &workspace.files {
        for block in prose(file) {
            for (pattern, better) in &patterns {
                for found in pattern.find_iter(&block.text) {
                    let skipped = found.as_str().len()
                        - found.as_str().trim_start_matches(['.', ':', ';', '!', '?', ' ']).len();
                    let words: String = found.as_str()[skipped..].trim().chars().take(40).collect();
                    findings.push(file.finding(
                        block.line(found.start() + skipped),
                        format!("\"{words}\"; better: {better}"),
                    ));
                }
            }
        }
    }
    findings
}
