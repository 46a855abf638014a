-- What a person sees of reconciliations, and decides.

create or replace function holdfast.reconcile_run_documents(p_tenant uuid, p_ids uuid[]) returns table (ord bigint, document text)
language sql stable security invoker as $$
  select w.ord,
    format('{"id":"%s","snapshotDate":"%s","state":"%s","running":%s,"startedAt":"%s","updatedAt":"%s","finishedAt":%s,"error":%s,',
      r.id, r.snapshot_date, r.state, coalesce(r.leased_until > now(), false)::text, holdfast.rfc3339(r.started_at),
      holdfast.rfc3339(r.updated_at), holdfast.quote(holdfast.rfc3339(r.finished_at)), holdfast.quote(r.error))
    || format('"progress":{"pages":%s,"lines":%s,"skus":%s,"variances":%s,"booked":%s},', r.pages, r.lines, r.skus, r.variances,
      r.booked)
    || format('"unknown":%s,"invalid":%s,"duplicates":%s,"missing":%s,"varianceUp":%s,"varianceDown":%s,"stockUnits":%s,', r.unknown,
      r.invalid, r.duplicates, r.missing, r.variance_up, r.variance_down, r.stock_units)
    || format('"unitsUp":%s,"unitsDown":%s,"unitsShort":%s,"heldReason":%s,"decidedBy":%s,"decidedAt":%s}', r.units_up,
      r.units_down, r.units_short, holdfast.quote(r.held_reason), holdfast.quote(r.decided_by),
      holdfast.quote(holdfast.rfc3339(r.decided_at)))
  from unnest(p_ids) with ordinality as w(id, ord)
  join public.reconcile_run r on r.tenant_id = p_tenant and r.id = w.id
$$;

-- Filter: state, or null.
create or replace function holdfast.page_of_reconcile_run(p_tenant uuid, p_read jsonb) returns table (id text, document text)
language plpgsql stable security invoker set plan_cache_mode = force_custom_plan as $$
declare
  v_limit constant int := p_read ->> 'limit';
  v_after constant uuid := p_read ->> 'after';
  v_after_at constant timestamptz := (
    select r.started_at from public.reconcile_run r where r.tenant_id = p_tenant and r.id = v_after);
  v_state constant text := p_read ->> 'state';
  v_ids constant uuid[] := array(
    select r.id from public.reconcile_run r
    where r.tenant_id = p_tenant and (v_after is null or (r.started_at, r.id) < (v_after_at, v_after))
      and (v_state is null or r.state = v_state)
    order by r.started_at desc, r.id desc
    limit v_limit + 1);
begin
  return query select v_ids[d.ord]::text, d.document from holdfast.reconcile_run_documents(p_tenant, v_ids) d order by d.ord;
end $$;

