//! The program as an operator runs it: what it says of an operator's mistakes.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod exceptions;
mod senders;
mod targets;

use std::process::{Command, Output};

use serde_json::Value;
use testing::{TempFile, TestDb};

/// The exit status of a failure, and of wrong arguments.
const FAILED: i32 = 1;
const WRONG_ARGUMENTS: i32 = 2;

fn holdfast(url: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(args).env("DATABASE_URL", url);
    command.env_remove("HOLDFAST_APP_PASSWORD").env_remove("HOLDFAST_WORKER_PASSWORD").output().unwrap()
}

/// The JSON object that a command prints.
fn printed(url: &str, args: &[&str]) -> Value {
    let output = holdfast(url, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The JSON objects that a command prints, one a line.
fn printed_lines(url: &str, args: &[&str]) -> Vec<Value> {
    let output = holdfast(url, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// What a command that is refused says, without the prefix of an error.
fn refused(url: &str, args: &[&str], status: i32) -> String {
    let output = holdfast(url, args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
    assert!(output.stdout.is_empty(), "{args:?}");
    said.strip_prefix("error: ").unwrap_or_else(|| panic!("{args:?}: {said}")).to_owned()
}

fn new_tenant(url: &str) -> String {
    printed(url, &["admin", "tenant", "create", "--name", "Birch"])["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_csv_file_is_refused_with_the_line_and_the_column_that_is_wrong() {
    let db = TestDb::create().await;
    let tenant = new_tenant(&db.owner_url);
    let import = |what, csv: &str| {
        let file = TempFile::with(csv);
        refused(&db.owner_url, &["admin", "import", "--tenant", &tenant, what, file.path()], FAILED)
    };
    for end in ["\n", "\r\n"] {
        let lines = |lines: &[&str]| lines.join(end);
        let styles = "name,currency,wholesaleMinor,msrpMinor";
        assert_eq!(
            import("styles", &lines(&[styles, "Jacket,USD,8900,19800", "Parka,USD,89.00,19800"])),
            "line 3, column wholesaleMinor: \"89.00\" is not a whole number\n",
            "{end:?}"
        );
        assert_eq!(
            import("styles", &lines(&[styles, "Jacket,USD,8900,19800", "Parka,usd,8900,19800"])),
            "line 3: a currency is three capital letters, like USD\n",
            "{end:?}"
        );
        assert_eq!(
            import("stock", &lines(&["code;onHand", "HJ-S;6"])),
            "line 1: the header must name each of these columns once, separated by commas: code,onHand; \
             it is \"code;onHand\"\n"
        );
        assert_eq!(
            import("skus", &lines(&["code,style", "HJ-S,Jacket", ""])),
            "line 2: there is no style named \"Jacket\"; import the styles first\n"
        );
    }
    assert_eq!(
        db.scalar::<i64>("select count(*) from style").await,
        0,
        "a file is imported as a whole or not at all"
    );
}

#[tokio::test]
async fn what_nobody_could_use_is_refused_in_words() {
    let db = TestDb::create().await;
    let url = &db.owner_url;
    let tenant = new_tenant(url);
    let user = |name, email| {
        let args = ["admin", "user", "create", "--tenant", &tenant, "--name", name, "--email", email];
        refused(url, &args, WRONG_ARGUMENTS)
    };
    assert!(
        refused(url, &["admin", "tenant", "create", "--name", " "], WRONG_ARGUMENTS)
            .contains("must not be blank")
    );
    assert!(user("", "ana@birch.example").contains("must not be blank"));
    assert!(user("Ana", "Ana <ana@birch.example>").contains("a mail address is name@domain"));

    let shop = ["admin", "shop", "create", "--tenant", &tenant, "--domain"];
    let pasted = refused(url, &[&shop[..], &["https://Birch.myshopify.com/"]].concat(), WRONG_ARGUMENTS);
    assert!(pasted.contains("give only birch.myshopify.com"), "{pasted}");
    let made = printed(url, &[&shop[..], &["Birch.myshopify.com"]].concat());
    assert_eq!(made["domain"], "birch.myshopify.com");
    let tests = ["admin", "shop", "test-orders", "--set", "ignore", "--domain"];
    let set = printed(url, &[&tests[..], &["birch.myshopify.com"]].concat());
    assert_eq!(set["ignoresTestOrders"], true);

    let account = ["admin", "threepl", "create", "--tenant", &tenant, "--account", "north", "--secret"];
    let short = refused(url, &[&account[..], &["whsec_c2VjcmV0"]].concat(), FAILED);
    assert_eq!(short, "--secret: it must be 24 to 64 bytes in base64; this one is 6 bytes\n");
    printed(url, &[&account[..], &["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]].concat());

    let nowhere = "00000000-0000-0000-0000-000000000000";
    let file = TempFile::with("code,onHand\n");
    let args = ["admin", "import", "--tenant", nowhere, "stock", file.path()];
    assert_eq!(refused(url, &args, FAILED), "there is no tenant with this id\n");
}

#[tokio::test]
async fn another_database_is_refused_in_words_and_without_a_line_of_the_servers_source() {
    let db = TestDb::create().await;
    let list = ["admin", "tenant", "list"];
    for url in ["mysql://owner:secret@127.0.0.1/holdfast", "host=127.0.0.1 password=secret"] {
        for args in [&list[..], &["migrate"]] {
            let told = refused(url, args, WRONG_ARGUMENTS);
            assert!(told.contains("this one does not begin with postgres://"), "{told}");
            assert!(!told.contains("secret"), "{told}");
        }
    }

    let absent = db.owner_url.replace(db.name(), "holdfast_of_nobody");
    let told = "cannot connect to the database: database \"holdfast_of_nobody\" does not exist\n";
    assert_eq!(refused(&absent, &list, FAILED), told);
    assert_eq!(refused(&absent, &["migrate"], FAILED), told);

    // As another release would have left it.
    db.execute("alter table tenant rename column name to title").await;
    let older = "this database is older than this program: run `holdfast migrate` first\n";
    assert_eq!(refused(&db.owner_url, &list, FAILED), older);
    db.execute("drop table webhook_inbox; delete from _sqlx_migrations where version = 1").await;
    let again = refused(&db.owner_url, &["migrate"], FAILED);
    assert_eq!(again, "cannot migrate: migration 1 cannot be applied: schema \"holdfast\" already exists\n");
    db.execute("drop schema public cascade; create schema public").await;
    let not_migrated = "this database has not been migrated: run `holdfast migrate` first\n";
    assert_eq!(refused(&db.owner_url, &list, FAILED), not_migrated);
}

#[tokio::test]
async fn a_tenant_is_bound_to_a_stripe_account_once_and_unbound() {
    let db = TestDb::create().await;
    let (url, tenant) = (db.owner_url.as_str(), new_tenant(&db.owner_url));
    let bind = ["admin", "stripe", "bind", "--tenant", &tenant, "--account", "acct_1Abc"];
    assert_eq!(printed(url, &bind)["tenantId"], tenant.as_str());
    refused(url, &bind, FAILED);
    assert_eq!(printed(url, &["admin", "stripe", "list"])["account"], "acct_1Abc");
    printed(url, &["admin", "stripe", "unbind", "--account", "acct_1Abc"]);
    refused(url, &["admin", "stripe", "unbind", "--account", "acct_1Abc"], FAILED);
    refused(url, &["admin", "stripe", "bind", "--tenant", &tenant, "--account", "1Abc"], WRONG_ARGUMENTS);
}
