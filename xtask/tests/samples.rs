//! What the OpenAPI file shows partners for verifying a delivery is run: each sample that this machine has the language for.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;

use standardwebhooks::Webhook;

/// Two secrets as the console makes them.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ANOTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const BODY: &str = "{\"id\":\"1\",\"data\":{\"atsAfter\":236,\"name\":\"é\"}}";

/// The code between ```` ```language ```` and the next fence, without its indentation.
fn sample(language: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = std::fs::read_to_string(root.join("openapi.yaml")).unwrap();
    let code = text.split(&format!("```{language}\n")).nth(1).unwrap().split("```").next().unwrap();
    let lines = code.lines().map(|line| line.strip_prefix("    ").unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether the sample takes a delivery; `None` if there is no such program here.
fn takes(program: &str, file: &str, code: &str, time: i64, signature: &str, body: &str) -> Option<bool> {
    Command::new(program).arg(if program == "java" { "-version" } else { "--version" }).output().ok()?;
    let folder = Folder(std::env::temp_dir().join(format!("holdfast-{}", uuid::Uuid::new_v4())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let path = folder.0.join(file);
    std::fs::write(&path, code).unwrap();
    let output =
        Command::new(program).arg(&path).args([SECRET, &time.to_string(), signature, body]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).trim().to_lowercase();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Some(said == "true")
}

fn signature(secret: &str, time: i64, body: &str) -> String {
    Webhook::new(secret).unwrap().sign("outbox-7", time, body.as_bytes()).unwrap()
}

fn holds_to_the_scheme(program: &str, file: &str, code: &str) {
    let now = jiff::Timestamp::now().as_second();
    let good = signature(SECRET, now, BODY);
    let rotated = format!("{} {good}", signature(ANOTHER, now, BODY));
    let changed = BODY.replace("236", "237");
    for (why, time, signature, body, expected) in [
        ("as it was sent", now, good.clone(), BODY, true),
        ("during a rotation", now, rotated, BODY, true),
        ("by another secret", now, signature(ANOTHER, now, BODY), BODY, false),
        ("another body", now, good.clone(), changed.as_str(), false),
        ("another time", now - 1, good, BODY, false),
        ("too old", now - 301, signature(SECRET, now - 301, BODY), BODY, false),
    ] {
        let Some(taken) = takes(program, file, code, time, &signature, body) else {
            return testing::left_out("a language of the samples is not installed");
        };
        assert_eq!(taken, expected, "{program}: {why}");
    }
}

#[test]
fn the_python_sample_verifies() {
    let call = "import sys\nsecret, time_, signature, body = sys.argv[1:]\nheaders = {'webhook-id': 'outbox-7', \
                'webhook-timestamp': time_, 'webhook-signature': signature}\nprint(verify(secret, headers, body.encode()))\n";
    holds_to_the_scheme("python3", "sample.py", &format!("{}\n{call}", sample("python")));
}

#[test]
fn the_javascript_sample_verifies() {
    let call = "const [secret, time, signature, body] = process.argv.slice(2);\nconsole.log(verify(secret, {'webhook-id': \
                'outbox-7', 'webhook-timestamp': time, 'webhook-signature': signature}, Buffer.from(body)));\n";
    holds_to_the_scheme("node", "sample.cjs", &format!("{}\n{call}", sample("javascript")));
}

#[test]
fn the_java_sample_verifies() {
    let call = "public class Main { public static void main(String[] a) throws Exception { System.out.println(Webhook.verify(a[0], \
                java.util.Map.of(\"webhook-id\", \"outbox-7\", \"webhook-timestamp\", a[1], \"webhook-signature\", a[2]), \
                a[3].getBytes(\"UTF-8\"))); } }\n";
    holds_to_the_scheme("java", "Main.java", &format!("{call}{}", sample("java")));
}
