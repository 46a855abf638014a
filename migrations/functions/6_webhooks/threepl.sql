-- What a 3PL reports of goods. Each line of a document counts once, and on_order is what open ASNs have announced and not
-- delivered, so every order of arrival ends in the same numbers, but for what shortfalls still owe: a position less that is a sum
-- of facts. What cannot be booked because it is promised is a shortfall.
-- Lock order: ASN, or customer -> order; then positions by SKU; then inserts.

-- Stores the lines that are new, and sums them per SKU (ascending); reason names lines that could not be taken. Lateral look-ups
-- with a limit go line by line, whatever the planner believes of a table that has just grown.
create or replace function holdfast.take_lines(p_tenant uuid, p_account text, p_kind text, p_command jsonb,
  out skus uuid[], out qtys bigint[], out reason text)
language plpgsql volatile security invoker as $$
declare
  -- The id of a receipt, a shipment or a return is unique only within its ASN or order; a line of an adjustment has one document,
  -- its account.
  v_document constant text := jsonb_build_array(coalesce(p_command ->> 'orderId', p_command ->> 'asnId'),
    p_command ->> 'documentId');
  v_sent record;
  v_differing text;
begin
  select array_agg(s.line ->> 'lineId') as ids, array_agg(k.id) as skus, array_agg((s.line ->> 'qty')::bigint) as qtys,
    array_agg(s.line ->> 'reason') as reasons,
    string_agg(distinct s.line ->> 'sku', ', ') filter (where k.id is null) as unknown
  into v_sent
  from jsonb_array_elements(p_command -> 'lines') as s(line)
  left join lateral (select k.id from public.sku k where k.tenant_id = p_tenant and k.code = s.line ->> 'sku' limit 1) k on true;

  with taken as (
    insert into public.threepl_line (tenant_id, account_id, kind, document_id, line_id, sku_id, qty, reason)
    select p_tenant, p_account, p_kind, v_document, s.line_id, s.sku_id, s.qty, s.reason
    from unnest(v_sent.ids, v_sent.skus, v_sent.qtys, v_sent.reasons) as s(line_id, sku_id, qty, reason)
    where s.sku_id is not null
    on conflict do nothing
    returning sku_id, qty
  ), summed as (
    select t.sku_id, sum(t.qty)::bigint as qty from taken t group by t.sku_id
  )
  select coalesce(array_agg(m.sku_id order by m.sku_id), '{}'), coalesce(array_agg(m.qty order by m.sku_id), '{}')
  into skus, qtys from summed m;

  -- A line that was sent before with other values counts as it was first sent: a retry only means that a person has seen it.
  select string_agg(distinct s.line_id, ', ') into v_differing
  from unnest(v_sent.ids, v_sent.skus, v_sent.qtys) as s(line_id, sku_id, qty)
  cross join lateral (select l.sku_id, l.qty from public.threepl_line l
                      where l.tenant_id = p_tenant and l.account_id = p_account and l.kind = p_kind
                        and l.document_id = v_document and l.line_id = s.line_id limit 1) l
  where (l.sku_id, l.qty) <> (s.sku_id, s.qty);
  reason := nullif(left(concat_ws('; ', 'no SKU of ours: ' || v_sent.unknown,
    case when not (p_command ->> 'retry')::boolean then 'told before, and differently: line ' || v_differing end), 500), '');
end $$;

create or replace function holdfast.apply_threepl(p_tenant uuid, p_account text, p_command jsonb, p_actor text)
returns holdfast.verdict
language plpgsql volatile security invoker as $$
declare
  v_do constant text := p_command ->> 'do';
  v_external constant text := p_command ->> 'asnId';
  v_asn public.asn;
  v_taken record;
  v_skus uuid[];
