//! Brings a database to the state that this release needs; the only code that changes a schema.
//!
//! Promises: it can be repeated, and run several times at once; it works on an empty and on a filled database, on
//! PostgreSQL 15 and newer, as a superuser or as an owner with CREATEROLE.
//! Relies on the SQL of `migrations/`, which is compiled in. Cannot go back to an earlier release.

use std::borrow::Cow;
use std::time::Duration;

use include_dir::{Dir, include_dir};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqlStr};

use crate::database::{explained, owner_options};

/// `migrations/` as it was when this program was built.
static FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../migrations");

/// Attempts of a statement on roles, see [`run_on_roles`]. With pauses of some 30 ms they last for half a second, much
/// longer than the other migration needs.
const ROLE_ATTEMPTS: u32 = 20;
const ROLE_PAUSE_MS: std::ops::Range<u64> = 5..50;

/// A step that waits for a lock holds up every request that comes after it. So it gives up soon, and leaves a pause for them.
const LOCK_TIMEOUT: &str = "set lock_timeout = '2s'";
const LOCK_RETRIES: u32 = 60;
const LOCK_PAUSE_MS: std::ops::Range<u64> = 500..1_500;

/// Taken before functions are replaced: two concurrent `create or replace` of one function fail.
const FUNCTIONS_LOCK: &str = "select pg_advisory_xact_lock(hashtextextended('holdfast/functions', 0))";

/// New passwords for the roles that functions log in as; `None` keeps the old one.
#[derive(Clone, Default)]
pub struct RolePasswords {
    /// Of `holdfast_app`.
    pub app: Option<String>,
    /// Of `holdfast_worker`.
    pub worker: Option<String>,
}

