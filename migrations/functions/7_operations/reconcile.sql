-- The nightly reconciliation of positions with what 3PLs count: a sequence of pages, each one statement and one transaction.
-- It stands here, above webhooks, since it moves stock as the domain does, keeps exceptions as the inbox does, and a person decides
-- about it.
--
-- A page first takes the run's row (reconcile_page_begins): that it is the owner's, that its lease lasts, and that the page is the
-- one that is due. So a page commits once, whoever sends it however often, and a dead or late owner commits nothing. Lock order:
-- run -> positions by SKU -> shortfalls -> exceptions -> outbox, tenant -> inserts.

-- {"tenantId" or null, "zone"}: opens a run for each tenant with an inventory to walk and no open run; the day, in that time zone,
-- is the run's snapshot date for good. A run of an earlier night that nobody works at makes room. Returns how many were opened.
create or replace function holdfast.reconcile_begin(p_call jsonb) returns bigint
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_today constant date := (now() at time zone (p_call ->> 'zone'))::date;
  v_opened bigint;
begin
  update public.reconcile_run r
  set state = 'superseded', finished_at = now(), updated_at = now(), leased_until = null
  where r.finished_at is null and (v_tenant is null or r.tenant_id = v_tenant) and r.started_at < now() - interval '12 hours'
    and (r.leased_until is null or r.leased_until < clock_timestamp());
  insert into public.reconcile_run (tenant_id, snapshot_date)
  select distinct a.tenant_id, v_today from public.threepl_inventory a
  where (v_tenant is null or a.tenant_id = v_tenant)
    and not exists (select from public.reconcile_run r where r.tenant_id = a.tenant_id and r.finished_at is null)
  on conflict do nothing;
  get diagnostics v_opened = row_count;
  perform holdfast.forget_reconcile_runs();
  return v_opened;
end $$;

-- Deletes a bounded part of what runs of more than 400 days ago have found, and those of which nothing is left.
create or replace function holdfast.forget_reconcile_runs() returns void
language plpgsql volatile security invoker as $$
declare
  v_runs constant uuid[] := array(select r.id from public.reconcile_run r
    where r.finished_at < now() - interval '400 days' order by r.finished_at limit 20);
begin
  delete from public.reconcile_finding f where f.ctid = any (array(
    select f.ctid from public.reconcile_run r join public.reconcile_finding f on f.tenant_id = r.tenant_id and f.run_id = r.id
    where r.id = any (v_runs) limit 5000));
  delete from public.reconcile_run r where r.id = any (v_runs)
    and not exists (select from public.reconcile_finding f where f.tenant_id = r.tenant_id and f.run_id = r.id);
end $$;

-- {"tenantId" or null, "token", "leaseSecs", "except": [run ids]}: leases the oldest run that is open and that nobody works at.
-- run: its document for the worker, or null. busy_secs: how long the longest lease of another still lasts, or null; held: runs that
-- wait for a person.
create or replace function holdfast.reconcile_claim(p_call jsonb, out run text, out busy_secs float8, out held bigint)
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_except constant uuid[] := array(select jsonb_array_elements_text(p_call -> 'except'));
  v_run public.reconcile_run;
begin
  select r.* into v_run from public.reconcile_run r
  where r.state in ('walking', 'measuring', 'booking') and (v_tenant is null or r.tenant_id = v_tenant)
    and (r.leased_until is null or r.leased_until < clock_timestamp()) and r.id <> all (v_except)
  order by r.started_at, r.id limit 1 for no key update skip locked;
  if found then
    update public.reconcile_run r
    set lease_token = (p_call ->> 'token')::uuid, error = null, updated_at = now(),
        leased_until = clock_timestamp() + make_interval(secs => (p_call ->> 'leaseSecs')::float8)
    where r.tenant_id = v_run.tenant_id and r.id = v_run.id;
    run := jsonb_build_object('tenantId', v_run.tenant_id, 'runId', v_run.id, 'date', v_run.snapshot_date, 'state', v_run.state,
      'step', v_run.step, 'cursor', (select c.cursor::jsonb from public.sync_checkpoint c
        where c.tenant_id = v_run.tenant_id and c.job_name = 'reconcile'
          and c.cursor::jsonb ->> 'runId' = v_run.id::text),
      'accounts', coalesce((select jsonb_agg(jsonb_build_object('id', a.account_id, 'baseUrl', a.base_url, 'token', a.token)
                     order by a.account_id) from public.threepl_inventory a where a.tenant_id = v_run.tenant_id), '[]'));
  end if;
  select max(extract(epoch from r.leased_until - clock_timestamp()))
      filter (where r.state <> 'held' and r.leased_until > clock_timestamp() and r.lease_token::text <> p_call ->> 'token'),
    count(*) filter (where r.state = 'held')
  into busy_secs, held
  from public.reconcile_run r where r.finished_at is null and (v_tenant is null or r.tenant_id = v_tenant);
