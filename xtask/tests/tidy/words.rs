//! House rules that are seen line by line: lengths, what is left undone, folders, and words that were replaced.

use crate::files;

/// The two commands that a newcomer needs.
const COMMANDS: [&str; 2] = ["cargo xtask dev", "cargo xtask test"];
/// A file that is longer is two files.
const MAX_LINES: usize = 400;

#[test]
fn no_source_file_is_too_long() {
    let files = files();
    let sources = files.iter().filter(|(path, _)| path.ends_with(".rs") || path.ends_with(".sql"));
    let long =
        sources.map(|(path, text)| (path, text.lines().count())).filter(|(_, lines)| *lines > MAX_LINES);
    assert_eq!(long.collect::<Vec<_>>(), []);
}

/// The lines for which `wrong` says so.
fn lines(wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files() {
        let numbered = text.lines().enumerate().filter(|(_, line)| wrong(line));
        found.extend(numbered.map(|(index, line)| format!("{path}:{}: {line}", index + 1)));
    }
    found
}

// The needles are written in halves, so that this file does not hold them itself.

/// Words that said too little or meant two things, and have clear ones in their place.
const REPLACED: [&str; 4] = [
    concat!("de", "ed"),
    concat!("spel", "ling"),
    concat!("owed to ", "nobody"),
    concat!("sign of ", "life"),
];
/// Holds one of the words and is none of them.
const NOT_REPLACED: &str = concat!("inde", "ed");

#[test]
fn nothing_is_left_undone() {
    let macros = [concat!("to", "do!("), concat!("unimple", "mented!(")];
    let undone = lines(|line| macros.iter().any(|name| line.contains(name)));
    assert_eq!(undone, Vec::<String>::new());
    let skipped = lines(|line| line.trim_start().starts_with(concat!("#[", "ignore")));
    assert_eq!(skipped, Vec::<String>::new());
}

#[test]
fn no_file_names_a_folder_of_somebodys_machine() {
    let folders = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let named = lines(|line| folders.iter().any(|folder| line.contains(folder)));
    assert_eq!(named, Vec::<String>::new());
}

/// The lines, by number, in which a replaced word stands or begins: a comment may break a phrase over two lines.
fn replaced(text: &str) -> Vec<usize> {
    let lines: Vec<String> = text.lines().map(|line| line.to_lowercase().replace(NOT_REPLACED, "")).collect();
    let holds = |line: &str| REPLACED.iter().any(|word| line.contains(word));
    let comment = |next: char| next.is_whitespace() || ['/', '!', '-', '#', '>', '*'].contains(&next);
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let next = lines.get(index + 1).map(|next| next.trim_start_matches(comment)).unwrap_or_default();
        let broken = format!("{} {next}", line.trim_end());
        if holds(line) || (holds(&broken) && !holds(next)) {
            found.push(index + 1);
        }
    }
    found
}

#[test]
fn the_words_that_were_replaced_do_not_come_back() {
    let files = files();
    let mut found = Vec::new();
    for (path, text) in &files {
        if [".rs", ".sql", ".md", ".yaml"].iter().any(|end| path.ends_with(end)) {
            let lines: Vec<&str> = text.lines().collect();
            let replaced = replaced(text).into_iter();
            found.extend(replaced.map(|number| format!("{path}:{number}: {}", lines[number - 1].trim())));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_replaced_word_is_found() {
    let text = concat!(
        "// Needed, exceeded, inde",
        "ed.\n",
        "// A De",
        "ed of a person.\n",
        "fn two_spel",
        "lings() {}\n",
        "    /// It is owed\n    /// to ",
        "nobody any more.\n",
        "-- A sign of\n-- li",
        "fe.\n",
    );
    assert_eq!(replaced(text), [2, 3, 4, 6]);
}

#[test]
fn the_readme_names_the_two_commands() {
    let files = files();
    let Some(readme) = files.get("README.md") else {
        return;
    };
    for command in COMMANDS {
        assert!(readme.contains(command), "README.md does not name `{command}`");
    }
}
