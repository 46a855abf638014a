//! Structured logs to standard output, where Lambda collects them.

use std::env;
use std::fmt::{self, Debug};

use lambda_http::tracing::field::Field;
use lambda_http::tracing::subscriber::EnvFilter;
use lambda_http::tracing::subscriber::field::MakeExt as _;
use lambda_http::tracing::subscriber::filter::LevelFilter;
use lambda_http::tracing::subscriber::fmt::format::{Format, Full, Writer, debug_fn};
use lambda_http::tracing::subscriber::fmt::{FormatFields, SubscriberBuilder};

/// The log level comes from `AWS_LAMBDA_LOG_LEVEL` or `RUST_LOG`, the format from `AWS_LAMBDA_LOG_FORMAT`: `JSON`, or text.
pub fn init() {
    if env::var("AWS_LAMBDA_LOG_FORMAT").is_ok_and(|format| format.eq_ignore_ascii_case("json")) {
        lambda_http::tracing::init_default_subscriber();
        return;
    }
    // As `init_default_subscriber` makes it, but for the fields.
    let level = env::var("AWS_LAMBDA_LOG_LEVEL").or_else(|_| env::var("RUST_LOG"));
    let level = level.ok().and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::INFO);
    text().with_env_filter(EnvFilter::builder().with_default_directive(level.into()).from_env_lossy()).init();
}

fn text() -> SubscriberBuilder<impl for<'w> FormatFields<'w> + 'static, Format<Full, ()>> {
    lambda_http::tracing::subscriber::fmt()
        .with_target(false)
        .without_time()
        .fmt_fields(debug_fn(escaped).delimited(" "))
}

/// Writes a field on one line: what an error quotes could otherwise make up a line of its own.
fn escaped(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    if field.name() != "message" {
        write!(writer, "{}=", field.name())?;
    }
    for c in format!("{value:?}").chars() {
        if c.is_control() { write!(writer, "{}", c.escape_default())? } else { writer.write_char(c)? }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().map_err(|_| io::ErrorKind::Other)?.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_from_outside_makes_a_line_of_its_own() {
        let sink = Sink::default();
        let writer = sink.clone();
        let hostile = "a\nERROR forged\u{1b}[31m\r\u{85}";
        tracing::subscriber::with_default(text().with_writer(move || writer.clone()).finish(), || {
            let _span = tracing::info_span!("request", hostile).entered();
            tracing::info!(shown = %hostile, quoted = hostile, debug = ?hostile, "told {hostile}");
        });
        let written = String::from_utf8(sink.0.lock().expect("nobody panics").clone()).expect("text");
        let once = r"a\nERROR forged\u{1b}[31m\r\u{85}";
        let expected = format!(
            " INFO request{{hostile=\"{once}\"}}: told {once} shown={once} quoted=\"{once}\" debug=\"{once}\"\n"
        );
        assert_eq!(written, expected);
    }
}