/// Why the database was not migrated. What was done before the failure stays done; repeating is safe.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The address is none.
    #[error(transparent)]
    Address(#[from] postgres_url::WrongAddress),
    /// The owner cannot connect.
    #[error("cannot connect to the database")]
    Connect(#[source] sqlx::Error),
    /// A role could not be created, or a password not set.
    #[error("cannot set up the roles")]
    Roles(#[source] sqlx::Error),
    /// A numbered migration failed, or differs from the one that was applied before.
    #[error("cannot migrate")]
    Numbered(#[from] sqlx::migrate::MigrateError),
    /// A file of `migrations/functions/` failed; none of them was applied.
    #[error("cannot apply migrations/{file}")]
    Functions {
        /// The file's path below `migrations/`.
        file: String,
        /// The cause.
        source: sqlx::Error,
    },
}

/// Arguments of `holdfast migrate`.
#[derive(Clone, Default, clap::Args)]
pub struct Args {
    /// New password of the role holdfast_app (HTTP functions) [default: keep the old one].
    #[arg(long, env = "HOLDFAST_APP_PASSWORD", hide_env_values = true, value_name = "PASSWORD")]
    app_password: Option<String>,
    /// New password of the role holdfast_worker (relay and reaper) [default: keep the old one].
    #[arg(long, env = "HOLDFAST_WORKER_PASSWORD", hide_env_values = true, value_name = "PASSWORD")]
    worker_password: Option<String>,
}

/// `holdfast migrate`: migrates and prints what it did.
pub async fn run(owner_url: &str, args: Args) -> anyhow::Result<()> {
    let given = |password: Option<String>| password.filter(|password| !password.is_empty());
    let passwords = RolePasswords { app: given(args.app_password), worker: given(args.worker_password) };
    let set: Vec<&str> = [("holdfast_app", &passwords.app), ("holdfast_worker", &passwords.worker)]
        .into_iter()
        .filter_map(|(role, password)| password.as_ref().map(|_| role))
        .collect();
    let Migrated { from, to, retries } = migrate(owner_url, Some(passwords.clone())).await?;
    if from != to {
        println!("migrations {from} to {to} are applied");
    }
    if retries > 0 {
        println!("waited for locks {retries} times");
    }
    match set.as_slice() {
        [] => println!("migrated; the roles' passwords stay as they are"),
        roles => println!("migrated; set the password of {}", roles.join(" and ")),
    }
    Ok(())
}

/// What a migration found and left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Migrated {
    /// Number of the last numbered migration before; 0 for an empty database.
    pub from: i64,
    /// The same afterwards.
    pub to: i64,
    /// Steps that were tried again, since requests held what they needed.
    pub retries: u32,
}

/// Migrates the database at `owner_url`: first the roles, then the numbered migrations, each in a transaction, then all
/// functions in one transaction. Each step that waits for a lock for longer than 2 s steps back and is tried again, for some
/// minutes in all: requests that run would queue behind a step that waits.
pub async fn migrate(owner_url: &str, passwords: Option<RolePasswords>) -> Result<Migrated, MigrateError> {
    let options = owner_options(owner_url)?;
    let mut conn = PgConnection::connect_with(&options)
        .await
        .map_err(|error| MigrateError::Connect(explained(error)))?;
    let passwords = passwords.unwrap_or_default();
    let mut retries = 0;
    let migrated = loop {
        match attempt(&mut conn, &passwords).await {
            Err(error) if retries < LOCK_RETRIES && is_in_the_way(&error) => {
                retries += 1;
                tokio::time::sleep(Duration::from_millis(rand::random_range(LOCK_PAUSE_MS))).await;
            }
            done => break done,
        }
    };
    // The outcome does not depend on a clean close.
    let _ = conn.close().await;
    migrated.map(|(from, to)| Migrated { from, to, retries })
}

/// What is done stays done, and is passed over by the next attempt.
async fn attempt(conn: &mut PgConnection, passwords: &RolePasswords) -> Result<(i64, i64), MigrateError> {
    sqlx::query(LOCK_TIMEOUT).execute(&mut *conn).await.map_err(MigrateError::Connect)?;
    let from = last_applied(conn).await?;
    set_up_roles(conn, passwords.clone()).await?;
    Migrator::with_migrations(numbered()).run(&mut *conn).await?;
    replace_functions(conn).await?;
    Ok((from, last_applied(conn).await?))
}

/// The number of the last numbered migration; 0 in an empty database.
pub async fn last_applied(conn: &mut PgConnection) -> Result<i64, MigrateError> {
    let asked = async {
        let there: bool = sqlx::query_scalar("select to_regclass('_sqlx_migrations') is not null")
            .fetch_one(&mut *conn)
            .await?;
        match there {
            true => {
                sqlx::query_scalar("select coalesce(max(version), 0) from _sqlx_migrations")
                    .fetch_one(conn)
                    .await
            }
            false => Ok(0),
        }
    };
    asked.await.map_err(MigrateError::Connect)
}

/// The number of the last migration that this program carries.
pub fn last_carried() -> i64 {
    numbered().last().map_or(0, |migration| migration.version)
}

/// Whether a step met a lock that somebody held for too long (55P03), or a deadlock with a request (40P01).
fn is_in_the_way(error: &MigrateError) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(sqlx::Error::Database(db)) = error.downcast_ref()
            && db.code().is_some_and(|code| matches!(code.as_ref(), "55P03" | "40P01"))
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The SQL files of a folder and its subfolders as (path below `migrations/`, text), sorted by path.
fn sql_files(folder: &str) -> Vec<(&'static str, &'static str)> {
    fn collect(dir: &Dir<'static>, found: &mut Vec<(&'static str, &'static str)>) {
        let sql = dir.files().filter(|file| file.path().extension().is_some_and(|e| e == "sql"));
        found.extend(sql.filter_map(|file| Some((file.path().to_str()?, file.contents_utf8()?))));
        dir.dirs().for_each(|dir| collect(dir, found));
    }
    let mut found = Vec::new();
    collect(FILES.get_dir(folder).unwrap_or(&FILES), &mut found);
    found.sort_unstable();
    found
}

/// All SQL files that [`migrate`] applies, as (path, text), sorted by path.
pub fn all_files() -> Vec<(&'static str, &'static str)> {
    sql_files("")
}

/// The migrations named `<number>_<words>.sql`, sorted by number.
fn numbered() -> Vec<Migration> {
    let files = FILES.files().filter_map(|file| {
        let (number, words) = file.path().file_stem()?.to_str()?.split_once('_')?;
        let sql = SqlStr::from_static(file.contents_utf8()?);
        let description = Cow::Owned(words.replace('_', " "));
        Some(Migration::new(number.parse().ok()?, description, MigrationType::Simple, sql, false))
    });
    let mut files: Vec<Migration> = files.collect();
    files.sort_unstable_by_key(|migration| migration.version);
    files
}

async fn set_up_roles(conn: &mut PgConnection, new: RolePasswords) -> Result<(), MigrateError> {
    for (_, sql) in sql_files("roles") {
        run_on_roles(conn, sql).await.map_err(MigrateError::Roles)?;
    }
    for (role, password) in [("holdfast_app", new.app), ("holdfast_worker", new.worker)] {
        let Some(password) = password else { continue };
        // ALTER ROLE takes no parameters, so the server quotes the literal.
        let statement: String =
            sqlx::query_scalar("select format('alter role %I password %L', $1::text, $2::text)")
                .bind(role)
                .bind(password)
                .fetch_one(&mut *conn)
                .await
                .map_err(MigrateError::Roles)?;
        run_on_roles(conn, &statement).await.map_err(MigrateError::Roles)?;
    }
    Ok(())
}

/// Retries when another migration changes the same role at the same time. A lock cannot prevent that: roles are shared by
/// all databases of a cluster, advisory locks are not. The statements can all be repeated.
async fn run_on_roles(conn: &mut PgConnection, sql: &str) -> Result<(), sqlx::Error> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut *conn).await {
            Ok(_) => return Ok(()),
            Err(error) if attempts < ROLE_ATTEMPTS && is_concurrent_change(&error) => {
                tokio::time::sleep(Duration::from_millis(rand::random_range(ROLE_PAUSE_MS))).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_concurrent_change(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(db) = error else {
        return false;
    };
    match db.code().as_deref() {
        // unique_violation, duplicate_object, deadlock_detected
        Some("23505" | "42710" | "40P01") => true,
        // internal_error: "tuple concurrently updated"
        Some("XX000") => db.message().contains("concurrently"),
        _ => false,
    }
}

/// Applies the files of `functions/`, sorted by path, in one transaction.
async fn replace_functions(conn: &mut PgConnection) -> Result<(), MigrateError> {
    let failed = |file: &str| {
        let file = file.to_owned();
        move |source| MigrateError::Functions { file, source }
    };
    let mut tx = conn.begin().await.map_err(failed("functions"))?;
    sqlx::query(FUNCTIONS_LOCK).execute(&mut *tx).await.map_err(failed("functions"))?;
    for (path, sql) in sql_files("functions") {
        sqlx::raw_sql(sql).execute(&mut *tx).await.map_err(failed(path))?;
    }
    tx.commit().await.map_err(failed("functions"))
}
