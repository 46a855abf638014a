-- Measuring and booking: what was counted against what the books held at that moment.

-- What the books say was physically there at the moment of each count. For each SKU: counted, the sum of what its accounts counted in
-- this run, null where none lists it; expected, what on_hand was without the units that have left and are still carried (owed):
-- the present numbers, less what moved since. Corrections by counts are no movements: they say what had been so all the time, and a
-- count that is told twice must not be booked twice. A movement that a 3PL told of is compared with the moment of that account's count, any other
-- one with the earliest. Nothing here grows with what moved before the counts. Where the caller holds the positions' rows, the
-- answer holds until it commits; else what commits later may still change it, if the count is as young as a transaction may be old.
create or replace function holdfast.counted_and_expected(p_run public.reconcile_run, p_skus uuid[])
returns table (sku_id uuid, counted bigint, counted_at timestamptz, newest timestamptz, expected bigint)
language sql stable security invoker set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
  select w.sku_id, s.counted, s.counted_at, s.newest,
    p.on_hand - o.owed - coalesce(m.moved, 0) + coalesce(g.owed, 0)
  from unnest(p_skus) as w(sku_id)
  cross join lateral (select p.on_hand from public.sku_position p
                      where p.tenant_id = p_run.tenant_id and p.sku_id = w.sku_id limit 1) p
  cross join lateral (
    select sum(s.on_hand)::bigint as counted, min(s.as_of) as counted_at, max(s.as_of) as newest,
      case when count(*) > 1 then jsonb_object_agg(s.account_id, s.as_of) end as by_account
    from public.inventory_snapshot s
    where s.tenant_id = p_run.tenant_id and s.snapshot_date = p_run.snapshot_date and s.sku_id = w.sku_id
      and s.run_id = p_run.id) s
  cross join lateral (
    select coalesce(sum(f.owed_on_hand), 0)::bigint as owed from public.shortfall f
    where f.tenant_id = p_run.tenant_id and f.sku_id = w.sku_id and f.owed_on_hand + f.owed_on_order > 0) o
  left join lateral (
    select sum(l.on_hand_delta)::bigint as moved from public.stock_ledger l
    where l.tenant_id = p_run.tenant_id and l.sku_id = w.sku_id and l.created_at > s.counted_at
      and l.entry_type <> 'reconcile'
      and (s.by_account is null or l.entry_type = 'shortfall' -- the other half of a line of owed_ledger
           or l.created_at > coalesce((s.by_account ->> substring(l.actor from '^3pl:(.*)/'))::timestamptz, s.counted_at))) m on true
  left join lateral (
    select sum(g.on_hand_delta)::bigint as owed from public.owed_ledger g
    where g.tenant_id = p_run.tenant_id and g.sku_id = w.sku_id and g.created_at > s.counted_at) g on true
$$;

-- A page of the comparison, over all SKUs of the tenant in order; p_call: as of reconcile_page_begins, and {"limit", "terms": {"skuShare",
-- "skuFloor", "runShare", "runFloor"}}. Writes a finding for each SKU that differs, or that may, since its count is younger than a
-- transaction that has not committed may be; and for each with stock that no account lists. The last page decides whether a person
-- must look first.
create or replace function holdfast.reconcile_measure(p_call jsonb) returns text
language plpgsql volatile security invoker as $$
declare
  v_limit constant int := p_call ->> 'limit';
  v_terms constant jsonb := p_call -> 'terms';
  v_page record;
  v_run public.reconcile_run;
  v_skus uuid[];
  v_found record;
  v_held text;
  v_state text;
