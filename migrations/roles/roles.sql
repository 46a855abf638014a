-- The two roles that functions log in as. Roles belong to the cluster, not to a database, so they are made
-- once, before the migrations, under an advisory lock (databases migrated side by side would race).
-- Neither owns a table nor bypasses row-level security. A password is given by the migrate command.
do $$
declare
  v_role text;
begin
  perform pg_advisory_xact_lock(hashtextextended('holdfast/roles', 0));
  foreach v_role in array array['holdfast_app', 'holdfast_worker'] loop
    if not exists (select from pg_catalog.pg_roles where rolname = v_role) then
      execute format('create role %I login noinherit nosuperuser nobypassrls nocreatedb nocreaterole', v_role);
    end if;
    -- A client that died or froze must not hold the locks of a hot SKU. These stand on the role, so that they
    -- hold behind any pooler. statement_timeout + idle_in_transaction_session_timeout stay below the 15 s after
    -- which a retry is promised to run; statement_timeout stays below the 7 s in which "too busy" is answered.
    execute format('alter role %I set statement_timeout = ''6s''', v_role);
    execute format('alter role %I set lock_timeout = ''3s''', v_role);
    execute format('alter role %I set idle_in_transaction_session_timeout = ''5s''', v_role);
    -- A frozen sandbox answers no keepalive, and its idle session holds nothing: it may live until its network would drop it
    -- (350 s at AWS). What ends sooner is a session that holds something, in mid-message too: by the timeout above.
    -- The sessions of sandboxes that are gone end by these, 315 s after their last word.
    execute format('alter role %I set tcp_keepalives_idle = 300', v_role);
    execute format('alter role %I set tcp_keepalives_interval = 15', v_role);
    execute format('alter role %I set tcp_keepalives_count = 3', v_role);
    execute format('alter role %I set tcp_user_timeout = ''10s''', v_role);
    execute format('alter role %I set client_connection_check_interval = ''2s''', v_role);
    -- The server logs a failed or slow statement with its text, and details of the failure with values. In the text stand the bodies
    -- of requests, as hex digits. Only a superuser may change that for a role, or who was granted it (GRANT SET ON PARAMETER);
    -- elsewhere it belongs into the server's own settings.
    begin
      execute format('alter role %I set log_min_error_statement = panic', v_role);
      execute format('alter role %I set log_error_verbosity = terse', v_role);
      execute format('alter role %I set log_min_duration_statement = -1', v_role);
      execute format('alter role %I set log_statement = none', v_role);
    exception when insufficient_privilege then
      raise notice 'the server may log what statements of % carry: set log_min_error_statement = panic and log_error_verbosity = terse',
        v_role;
    end;
    -- Every statement is short; compiling it would take longer than running it.
    execute format('alter role %I set jit = off', v_role);
    if current_setting('server_version_num')::int >= 170000 then
      execute format('alter role %I set transaction_timeout = ''12s''', v_role);
    end if;
  end loop;
  -- Every statement of the endpoints finds its rows by key. Planning each of them five times in every new session,
  -- before the generic plan is trusted, costs more than running them; and a plan made while a table was small must
  -- not go on scanning it when it has grown, so there are only index scans and nested loops to choose from.
  alter role holdfast_app set plan_cache_mode = 'force_generic_plan';
  alter role holdfast_app set enable_seqscan = off;
  alter role holdfast_app set enable_hashjoin = off;
  alter role holdfast_app set enable_mergejoin = off;
  -- So that the relay sees how old the oldest snapshot is, whoever holds it. It may be refused to an owner who is no superuser:
  -- then it sees its own. From PostgreSQL 16 on; before, a role that does not inherit gains nothing by it.
  begin
    if current_setting('server_version_num')::int >= 160000 and not pg_has_role('holdfast_worker', 'pg_read_all_stats', 'usage') then
      execute 'grant pg_read_all_stats to holdfast_worker with inherit true, set false';
    end if;
  exception when insufficient_privilege then
    raise notice 'holdfast_worker may not read all statistics: %', sqlerrm;
  end;
end $$;
