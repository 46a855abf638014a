//! A CSV file with a header line. Every error says on which line of the file it stands, as an editor counts lines.

use std::num::IntErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use csv::StringRecord;

/// The rest of a wrong header is not shown.
const SHOWN_CHARS: usize = 200;

/// A line of the file, with the values of the columns that were asked for.
pub struct Row {
    /// Its number; of a record with line breaks in it, that of the first line.
    pub line: usize,
    values: Vec<(&'static str, String)>,
}

/// Reads the file's records. `columns` must stand in its header, in any order; others are not looked at.
pub fn read(file: &Path, columns: &[&'static str]) -> Result<Vec<Row>> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    rows(&bytes, columns)
}

fn rows(bytes: &[u8], columns: &[&'static str]) -> Result<Vec<Row>> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.trim_start_matches('\u{feff}'),
        Err(error) => bail!("line {}: this is not UTF-8", line_at(bytes, error.valid_up_to())),
    };
    // Records of another length are told of below, with the right line.
    let mut reader =
        csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(text.as_bytes());
    let line_of = |record: &StringRecord| {
        let at = record.position().map_or(0, |position| usize::try_from(position.byte()).unwrap_or(0));
        line_of_record(text.as_bytes(), at)
    };
    let header = reader.headers()?.clone();
    let places = places(&header, columns).with_context(|| format!("line {}", line_of(&header)))?;
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record?;
        let line = line_of(&record);
        if record.len() != header.len() {
            bail!(
                "line {line}: it has {}, the header has {}; columns are separated by commas",
                counted(record.len()),
                counted(header.len())
            );
        }
        let values = columns.iter().zip(&places).map(|(column, place)| (*column, record[*place].to_owned()));
        rows.push(Row { line, values: values.collect() });
    }
    Ok(rows)
}

fn counted(columns: usize) -> String {
    format!("{columns} column{}", if columns == 1 { "" } else { "s" })
}

/// Where in a record the columns stand.
fn places(header: &StringRecord, columns: &[&'static str]) -> Result<Vec<usize>> {
    let find = |column: &str| {
        let mut found = header.iter().enumerate().filter(|(_, name)| *name == column);
        let place = found.next().map(|(place, _)| place);
        place.filter(|_| found.next().is_none())
    };
    let places: Option<Vec<usize>> = columns.iter().map(|column| find(column)).collect();
    places.with_context(|| {
        let expected = columns.join(",");
        let shown: String = header.iter().collect::<Vec<_>>().join(",").chars().take(SHOWN_CHARS).collect();
        format!("the header must name each of these columns once, separated by commas: {expected}; it is {shown:?}")
    })
}

/// The number of the line that a record begins on. `at`: where the record before it ends, perhaps in front of its line break
/// and of empty lines.
fn line_of_record(text: &[u8], at: usize) -> usize {
    let breaks = text[at..].iter().take_while(|byte| [b'\r', b'\n'].contains(byte)).count();
    line_at(text, at + breaks)
}

/// The number of the line at a byte. A line ends with LF, CRLF or CR.
fn line_at(text: &[u8], at: usize) -> usize {
    let ends = |(place, byte): &(usize, &u8)| match byte {
        b'\n' => true,
        b'\r' => text.get(place + 1) != Some(&b'\n'),
        _ => false,
    };
    1 + text[..at].iter().enumerate().filter(ends).count()
}

impl Row {
    fn value(&self, column: &str) -> &str {
        self.values.iter().find(|(name, _)| *name == column).map_or("", |(_, value)| value)
    }

    /// A name or a code.
    pub fn text(&self, column: &str) -> Result<&str> {
        let value = self.value(column);
        if value.is_empty() {
            bail!("{}: it is empty", self.place(column));
        } else if value.contains(char::is_control) {
            bail!(
                "{}: it holds a line break or a control character; is a quote not closed?",
                self.place(column)
            );
        }
        Ok(value)
    }

    /// A whole number.
    pub fn number(&self, column: &str) -> Result<i64> {
        let value = self.value(column);
        value.parse().map_err(|error: std::num::ParseIntError| {
            let why = match error.kind() {
                IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "is too large",
                _ => "is not a whole number",
            };
            anyhow::anyhow!("{}: {value:?} {why}", self.place(column))
        })
    }

    /// A whole number, or `None` where there is nothing.
    pub fn optional_number(&self, column: &str) -> Result<Option<i64>> {
        if self.value(column).is_empty() { Ok(None) } else { self.number(column).map(Some) }
    }

    fn place(&self, column: &str) -> String {
        format!("line {}, column {column}", self.line)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use super::*;

    const COLUMNS: [&str; 2] = ["code", "onHand"];

    fn lines(text: &str) -> Vec<usize> {
        rows(text.as_bytes(), &COLUMNS).unwrap().iter().map(|row| row.line).collect()
    }

    fn refused(text: &[u8]) -> String {
        crate::one_line(&rows(text, &COLUMNS).err().unwrap())
    }

    #[test]
    fn lines_are_counted_as_an_editor_does_however_they_end() {
        for end in ["\n", "\r\n", "\r"] {
            let text = |lines: &[&str]| lines.join(end);
            assert_eq!(lines(&text(&["code,onHand", "A,1", "B,2", ""])), [2, 3], "{end:?}");
            assert_eq!(
                lines(&text(&["code,onHand", "A,1", "B,2"])),
                [2, 3],
                "{end:?}, no end of the last line"
            );
            assert_eq!(
                lines(&text(&["", "code,onHand", "", "A,1", "", "", "B,2"])),
                [4, 7],
                "{end:?}, empty lines"
            );
            assert_eq!(
                lines(&text(&["code,onHand,note", "A,1,\"two", "lines\"", "B,2,"])),
                [2, 4],
                "{end:?}, quotes"
            );
            assert_eq!(lines(&text(&["\u{feff}onHand,code", "1,A"])), [2], "{end:?}, a byte-order mark");
            let short = text(&["code,onHand", "A,1", "B"]);
            let told = "line 3: it has 1 column, the header has 2 columns; columns are separated by commas";
            assert_eq!(refused(short.as_bytes()), told, "{end:?}");
        }
        assert_eq!(refused(b"code,onHand\r\nA,1\r\nB\xff,2\r\n"), "line 3: this is not UTF-8");
        assert!(lines("code,onHand\n").is_empty());
    }

    #[test]
    fn another_header_is_refused_with_the_one_that_is_expected() {
        let expected =
            "the header must name each of these columns once, separated by commas: code,onHand; it is";
        for (text, shown) in [
            ("code;onHand\nA;1\n", "\"code;onHand\""),
            ("code,on_hand\nA,1\n", "\"code,on_hand\""),
            ("code,onHand,code\nA,1,A\n", "\"code,onHand,code\""),
            ("", "\"\""),
        ] {
            assert_eq!(refused(text.as_bytes()), format!("line 1: {expected} {shown}"));
        }
    }

    #[test]
    fn a_wrong_value_names_its_column() {
        let text = "onHand,code\nmany,\n89.00,\"a\nb\"\n99999999999999999999,c\n,d\n";
        let rows = rows(text.as_bytes(), &COLUMNS).unwrap();
        let told = |told: Result<i64>| told.unwrap_err().to_string();
        assert_eq!(told(rows[0].number("onHand")), "line 2, column onHand: \"many\" is not a whole number");
        assert_eq!(told(rows[1].number("onHand")), "line 3, column onHand: \"89.00\" is not a whole number");
        assert_eq!(
            told(rows[2].number("onHand")),
            "line 5, column onHand: \"99999999999999999999\" is too large"
        );
        assert_eq!(told(rows[3].number("onHand")), "line 6, column onHand: \"\" is not a whole number");
        assert_eq!(rows[3].optional_number("onHand").unwrap(), None);
        assert_eq!(rows[0].text("code").unwrap_err().to_string(), "line 2, column code: it is empty");
        assert!(
            rows[1]
                .text("code")
                .unwrap_err()
                .to_string()
                .contains("line 3, column code: it holds a line break")
        );
        assert_eq!(rows[2].text("code").unwrap(), "c");
    }
}