begin
  select * into v_page from holdfast.reconcile_page_begins(p_call, 'measuring');
  if v_page.outcome is not null then
    return v_page.outcome;
  end if;
  v_run := v_page.run;
  v_skus := array(
    select p.sku_id from public.sku_position p
    where p.tenant_id = v_run.tenant_id and p.sku_id > coalesce((
      select (c.cursor::jsonb ->> 'after')::uuid from public.sync_checkpoint c
      where c.tenant_id = v_run.tenant_id and c.job_name = 'reconcile'), '00000000-0000-0000-0000-000000000000')
    order by p.sku_id limit v_limit);

  with compared as materialized (
    select e.*, e.counted - e.expected as variance from holdfast.counted_and_expected(v_run, v_skus) e
  ), noted as (
    insert into public.reconcile_finding (tenant_id, run_id, kind, code, sku_id, counted, counted_at, expected)
    select v_run.tenant_id, v_run.id, case when c.counted is null then 'missing' else 'variance' end, k.code, c.sku_id, c.counted,
      c.counted_at, c.expected
    from compared c
    cross join lateral (select k.code from public.sku k where k.tenant_id = v_run.tenant_id and k.id = c.sku_id limit 1) k
    where c.variance <> 0 or c.newest > now() - holdfast.longest_transaction() or (c.counted is null and c.expected <> 0)
    on conflict do nothing
  )
  select count(c.counted) as skus, count(*) filter (where c.counted is null and c.expected <> 0) as missing,
    count(*) filter (where c.variance <> 0) as variances,
    coalesce(sum(c.variance) filter (where c.variance > 0), 0) as up,
    coalesce(-sum(c.variance) filter (where c.variance < 0), 0) as down,
    count(*) filter (where holdfast.beyond(c.variance, c.expected, v_terms -> 'skuShare', v_terms -> 'skuFloor')) as beyond,
    coalesce(sum(greatest(c.expected, 0)) filter (where c.counted is not null), 0) as stock
  into v_found from compared c;
  update public.reconcile_run r
  set skus = r.skus + v_found.skus, missing = r.missing + v_found.missing, variances = r.variances + v_found.variances,
      variance_up = r.variance_up + v_found.up, variance_down = r.variance_down + v_found.down,
      beyond_limit = r.beyond_limit + v_found.beyond, stock_units = r.stock_units + v_found.stock
  where r.tenant_id = v_run.tenant_id and r.id = v_run.id
  returning r.* into v_run;
  if cardinality(v_skus) = v_limit then
    perform holdfast.reconcile_checkpoint(v_run, 'measuring', jsonb_build_object('after', v_skus[v_limit]));
    return 'measuring';
  end if;

  v_held := holdfast.reason_to_hold(v_run, v_terms);
  v_state := case when v_held is null then 'booking' else 'held' end;
  update public.reconcile_run r
  set state = v_state, held_reason = v_held, duplicates = r.lines - r.invalid - (
      select count(*) from public.reconcile_finding f where f.tenant_id = v_run.tenant_id and f.run_id = v_run.id and f.kind = 'unknown')
      - (select count(*) from public.inventory_snapshot s
         where s.tenant_id = v_run.tenant_id and s.snapshot_date = v_run.snapshot_date and s.run_id = v_run.id),
    leased_until = case when v_held is null then r.leased_until end
  where r.tenant_id = v_run.tenant_id and r.id = v_run.id;
  perform holdfast.reconcile_checkpoint(v_run, v_state, null);
  if v_held is not null then
    perform holdfast.emit_tenant_event(v_run.tenant_id, 'reconcile.held', format(
      '{"runId":"%s","snapshotDate":"%s","reason":%s,"variances":%s,"unitsUp":%s,"unitsDown":%s}', v_run.id, v_run.snapshot_date,
      holdfast.quote(v_held), v_run.variances, v_run.variance_up, v_run.variance_down), null, null);
  end if;
  return v_state;
end $$;

-- No transaction of ours lasts longer: statement_timeout, idle_in_transaction_session_timeout and the pause between them.
create or replace function holdfast.longest_transaction() returns interval language sql immutable parallel safe
return interval '15 seconds';

-- Whether a difference is above its floor in units and above its share of the stock.
create or replace function holdfast.beyond(p_variance bigint, p_stock bigint, p_share jsonb, p_floor jsonb) returns boolean
language sql immutable parallel safe
return abs(p_variance) > p_floor::bigint and abs(p_variance) > p_share::float8 * greatest(p_stock, 0);

