//! Reads Rust by its tokens: what stands in a comment or in a text is no path, and what is written over several lines is
//! found as well.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// The names of a path, in order.
pub type Path = Vec<String>;

/// What the checks look at in a file.
#[derive(Default)]
pub struct Source {
    /// Every path, the groups of a `use` written out one by one. `super` and `self` stand there as in the text.
    pub paths: BTreeSet<Path>,
    /// Every text literal, without its quotes; escapes as they were written.
    pub literals: Vec<String>,
}

impl Source {
    /// All of a file.
    pub fn whole(text: &str) -> Self {
        Self::of(&tokens(parsed(text), true))
    }

    /// A file without its tests.
    pub fn without_tests(text: &str) -> Self {
        Self::of(&tokens(parsed(text), false))
    }

    fn of(tokens: &[Token]) -> Self {
        let mut source = Self::default();
        paths(tokens, &[], &mut source.paths);
        literals(tokens, &mut source.literals);
        source
    }
}

/// Whether a file declares modules and holds nothing else but comments.
pub fn only_modules(text: &str) -> bool {
    let tokens = tokens(parsed(text), false);
    tokens.split_inclusive(|token| *token == Token::Mark(';')).all(|item| match item {
        [Token::Word(visible), Token::Word(module), Token::Word(_), Token::Mark(';')] => {
            visible == "pub" && module == "mod"
        }
        [Token::Word(module), Token::Word(_), Token::Mark(';')] => module == "mod",
        _ => false,
    })
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Mark(char),
    /// `::`
    Step,
    Literal(String),
    Group(Delimiter, Vec<Token>),
}

fn parsed(text: &str) -> TokenStream {
    text.parse().unwrap_or_else(|error| panic!("this is no Rust: {error}\n{text}"))
}

/// Without comments, and on demand without what is compiled for tests only.
fn tokens(stream: TokenStream, tests: bool) -> Vec<Token> {
    let mut trees = stream.into_iter().peekable();
    let mut found = Vec::new();
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Ident(word) => found.push(Token::Word(word.to_string())),
            TokenTree::Literal(literal) => found.push(Token::Literal(literal.to_string())),
            TokenTree::Group(group) => {
                found.push(Token::Group(group.delimiter(), tokens(group.stream(), tests)));
            }
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                trees.next_if(|next| matches!(next, TokenTree::Punct(inner) if inner.as_char() == '!'));
                let attribute = match trees.peek() {
                    Some(TokenTree::Group(group)) => group.stream().to_string().replace(' ', ""),
                    _ => continue,
                };
                // A doc comment reaches us as `#[doc = "…"]`.
                if attribute.starts_with("doc=") {
                    trees.next();
                } else if attribute == "cfg(test)" && !tests {
                    skip_item(&mut trees);
                }
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' && mark.spacing() == Spacing::Joint => {
                let second =
                    |next: &TokenTree| matches!(next, TokenTree::Punct(next) if next.as_char() == ':');
                let step = trees.next_if(second).is_some();
                found.push(if step { Token::Step } else { Token::Mark(':') });
            }
            TokenTree::Punct(mark) => found.push(Token::Mark(mark.as_char())),
        }
    }
    found
}

/// Goes past the next item: it ends with its braces or with a semicolon.
fn skip_item(trees: &mut impl Iterator<Item = TokenTree>) {
    for tree in trees {
        match tree {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            TokenTree::Punct(mark) if mark.as_char() == ';' => return,
            _ => {}
        }
    }
}

/// What can stand before a path that begins with `::`.
const KEYWORDS: [&str; 12] =
    ["use", "as", "dyn", "impl", "in", "mut", "return", "where", "else", "for", "match", "if"];

fn paths(tokens: &[Token], prefix: &[String], found: &mut BTreeSet<Path>) {
    let mut rest = tokens;
    while let Some((token, after)) = rest.split_first() {
        rest = after;
        match token {
            Token::Group(_, inner) => paths(inner, &[], found),
            // In a group of a `use`, what follows `as` is a new name and no path.
            Token::Word(word) if word == "as" && !prefix.is_empty() => {
                rest = rest.get(1..).unwrap_or_default()
            }
            Token::Word(word) => rest = one_path(word, rest, prefix, found),
            Token::Mark('*') if !prefix.is_empty() => _ = found.insert(joined(prefix, "*")),
            _ => {}
        }
    }
}

/// Reads the path that begins with `first`; returns what comes after it.
fn one_path<'t>(
    first: &str,
    mut rest: &'t [Token],
    prefix: &[String],
    found: &mut BTreeSet<Path>,
) -> &'t [Token] {
    let mut path = joined(prefix, first);
    // In `use ::sqlx` the path begins after the keyword.
    if KEYWORDS.contains(&first) {
        return rest;
    }
    loop {
        match rest {
            [Token::Step, Token::Word(word), after @ ..] => {
                path.push(word.clone());
                rest = after;
            }
            [Token::Step, Token::Group(Delimiter::Brace, inner), after @ ..] => {
                paths(inner, &path, found);
                return after;
            }
            [Token::Step, Token::Mark('*'), after @ ..] => {
                found.insert(joined(&path, "*"));
                return after;
            }
            _ => {
                found.insert(path);
                return rest;
            }
        }
    }
}

fn joined(prefix: &[String], word: &str) -> Path {
    prefix.iter().cloned().chain([word.to_owned()]).collect()
}

fn literals(tokens: &[Token], found: &mut Vec<String>) {
    for token in tokens {
        match token {
            Token::Group(_, inner) => literals(inner, found),
            Token::Literal(literal) => {
                let text = literal.split_once('"').and_then(|(_, text)| text.rsplit_once('"'));
                found.extend(text.map(|(text, _)| text.to_owned()));
            }
            _ => {}
        }
    }
}

#[test]
fn paths_and_texts_are_read_and_comments_are_not() {
    let text = r##"
        //! crate::comment
        use crate::a::{self, b::{C, D as E}, f::*};
        use ::sqlx::Row;
        /// `crate::doc` and "a doc"
        fn g(x: crate::h::T) -> &'static str { crate::i::<u8>(); x as crate::j::U; "crate::text" }
        #[cfg(test)]
        mod tests { use super::*; fn t() { k::l("test", r#"raw"#) } }
        fn m() { n::o() }
    "##;
    let read = |source: &Source| source.paths.iter().map(|path| path.join("::")).collect::<BTreeSet<_>>();
    let whole = Source::whole(text);
    let found = read(&whole);
    let all = ["crate::a::self", "crate::a::b::C", "crate::a::b::D", "crate::a::f::*", "sqlx::Row"];
    for path in all.iter().chain(&["crate::h::T", "crate::i", "crate::j::U", "super::*", "k::l", "n::o"]) {
        assert!(found.contains(*path), "{path}: {found:?}");
    }
    assert!(!found.iter().any(|path| ["comment", "doc", "text", "E"].iter().any(|no| path.ends_with(no))));
    assert_eq!(whole.literals, ["crate::text", "test", "raw"]);

    let without = Source::without_tests(text);
    assert_eq!(without.literals, ["crate::text"]);
    assert!(!read(&without).contains("k::l") && read(&without).contains("n::o"));
}

#[test]
fn a_file_with_more_than_modules_is_found() {
    assert!(only_modules("//! A comment.\n\n/// One.\npub mod a;\nmod b;\n"));
    assert!(!only_modules("pub mod a;\npub use a::T;\n"));
    assert!(!only_modules("mod a;\nfn f() {}\n"));
}