begin
  if v_do = 'order.shipped' then
    return holdfast.apply_shipment(p_tenant, p_account, p_command, p_actor);
  elsif v_do = 'order.returned' then
    return holdfast.apply_return(p_tenant, p_account, p_command, p_actor);
  elsif v_do = 'inventory.adjusted' then
    select t.skus, t.qtys, t.reason into v_taken from holdfast.take_lines(p_tenant, p_account, v_do, p_command) t;
    perform holdfast.count_on_hand(p_tenant, v_taken.skus, v_taken.qtys, v_do, p_actor);
    return row(p_tenant, v_taken.reason, null)::holdfast.verdict;
  end if;
  insert into public.asn (tenant_id, account_id, external_id) values (p_tenant, p_account, v_external) on conflict do nothing;
  select a.* into v_asn from public.asn a
  where a.tenant_id = p_tenant and a.account_id = p_account and a.external_id = v_external for no key update;
  if v_do = 'asn.received' and v_asn.announced_at is null then
    return row(p_tenant, format('ASN %s has not been announced', v_external), 'asn:' || v_external)::holdfast.verdict;
  end if;

  update public.asn a
  set announced_at = case when v_do = 'asn.created' then coalesce(a.announced_at, now()) else a.announced_at end,
      closed_at = case when v_do = 'asn.cancelled' or (v_do = 'asn.received' and (p_command ->> 'closed')::boolean)
                       then coalesce(a.closed_at, now()) else a.closed_at end
  where a.tenant_id = p_tenant and a.id = v_asn.id;
  if v_do <> 'asn.cancelled' then
    select t.skus, t.qtys, t.reason into v_taken from holdfast.take_lines(p_tenant, p_account, v_do, p_command) t;
    insert into public.asn_line as l (tenant_id, asn_id, sku_id, announced, received)
    select p_tenant, v_asn.id, n.sku_id, case v_do when 'asn.created' then n.qty else 0 end,
      case v_do when 'asn.received' then n.qty else 0 end
    from unnest(v_taken.skus, v_taken.qtys) as n(sku_id, qty)
    on conflict (tenant_id, asn_id, sku_id) do update
      set announced = l.announced + excluded.announced, received = l.received + excluded.received;
    if v_do = 'asn.received' then
      perform holdfast.settle_asn(p_tenant, v_asn.id, v_taken.skus, v_taken.qtys, v_do, p_actor);
      return row(p_tenant, v_taken.reason, null)::holdfast.verdict;
    end if;
  end if;
  if v_do = 'asn.created' then
    -- Waiting receipts may bring SKUs that were not announced: all positions are locked now, in one order.
    v_skus := array(
      select l.sku_id from public.asn_line l where l.tenant_id = p_tenant and l.asn_id = v_asn.id
      union
      select k.id from public.inbox_exception e
      cross join lateral jsonb_array_elements(e.command -> 'lines') as s(line)
      cross join lateral (select k.id from public.sku k where k.tenant_id = p_tenant and k.code = s.line ->> 'sku' limit 1) k
      where e.provider = '3pl:' || p_account and e.waits_for = 'asn:' || v_external and e.resolved_at is null);
    perform from public.sku_position p
    where p.tenant_id = p_tenant and p.sku_id = any (v_skus) order by p.sku_id for no key update;
  end if;
  perform holdfast.settle_asn(p_tenant, v_asn.id, '{}', '{}', v_do, p_actor);
  if v_do = 'asn.created' then
    perform holdfast.wake_exceptions(p_tenant, '3pl:' || p_account, 'asn:' || v_external, '{}', false, p_actor);
    return row(p_tenant, v_taken.reason, null)::holdfast.verdict;
  end if;
  return row(p_tenant, null, null)::holdfast.verdict;
end $$;

-- Goods that came back of an order raise on_hand. What was shipped and invoiced stays so: a return does not undo a bill, and the
-- order does not want the goods again.
create or replace function holdfast.apply_return(p_tenant uuid, p_account text, p_command jsonb, p_actor text)
returns holdfast.verdict
language plpgsql volatile security invoker as $$
declare
  v_order constant uuid := p_command ->> 'orderId';
  v_taken record;
  v_lines jsonb;
  v_strange text;
begin
  -- Locked, so that the order's history tells what happened to it in one order.
  perform from public.wholesale_order o where o.tenant_id = p_tenant and o.id = v_order for no key update;
  if not found then
    return row(p_tenant, 'there is no such order', null)::holdfast.verdict;
  end if;
  select t.skus, t.qtys, t.reason into v_taken from holdfast.take_lines(p_tenant, p_account, 'order.returned', p_command) t;
  if cardinality(v_taken.skus) > 0 then
    perform holdfast.count_on_hand(p_tenant, v_taken.skus, v_taken.qtys, 'order.returned', p_actor);
    select jsonb_agg(jsonb_build_object('skuId', k.id, 'code', k.code, 'qty', n.qty) order by k.code),
      string_agg(k.code, ', ' order by k.code) filter (where not exists (
        select from public.order_line l where l.tenant_id = p_tenant and l.order_id = v_order and l.sku_id = n.sku_id))
    into v_lines, v_strange
    from unnest(v_taken.skus, v_taken.qtys) as n(sku_id, qty)
    cross join lateral (select k.id, k.code from public.sku k where k.tenant_id = p_tenant and k.id = n.sku_id limit 1) k;
    perform holdfast.note_order_change(p_tenant, v_order, 'returned', p_actor, jsonb_build_object('lines', v_lines));
  end if;
  return row(p_tenant, nullif(left(concat_ws('; ', v_taken.reason,
    'returned, and not on this order: ' || v_strange), 500), ''), null)::holdfast.verdict;
end $$;

-- Adds units (by SKU, ascending and distinct) to on_hand; below zero takes them away, and what is promised of those is a
-- shortfall whose cause is p_event.
create or replace function holdfast.count_on_hand(p_tenant uuid, p_skus uuid[], p_units bigint[], p_event text, p_actor text)
returns void
language plpgsql volatile security invoker as $$
declare
  v_booking record;