-- Why a person must look at a run before it is booked, or null.
create or replace function holdfast.reason_to_hold(p_run public.reconcile_run, p_terms jsonb) returns text
language sql immutable parallel safe
return case
  when p_run.beyond_limit > 0 then format('%s SKUs differ by more than %s %% of their stock and %s units', p_run.beyond_limit,
    round((p_terms ->> 'skuShare')::numeric * 100, 1), p_terms ->> 'skuFloor')
  when holdfast.beyond(p_run.variance_up + p_run.variance_down, p_run.stock_units, p_terms -> 'runShare', p_terms -> 'runFloor')
    then format('all differences, %s units, are more than %s %% of the stock of %s units and %s units',
      p_run.variance_up + p_run.variance_down, round((p_terms ->> 'runShare')::numeric * 100, 1), p_run.stock_units,
      p_terms ->> 'runFloor')
end;

-- A page of bookings: the next findings in order of SKU; p_call: as of reconcile_page_begins, and {"limit"}. The positions are
-- locked in order, and what is booked is what the comparison says under these locks. More than was thought: first it makes up for
-- units that an earlier count missed, then on_hand rises. Less: on_hand falls as far as ATS allows; the rest is promised, and
-- is a shortfall whose units on_hand goes on carrying, so that the next night expects what was counted and opens none again.
create or replace function holdfast.reconcile_book(p_call jsonb) returns text
language plpgsql volatile security invoker as $$
declare
  v_limit constant int := p_call ->> 'limit';
  v_page record;
  v_run public.reconcile_run;
  v_actor text;
  v_skus uuid[];
  v_booking record;
  v_state text;
begin
  select * into v_page from holdfast.reconcile_page_begins(p_call, 'booking');
  if v_page.outcome is not null then
    return v_page.outcome;
  end if;
  v_run := v_page.run;
  v_actor := 'reconcile/' || v_run.id;
  v_skus := array(
    select f.sku_id from public.reconcile_finding f
    where f.tenant_id = v_run.tenant_id and f.run_id = v_run.id and f.kind = 'variance' and f.sku_id > coalesce((
      select (c.cursor::jsonb ->> 'after')::uuid from public.sync_checkpoint c
      where c.tenant_id = v_run.tenant_id and c.job_name = 'reconcile'), '00000000-0000-0000-0000-000000000000')
    order by f.sku_id limit v_limit);
  perform from public.sku_position p
  where p.tenant_id = v_run.tenant_id and p.sku_id = any (v_skus) order by p.sku_id for no key update;

  with compared as materialized (
    select e.sku_id, e.expected, e.counted - e.expected as variance, p.ats, least(greatest(e.counted - e.expected, 0), o.owed) as eased
    from holdfast.counted_and_expected(v_run, v_skus) e
    cross join lateral (select p.on_hand + p.on_order - p.allocated as ats from public.sku_position p
                        where p.tenant_id = v_run.tenant_id and p.sku_id = e.sku_id limit 1) p
    cross join lateral (select coalesce(sum(f.owed_on_hand), 0)::bigint as owed from public.shortfall f
                        where f.tenant_id = v_run.tenant_id and f.sku_id = e.sku_id and f.cause = 'reconcile'
                          and f.owed_on_hand + f.owed_on_order > 0) o
  ), cut as (
    select c.*, greatest(c.variance - c.eased, -greatest(c.ats, 0)) as moved from compared c
  ), booked as (
    select c.*, c.moved - (c.variance - c.eased) as short from cut c
  ), noted as (
    update public.reconcile_finding f
    set expected = b.expected, adjusted = b.moved, short = b.short - b.eased, booked_at = now()
    from booked b where f.tenant_id = v_run.tenant_id and f.run_id = v_run.id and f.sku_id = b.sku_id
  )
  select array_agg(b.sku_id order by b.sku_id) as skus, array_agg(b.eased order by b.sku_id) as eased,
    array_agg(b.short order by b.sku_id) as short, array_agg(0::bigint order by b.sku_id) as zeros,
    array_agg(row(b.sku_id, b.moved, 0, 0, 'reconcile')::holdfast.position_change order by b.sku_id) as changes,
    count(*) filter (where b.variance <> 0) as variances, coalesce(sum(b.moved) filter (where b.moved > 0), 0) as up,
    coalesce(-sum(b.moved) filter (where b.moved < 0), 0) as down, coalesce(sum(b.short), 0) as short_units
  into v_booking from booked b;
  if v_booking.variances > 0 then
    perform set_config('app.correcting', 'on', true);
    perform holdfast.ease_counted_shortfalls(v_run.tenant_id, v_booking.skus, v_booking.eased, v_actor);
    perform holdfast.add_shortfall(v_run.tenant_id, v_booking.skus, v_booking.short, v_booking.short, v_booking.zeros, 'reconcile');
    perform set_config('app.correcting', '', true);
    perform holdfast.shift(v_run.tenant_id, v_booking.changes, null, null, null, v_actor);
  end if;
  -- What was only uncertain agrees after all.
  delete from public.reconcile_finding f
  where f.tenant_id = v_run.tenant_id and f.run_id = v_run.id and f.sku_id = any (v_skus) and f.counted = f.expected;

  v_state := case when cardinality(v_skus) = v_limit then 'booking' else 'done' end;
  update public.reconcile_run r
  set state = v_state, booked = r.booked + coalesce(v_booking.variances, 0), units_up = r.units_up + v_booking.up,
      units_down = r.units_down + v_booking.down, units_short = r.units_short + v_booking.short_units,
      finished_at = case when v_state = 'done' then now() end,
      leased_until = case when v_state = 'booking' then r.leased_until end
  where r.tenant_id = v_run.tenant_id and r.id = v_run.id;
  perform holdfast.reconcile_checkpoint(v_run, v_state, jsonb_build_object('after', v_skus[v_limit]));
  return v_state;
