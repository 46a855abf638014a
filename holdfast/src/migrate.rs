//! Brings a database to the state that this code needs; the only place that changes a schema.
//!
//! Promises: run again it changes nothing more; it works on an empty and on a filled database, on PostgreSQL 15 and
//! newer, as a superuser or as an owner with CREATEROLE; two that run side by side end in the same state as one.
//! Carries the SQL of `migrations/` inside itself, so it needs no checkout.
//! Does not promise to go backwards: migrations are forward only.

use std::borrow::Cow;
use std::time::Duration;

use include_dir::{Dir, include_dir};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqlStr};

/// `migrations/` as it was when this program was built.
static FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../migrations");

/// Tries of a statement on roles: they belong to the cluster, so migrations of two databases can meet on them.
const ROLE_TRIES: u32 = 20;

/// Lock of a database's functions: `create or replace` of one function twice at once fails.
const FUNCTIONS_LOCK: &str = "select pg_advisory_xact_lock(hashtextextended('holdfast/functions', 0))";

/// New passwords for the roles that functions log in as; what is `None` stays as it is.
#[derive(Clone, Default)]
pub struct RolePasswords {
    /// Of `holdfast_app`.
    pub app: Option<String>,
    /// Of `holdfast_worker`.
    pub worker: Option<String>,
}

/// Why the database was not migrated. What was done before the failure stands; run it again.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The owner cannot connect.
    #[error("cannot connect to the database: {0}")]
    Connect(#[source] sqlx::Error),
    /// The roles were not made, or a password was not set.
    #[error("cannot set up the roles: {0}")]
    Roles(#[source] sqlx::Error),
    /// A numbered migration failed or does not fit what was applied before.
    #[error("{0}")]
    Numbered(#[from] sqlx::migrate::MigrateError),
    /// A file of `migrations/functions/` failed; none of them was applied.
    #[error("cannot apply migrations/{file}: {source}")]
    Functions {
        /// The file's path below `migrations/`.
        file: String,
        /// The cause.
        source: sqlx::Error,
    },
}

/// What `holdfast migrate` is given.
#[derive(Clone, Default, clap::Args)]
pub struct Args {
    /// New password of the endpoint functions' role; what is not given stays as it is.
    #[arg(long, env = "HOLDFAST_APP_PASSWORD", hide_env_values = true, value_name = "PASSWORD")]
    app_password: Option<String>,
    /// New password of the jobs' role; what is not given stays as it is.
    #[arg(long, env = "HOLDFAST_WORKER_PASSWORD", hide_env_values = true, value_name = "PASSWORD")]
    worker_password: Option<String>,
}

/// `holdfast migrate`: migrates and says what it did.
///
/// # Errors
/// The step that failed.
pub async fn run(owner_url: &str, args: Args) -> anyhow::Result<()> {
    let given = |password: Option<String>| password.filter(|password| !password.is_empty());
    let passwords = RolePasswords { app: given(args.app_password), worker: given(args.worker_password) };
    let set: Vec<&str> = [("holdfast_app", &passwords.app), ("holdfast_worker", &passwords.worker)]
        .into_iter()
        .filter_map(|(role, password)| password.as_ref().map(|_| role))
        .collect();
    migrate(owner_url, Some(passwords.clone())).await?;
    match set.as_slice() {
        [] => println!("migrated; the roles' passwords stay as they are"),
        roles => println!("migrated; set the password of {}", roles.join(" and ")),
    }
    Ok(())
}

/// Migrates the database at `owner_url` (`postgres://…`): roles first, then the numbered migrations, then the
/// replaceable functions in one transaction.
///
/// # Errors
/// The step that failed, with the server's words.
pub async fn migrate(owner_url: &str, passwords: Option<RolePasswords>) -> Result<(), MigrateError> {
    let mut conn = PgConnection::connect(owner_url).await.map_err(MigrateError::Connect)?;
    let migrated = async {
        set_up_roles(&mut conn, passwords.unwrap_or_default()).await?;
        Migrator::with_migrations(numbered()).run(&mut conn).await?;
        replace_functions(&mut conn).await
    }
    .await;
    // Said or not, the server notices; the outcome is what counts.
    let _ = conn.close().await;
    migrated
}

/// The SQL files of a folder and its sub-folders by their paths, in order: path below `migrations/`, text.
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

/// Everything that decides what [`migrate`] does, path and text, in order.
pub fn all_files() -> Vec<(&'static str, &'static str)> {
    sql_files("")
}

/// The files named `<number>_<words>.sql`.
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
        // ALTER ROLE takes no parameters: the server quotes the literal.
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

/// Roles are rows that all databases of a cluster share, while advisory locks end at a database's border. Whoever
/// comes second on a row gets "tuple concurrently updated" or a duplicate: all that is done here can be done again.
async fn run_on_roles(conn: &mut PgConnection, sql: &str) -> Result<(), sqlx::Error> {
    let mut tries = 0;
    loop {
        tries += 1;
        match sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut *conn).await {
            Ok(_) => return Ok(()),
            Err(error) if tries < ROLE_TRIES && met_another(&error) => {
                tokio::time::sleep(Duration::from_millis(rand::random_range(5..50))).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn met_another(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(db) = error else {
        return false;
    };
    match db.code().as_deref() {
        Some("23505" | "42710" | "40P01") => true,
        Some("XX000") => db.message().contains("concurrently"),
        _ => false,
    }
}

/// Applies `functions/` in the order of the paths, all or none.
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