end $$;

-- {"tenantId","runId","token","leaseSecs"}: prolongs a lease that lasts; whether it did.
create or replace function holdfast.reconcile_renew(p_call jsonb) returns boolean
language plpgsql volatile security invoker as $$
begin
  update public.reconcile_run r
  set leased_until = clock_timestamp() + make_interval(secs => (p_call ->> 'leaseSecs')::float8)
  where r.tenant_id = (p_call ->> 'tenantId')::uuid and r.id = (p_call ->> 'runId')::uuid
    and r.lease_token = (p_call ->> 'token')::uuid and r.leased_until > clock_timestamp();
  return found;
end $$;

-- {"tenantId","runId","token","error" or null}: gives a run back before it has ended; the next who claims it goes on.
create or replace function holdfast.reconcile_release(p_call jsonb) returns void
language plpgsql volatile security invoker as $$
begin
  update public.reconcile_run r
  set leased_until = null, error = left(p_call ->> 'error', 2000), updated_at = now()
  where r.tenant_id = (p_call ->> 'tenantId')::uuid and r.id = (p_call ->> 'runId')::uuid
    and r.lease_token = (p_call ->> 'token')::uuid;
end $$;

-- {"tenantId","runId"}: the numbers of a run, for the summary.
create or replace function holdfast.reconcile_totals(p_call jsonb) returns text
language sql stable security invoker as $$
  select jsonb_build_object('state', r.state, 'pages', r.pages, 'lines', r.lines, 'skus', r.skus, 'unknown', r.unknown,
    'invalid', r.invalid, 'duplicates', r.duplicates, 'missing', r.missing, 'variances', r.variances, 'booked', r.booked,
    'unitsUp', r.units_up, 'unitsDown', r.units_down, 'unitsShort', r.units_short,
    'varianceUnits', case r.state when 'held' then r.variance_up + r.variance_down else 0 end)::text
  from public.reconcile_run r where r.tenant_id = (p_call ->> 'tenantId')::uuid and r.id = (p_call ->> 'runId')::uuid
$$;

-- The prologue of each page; p_call: {"tenantId","runId","token","step","leaseSecs"}. Sets app.tenant_id, locks the run's row,
-- prolongs the lease and counts the step. outcome: null: go on; lost: the run is another's, or is not in this state any more; else
-- this page has committed before, and led to this state.
create or replace function holdfast.reconcile_page_begins(p_call jsonb, p_state text, out outcome text,
  out run public.reconcile_run)
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_step constant bigint := p_call ->> 'step';
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'holdfast needs READ COMMITTED, not %', current_setting('transaction_isolation')
      using errcode = 'invalid_transaction_state';
  end if;
  perform set_config('app.tenant_id', v_tenant::text, true);
  update public.reconcile_run r
  set step = r.step + 1, leased_until = clock_timestamp() + make_interval(secs => (p_call ->> 'leaseSecs')::float8),
      updated_at = now()
  where r.tenant_id = v_tenant and r.id = (p_call ->> 'runId')::uuid and r.state = p_state and r.step = v_step
    and r.lease_token = (p_call ->> 'token')::uuid and r.leased_until > clock_timestamp()
  returning r.* into run;
  if not found then
    select r.* into run from public.reconcile_run r where r.tenant_id = v_tenant and r.id = (p_call ->> 'runId')::uuid;
    outcome := case when run.step = v_step + 1 and run.lease_token = (p_call ->> 'token')::uuid then run.state else 'lost' end;
  end if;
end $$;

-- The epilogue of each page: where the run goes on, p_next being {"account","after"} of a walk or {"after"}, a SKU. A cursor of null
-- says that the run has ended or waits for a person.
create or replace function holdfast.reconcile_checkpoint(p_run public.reconcile_run, p_state text, p_next jsonb) returns void
language plpgsql volatile security invoker as $$
begin
  insert into public.sync_checkpoint as c (tenant_id, job_name, cursor, updated_at)
  values (p_run.tenant_id, 'reconcile', case when p_state in ('walking', 'measuring', 'booking') then
    (jsonb_build_object('runId', p_run.id, 'date', p_run.snapshot_date, 'state', p_state) || coalesce(p_next, '{}'))::text end,
    clock_timestamp())
  on conflict (tenant_id, job_name) do update set cursor = excluded.cursor, updated_at = excluded.updated_at;
end $$;