end $$;

-- Units that an earlier count missed and this one found: the shortfalls that it opened carry so much less, the oldest first. (No
-- line of stock_ledger: on_hand has carried them all the time.) The caller holds the positions' rows.
create or replace function holdfast.ease_counted_shortfalls(p_tenant uuid, p_skus uuid[], p_units bigint[], p_actor text) returns void
language plpgsql volatile security invoker as $$
begin
  perform from public.shortfall s
  where s.tenant_id = p_tenant and s.sku_id = any (p_skus) and s.cause = 'reconcile' and s.owed_on_hand + s.owed_on_order > 0
  order by s.sku_id, s.opened_at, s.id for no key update;
  with carried as (
    select s.id, s.owed_on_hand, m.units,
      sum(s.owed_on_hand) over (partition by s.sku_id order by s.opened_at, s.id) - s.owed_on_hand as before
    from unnest(p_skus, p_units) as m(sku_id, units)
    join public.shortfall s on s.tenant_id = p_tenant and s.sku_id = m.sku_id and s.cause = 'reconcile'
      and s.owed_on_hand + s.owed_on_order > 0
    where m.units > 0
  ), eased as (
    select c.id, greatest(0, least(c.owed_on_hand, c.units - c.before)) as units from carried c
  )
  update public.shortfall s
  set owed_on_hand = s.owed_on_hand - e.units, updated_at = now(),
      qty = case when s.qty > e.units then s.qty - e.units else s.qty end,
      settled_at = case when s.settled_at is null and s.qty <= e.units then now() else s.settled_at end,
      settled_by = case when s.settled_at is null and s.qty <= e.units then p_actor else s.settled_by end,
      note = case when s.settled_at is null and s.qty <= e.units then 'counted again' else s.note end
  from eased e where s.tenant_id = p_tenant and s.id = e.id and e.units > 0;
end $$;
