-- What people watch all day: what waits for a person, and how deliveries go. Both are asked for every few seconds by every open
-- page, so they cost the same however much has been settled.

-- How much waits for a person, of each kind; each count ends at `most` + 1. destinations: disabled, or failing at present.
-- held: reconciliations that wait for a decision.
create or replace function holdfast.attention(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_most constant int := p_read ->> 'most';
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
  end if;
  return holdfast.document_answer(format(
    '{"most":%s,"deadLetters":%s,"exceptions":%s,"shortfalls":%s,"held":%s,"destinations":%s}', v_most,
    (select count(*) from (select from public.outbox o
      where o.tenant_id = v_tenant and o.dead_lettered_at is not null limit v_most + 1) q),
    (select count(*) from (select from public.inbox_exception e
      where e.tenant_id = v_tenant and e.resolved_at is null limit v_most + 1) q),
    (select count(*) from (select from public.shortfall s
      where s.tenant_id = v_tenant and s.settled_at is null limit v_most + 1) q),
    (select count(*) from (select from public.reconcile_run r
      where r.tenant_id = v_tenant and r.state = 'held' limit v_most + 1) q),
    (select count(*) from (select from public.destination d
      left join public.destination_health h on h.destination_id = d.id
      where d.tenant_id = v_tenant and (d.state = 'disabled' or h.open_until is not null) limit v_most + 1) q)));
end $$;

-- Attempts of each destination, newest destination first: of the last 60 minutes and the last 24 hours, oldest first, the last
-- being the present one. Each is [delivered, failed].
create or replace function holdfast.delivery_rates(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_now constant timestamptz := clock_timestamp();
  -- More than a page can show.
  v_most constant int := 200;
  v_destinations text;
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
  end if;
  select string_agg(format('{"id":"%s","minutes":%s,"hours":%s}', d.id,
           holdfast.tallied(d.id, 'minute', v_now, 60), holdfast.tallied(d.id, 'hour', v_now, 24)), ',' order by d.created_at desc, d.id)
  into v_destinations
  from (select * from public.destination d where d.tenant_id = v_tenant order by d.created_at desc, d.id limit v_most) d;
  return holdfast.document_answer(format('{"at":"%s","destinations":[%s]}', holdfast.rfc3339(v_now), v_destinations));
end $$;

-- The last p_count spans of a destination as a JSON array.
create or replace function holdfast.tallied(p_destination uuid, p_span text, p_now timestamptz, p_count int) returns text
language sql stable security invoker as $$
  select '[' || string_agg(format('[%s,%s]', coalesce(t.delivered, 0), coalesce(t.failed, 0)), ',' order by g.at) || ']'
  from (select date_trunc(p_span, p_now, 'UTC') - n * ('1 ' || p_span)::interval as at from generate_series(0, p_count - 1) n) g
  left join public.delivery_tally t on t.destination_id = p_destination and t.span = p_span and t.at = g.at
    and t.slot = holdfast.tally_slot(p_span, g.at)
$$;
