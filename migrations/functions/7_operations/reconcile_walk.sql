-- Walking: what accounts report becomes snapshots, page by page.

-- p_call: as of reconcile_page_begins, and {"account", "codes", "counts", "times" (one of each per line), "invalid":
-- [{"code","reason"}], "next": where the walk goes on, {"account","after"}, or null when all accounts are walked}. Returns the run's
-- state behind the page, or lost.
create or replace function holdfast.reconcile_walk(p_call jsonb) returns text
language plpgsql volatile security invoker set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_account constant text := p_call ->> 'account';
  v_codes constant text[] := array(select jsonb_array_elements_text(p_call -> 'codes'));
  v_counts constant bigint[] := array(select jsonb_array_elements_text(p_call -> 'counts'))::bigint[];
  v_times constant timestamptz[] := array(select jsonb_array_elements_text(p_call -> 'times'))::timestamptz[];
  v_next constant jsonb := nullif(p_call -> 'next', 'null');
  v_state constant text := case when v_next is null then 'measuring' else 'walking' end;
  v_page record;
  v_run public.reconcile_run;
  v_skus uuid[];
  v_unknown text[];
  v_news bigint;
  v_invalid bigint;
begin
  select * into v_page from holdfast.reconcile_page_begins(p_call, 'walking');
  if v_page.outcome is not null then
    return v_page.outcome;
  end if;
  v_run := v_page.run;
  -- Look-ups line by line, whatever the planner believes of a table that has just grown.
  select array_agg(k.id order by l.ord), array_agg(distinct l.code order by l.code) filter (where k.id is null)
  into v_skus, v_unknown
  from unnest(v_codes) with ordinality as l(code, ord)
  left join lateral (select k.id from public.sku k where k.tenant_id = v_tenant and k.code = l.code limit 1) k on true;

  -- Of two counts of one SKU by one account the newer one holds, and of two of one moment the lower, in whatever order they come.
  insert into public.inventory_snapshot as s (tenant_id, snapshot_date, sku_id, account_id, on_hand, as_of, run_id)
  select distinct on (l.sku_id) v_tenant, v_run.snapshot_date, l.sku_id, v_account, l.qty, l.as_of, v_run.id
  from unnest(v_skus, v_counts, v_times) as l(sku_id, qty, as_of) where l.sku_id is not null
  order by l.sku_id, l.as_of desc, l.qty
  on conflict (tenant_id, snapshot_date, sku_id, account_id) do update
    set on_hand = excluded.on_hand, as_of = excluded.as_of, run_id = excluded.run_id, taken_at = now()
    where s.run_id is distinct from excluded.run_id or (excluded.as_of, -excluded.on_hand) > (s.as_of, -s.on_hand);

  v_news := holdfast.note_unknown_codes(v_run, v_account, v_unknown);
  with noted as (
    insert into public.reconcile_finding (tenant_id, run_id, kind, code, account_id, reason)
    select v_tenant, v_run.id, 'invalid', i.line ->> 'code', v_account, i.line ->> 'reason'
    from jsonb_array_elements(p_call -> 'invalid') as i(line)
    on conflict do nothing
    returning 1
  )
  select count(*) into v_invalid from noted;

  update public.reconcile_run r
  set state = v_state, pages = r.pages + 1, unknown = r.unknown + v_news, invalid = r.invalid + v_invalid,
      lines = r.lines + cardinality(v_codes) + jsonb_array_length(p_call -> 'invalid')
  where r.tenant_id = v_tenant and r.id = v_run.id;
  perform holdfast.reconcile_checkpoint(v_run, v_state, v_next);
  return v_state;
end $$;

-- Codes that name no SKU of ours: a finding each, and an exception for a person, one per night and code. Returns how many are new
-- in this run.
create or replace function holdfast.note_unknown_codes(p_run public.reconcile_run, p_account text, p_codes text[]) returns bigint
language plpgsql volatile security invoker as $$
declare
  v_new text[];
  v_kept record;
begin
  if p_codes is null then
    return 0;
  end if;
  with noted as (
    insert into public.reconcile_finding (tenant_id, run_id, kind, code, account_id)
    select p_run.tenant_id, p_run.id, 'unknown', c.code, p_account from unnest(p_codes) as c(code)
    on conflict do nothing
    returning code
  )
  select array_agg(code order by code) into v_new from noted;
  with kept as (
    insert into public.inbox_exception (tenant_id, provider, event_id, topic, reason, waits_for, body, event_sequence)
    select p_run.tenant_id, 'reconcile:' || p_account, p_run.snapshot_date || '/' || c.code, 'inventory',
      'no SKU of ours: ' || c.code, 'sku:' || c.code, convert_to(jsonb_build_object('sku', c.code)::text, 'UTF8'), 1
    from unnest(v_new) as c(code)
    on conflict (provider, event_id) do nothing
    returning id, event_id, reason
  )
  select array_agg(k.id order by k.event_id) as ids, array_agg(k.event_id order by k.event_id) as event_ids,
    array_agg(k.reason order by k.event_id) as reasons into v_kept from kept k;
  if v_kept.ids is not null then
    perform holdfast.emit(p_run.tenant_id, (
      select array_agg(row('inbox.exception', 'inbox_exception', k.id, 1, null,
        format('{"exceptionId":"%s","provider":%s,"eventId":%s,"topic":"inventory","reason":%s}', k.id,
          holdfast.quote('reconcile:' || p_account), holdfast.quote(k.event_id), holdfast.quote(k.reason)))::holdfast.event
        order by k.ord)
      from unnest(v_kept.ids, v_kept.event_ids, v_kept.reasons) with ordinality as k(id, event_id, reason, ord)));
  end if;
  return coalesce(cardinality(v_new), 0);
end $$;
