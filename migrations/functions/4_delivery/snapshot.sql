-- {}: the age of the oldest snapshot that keeps dead rows of this database from being removed, in seconds: of a session, or of a
-- prepared transaction. Other roles' sessions show only to those who may read all statistics (see roles/roles.sql).
create or replace function holdfast.oldest_snapshot(p_call jsonb, out age_secs float8)
language sql stable security invoker as $$
  select coalesce(max(extract(epoch from clock_timestamp() - s.since)), 0)::float8
  from (select a.xact_start as since from pg_stat_activity a
        where a.datname = current_database() and a.backend_xmin is not null and a.pid <> pg_backend_pid()
        union all
        select x.prepared from pg_prepared_xacts x where x.database = current_database()) s
$$;