-- {"tenantId","userId","runId"}: one run.
create or replace function holdfast.read_reconcile_run(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_document text;
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
  end if;
  select d.document into v_document
  from holdfast.reconcile_run_documents((p_read ->> 'tenantId')::uuid, array[(p_read ->> 'runId')::uuid]) d;
  return case when v_document is null then holdfast.decided('not_found') else holdfast.document_answer(v_document) end;
end $$;

-- Filters: runId; kind, or null. In order of code.
create or replace function holdfast.page_of_reconcile_finding(p_tenant uuid, p_read jsonb) returns table (id text, document text)
language plpgsql stable security invoker set plan_cache_mode = force_custom_plan as $$
declare
  v_limit constant int := p_read ->> 'limit';
  v_run constant uuid := p_read ->> 'runId';
  v_after constant uuid := p_read ->> 'after';
  v_after_code constant text := (
    select f.code from public.reconcile_finding f where f.tenant_id = p_tenant and f.run_id = v_run and f.id = v_after);
  v_kind constant text := p_read ->> 'kind';
begin
  return query
  select f.id::text,
    format('{"id":"%s","kind":"%s","code":%s,"skuId":%s,"account":%s,"counted":%s,"countedAt":%s,"expected":%s,"variance":%s,', f.id,
      f.kind, holdfast.quote(f.code), holdfast.quote(f.sku_id::text), holdfast.quote(f.account_id), coalesce(f.counted::text, 'null'),
      holdfast.quote(holdfast.rfc3339(f.counted_at)), coalesce(f.expected::text, 'null'),
      coalesce((f.counted - f.expected)::text, 'null'))
    || format('"adjusted":%s,"short":%s,"bookedAt":%s,"reason":%s}', f.adjusted, f.short,
      holdfast.quote(holdfast.rfc3339(f.booked_at)), holdfast.quote(f.reason))
  from public.reconcile_finding f
  where f.tenant_id = p_tenant and f.run_id = v_run and (v_kind is null or f.kind = v_kind)
    and (v_after is null or (f.code, f.id) > (v_after_code, v_after))
  order by f.code, f.id
  limit v_limit + 1;
end $$;

-- A field of CSV (RFC 4180). What a spreadsheet would take for a formula begins with an apostrophe.
create or replace function holdfast.csv_field(p_text text) returns text
language sql immutable parallel safe
return case when p_text is null then ''
  else '"' || case when p_text ~ '^[=+\-@\t\r]' then '''' else '' end || replace(p_text, '"', '""') || '"' end;

-- {"tenantId","userId","runId","after"}: what the run found as CSV, in order of code, from behind the finding with the id `after`; at
-- most 20,000 lines, which is below 4 MB. The last column is what `after` takes.
create or replace function holdfast.reconcile_csv(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker set plan_cache_mode = force_custom_plan as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_run constant uuid := p_read ->> 'runId';
  v_after constant uuid := p_read ->> 'after';
  v_after_code text;
  v_lines text;
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
  elsif not exists (select from public.reconcile_run r where r.tenant_id = v_tenant and r.id = v_run) then
    return holdfast.decided('not_found');
  end if;
  if v_after is not null then
    select f.code into v_after_code from public.reconcile_finding f
    where f.tenant_id = v_tenant and f.run_id = v_run and f.id = v_after;
    if not found then
      return holdfast.decided('unknown_after');
    end if;
  end if;
  select string_agg(l.line, '' order by l.code, l.id) into v_lines
  from (
    select f.code, f.id, concat_ws(',', f.kind, holdfast.csv_field(f.code), holdfast.csv_field(f.account_id),
      coalesce(f.counted::text, ''), coalesce(holdfast.rfc3339(f.counted_at), ''), coalesce(f.expected::text, ''),
      coalesce((f.counted - f.expected)::text, ''), f.adjusted, f.short, coalesce(holdfast.rfc3339(f.booked_at), ''),
      holdfast.csv_field(f.reason), f.id) || E'\r\n' as line
    from public.reconcile_finding f
    where f.tenant_id = v_tenant and f.run_id = v_run and (v_after is null or (f.code, f.id) > (v_after_code, v_after))
    order by f.code, f.id limit 20000) l;
  return row('answer', 200, convert_to(
    E'kind,sku,account,counted,counted_at,expected,variance,adjusted,short,booked_at,reason,id\r\n' || coalesce(v_lines, ''),
    'UTF8'), 'text/csv; charset=utf-8', null, null)::holdfast.answer;
end $$;

-- {"tenantId","id","actor","decision": accept or drop}: a person's decision about a run that is held. Accepted, it is booked by whoever
-- claims it next. One that has booked nothing yet can be dropped as well; whoever works at it then loses it.
create or replace function holdfast.decide_reconcile_run(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_id constant uuid := p_call ->> 'id';
  v_accept constant boolean := p_call ->> 'decision' = 'accept';
begin
  update public.reconcile_run r
  set state = case when v_accept then 'booking' else 'dropped' end, decided_by = p_call ->> 'actor', decided_at = now(),
      updated_at = now(), finished_at = case when not v_accept then now() end
  where r.tenant_id = v_tenant and r.id = v_id
    and (r.state = 'held' or (not v_accept and r.state in ('walking', 'measuring')));
  if not found then
    if exists (select from public.reconcile_run r where r.tenant_id = v_tenant and r.id = v_id) then
      return holdfast.refusal(409, 'reconcile_state', 'The run does not wait for this decision.');
    end if;
    return holdfast.refusal(404, 'not_found', 'There is no reconciliation with this id.');
  end if;
  return holdfast.success(200, (select d.document from holdfast.reconcile_run_documents(v_tenant, array[v_id]) d));
end $$;