begin
  perform from public.sku_position p
  where p.tenant_id = p_tenant and p.sku_id = any (p_skus) order by p.sku_id for no key update;
  -- As in channel_lines_due: a document may have thousands of lines.
  with line as (
    select n.sku_id, n.units, greatest(0, -n.units - p.ats) as owed
    from unnest(p_skus, p_units) as n(sku_id, units)
    cross join lateral (select p.on_hand + p.on_order - p.allocated as ats from public.sku_position p
                        where p.tenant_id = p_tenant and p.sku_id = n.sku_id limit 1) p
    where n.units <> 0
  )
  select array_agg(l.sku_id order by l.sku_id) as skus, array_agg(l.owed order by l.sku_id) as owed,
    array_agg(0::bigint order by l.sku_id) as zeros,
    array_agg(row(l.sku_id, l.units + l.owed, 0, 0, p_event)::holdfast.position_change order by l.sku_id) as changes
  into v_booking from line l;
  if v_booking.skus is not null then
    perform holdfast.shift(p_tenant, v_booking.changes, null, null, null, p_actor);
    perform holdfast.add_shortfall(p_tenant, v_booking.skus, v_booking.owed, v_booking.owed, v_booking.zeros, p_event);
  end if;
end $$;

-- Sets positions' on_order to what an ASN, whose row is locked, is still to deliver: announced and not received, or 0 once
-- closed. p_skus, p_received: units that have just arrived on hand; below zero, those that a correction takes back.
create or replace function holdfast.settle_asn(p_tenant uuid, p_asn uuid, p_skus uuid[], p_received bigint[], p_event text,
  p_actor text) returns void
language plpgsql volatile security invoker as $$
declare
  v_closed constant boolean := (select a.closed_at is not null from public.asn a where a.tenant_id = p_tenant and a.id = p_asn);
  v_skus uuid[];
  v_booking record;
begin
  v_skus := array(select l.sku_id from public.asn_line l where l.tenant_id = p_tenant and l.asn_id = p_asn);
  perform from public.sku_position p
  where p.tenant_id = p_tenant and p.sku_id = any (v_skus) order by p.sku_id for no key update;

  -- As in channel_lines_due: an ASN may have thousands of lines.
  with line as (
    select m.sku_id, m.on_hand, m.on_order, p.ats
    from (
      select d.sku_id, sum(d.on_hand)::bigint as on_hand, sum(d.on_order)::bigint as on_order
      from (
        select n.sku_id, n.qty as on_hand, 0 as on_order from unnest(p_skus, p_received) as n(sku_id, qty)
        union all
        select l.sku_id, 0, holdfast.outstanding(l.announced, l.received, v_closed) - l.on_order
        from public.asn_line l where l.tenant_id = p_tenant and l.asn_id = p_asn
      ) d group by d.sku_id
    ) m
    cross join lateral (select p.on_hand + p.on_order - p.allocated as ats from public.sku_position p
                        where p.tenant_id = p_tenant and p.sku_id = m.sku_id limit 1) p
  ), owing as (
    -- What is missing is missing on hand as far as a correction took it from there.
    select *, greatest(0, -on_hand - on_order - ats) as owed,
      least(greatest(0, -on_hand - on_order - ats), greatest(0, -on_hand)) as owed_on_hand from line
  )
  select array_agg(o.sku_id order by o.sku_id) as skus, array_agg(o.owed order by o.sku_id) as owed,
    array_agg(o.owed_on_hand order by o.sku_id) as owed_on_hand,
    array_agg(o.owed - o.owed_on_hand order by o.sku_id) as owed_on_order,
    array_agg(row(o.sku_id, o.on_hand + o.owed_on_hand, o.on_order + o.owed - o.owed_on_hand, 0, p_event)
      ::holdfast.position_change order by o.sku_id) as changes
  into v_booking from owing o where (o.on_hand, o.on_order) <> (0, 0);
  if v_booking.skus is null then
    return;
  end if;
  update public.asn_line l
  set on_order = holdfast.outstanding(l.announced, l.received, v_closed)
  where l.tenant_id = p_tenant and l.asn_id = p_asn;
  perform holdfast.shift(p_tenant, v_booking.changes, null, null, null, p_actor);
  perform holdfast.add_shortfall(p_tenant, v_booking.skus, v_booking.owed, v_booking.owed_on_hand, v_booking.owed_on_order,
    p_event);
end $$;

-- Units of an ASN's line that are still to come. A correction that came before its receipt does not raise what was announced.
create or replace function holdfast.outstanding(p_announced bigint, p_received bigint, p_closed boolean) returns bigint
language sql immutable parallel safe
return case when p_closed then 0 else greatest(0, p_announced - greatest(0, p_received)) end;
