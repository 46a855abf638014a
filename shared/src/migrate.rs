//! Brings a database to the state that this code needs; the only place that changes a schema.
//!
//! Promises: run again it changes nothing more; it works on an empty and on a filled database, on PostgreSQL 15 and
//! newer, as a superuser or as an owner with CREATEROLE; two that run side by side end in the same state as one.
//! Relies on: `migrations/` standing beside this crate's sources, so it is for `cargo xtask` and tests, not for a
//! deployed function.
//! Does not promise to go backwards: migrations are forward only.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

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
    /// A file of `migrations/` cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The roles were not made, or a password was not set.
    #[error("cannot set up the roles: {0}")]
    Roles(#[source] sqlx::Error),
    /// A numbered migration failed or does not fit what was applied before.
    #[error("{0}")]
    Numbered(#[from] sqlx::migrate::MigrateError),
    /// A file of `migrations/functions/` failed; none of them was applied.
    #[error("cannot apply migrations/functions/{file}: {source}")]
    Functions {
        /// The file's name.
        file: String,
        /// The cause.
        source: sqlx::Error,
    },
}

/// The folder with the SQL that this code was built beside.
pub fn migrations_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations")
}

/// Migrates the database at `owner_url` (`postgres://…`): roles first, then the numbered migrations, then the
/// replaceable functions in one transaction.
///
/// # Errors
/// The step that failed, with the server's words.
pub async fn migrate(owner_url: &str, passwords: Option<RolePasswords>) -> Result<(), MigrateError> {
    let dir = migrations_dir();
    let mut conn = PgConnection::connect(owner_url).await.map_err(MigrateError::Connect)?;
    let migrated = async {
        set_up_roles(&mut conn, &dir, passwords.unwrap_or_default()).await?;
        // Skips sub-folders, and what is named otherwise than `<number>_<words>.sql`.
        Migrator::new(dir.as_path()).await?.run(&mut conn).await?;
        replace_functions(&mut conn, &dir.join("functions")).await
    }
    .await;
    // Said or not, the server notices; the outcome is what counts.
    let _ = conn.close().await;
    migrated
}

async fn set_up_roles(conn: &mut PgConnection, dir: &Path, new: RolePasswords) -> Result<(), MigrateError> {
    run_on_roles(conn, &read(&dir.join("roles/roles.sql"))?).await.map_err(MigrateError::Roles)?;
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

/// Applies `functions/*.sql` in the order of their names, all or none.
async fn replace_functions(conn: &mut PgConnection, dir: &Path) -> Result<(), MigrateError> {
    let failed = |file: &str| {
        let file = file.to_owned();
        move |source| MigrateError::Functions { file, source }
    };
    let files = sql_files(dir)?;
    let mut tx = conn.begin().await.map_err(failed("*"))?;
    sqlx::query(FUNCTIONS_LOCK).execute(&mut *tx).await.map_err(failed("*"))?;
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        sqlx::raw_sql(AssertSqlSafe(read(&path)?)).execute(&mut *tx).await.map_err(failed(&name))?;
    }
    tx.commit().await.map_err(failed("*"))
}

fn sql_files(dir: &Path) -> Result<Vec<PathBuf>, MigrateError> {
    let unreadable = |source| MigrateError::Read { path: dir.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|e| e == "sql") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<String, MigrateError> {
    std::fs::read_to_string(path).map_err(|source| MigrateError::Read { path: path.to_owned(), source })
}
