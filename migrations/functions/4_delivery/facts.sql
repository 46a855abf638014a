-- {"ids":[…]}: what pushes and mails contain, read after the claim has committed: a push carries the ATS of this moment, and a
-- later change has its own row. Reads as one tenant at a time: the worker crosses tenants only on the tables that it drains.
create or replace function holdfast.relay_facts(p_call jsonb) returns table (id bigint, facts text)
language plpgsql volatile security invoker as $$
#variable_conflict use_column
declare
  v_row record;
begin
  for v_row in
    select o.id, o.tenant_id, o.destination_id, o.aggregate_type, o.aggregate_id, o.event_type, o.sequence, o.created_at,
      o.requeues, d.kind
    from public.outbox o join public.destination d on d.id = o.destination_id
    where o.id = any (array(select jsonb_array_elements_text(p_call -> 'ids'))::bigint[]) order by o.id
  loop
    perform set_config('app.tenant_id', v_row.tenant_id::text, true);
    id := v_row.id;
    facts := case
      when v_row.kind = 'sqs' then v_row.requeues::text
      when v_row.event_type = 'destination.test' then holdfast.test_facts(v_row.tenant_id, v_row.id, v_row.kind)
      when v_row.kind = 'shopify_inventory' and v_row.aggregate_type = 'sku'
        then holdfast.push_facts(v_row.tenant_id, v_row.destination_id, v_row.aggregate_id, v_row.requeues)
      when v_row.kind = 'email' and v_row.event_type = 'order.line_allocated'
        then holdfast.confirmation_facts(v_row.tenant_id, v_row.destination_id, v_row.aggregate_id, holdfast.allocation_of(v_row.tenant_id,
          v_row.destination_id, v_row.aggregate_id, v_row.created_at, v_row.sequence)) end;
    return next;
  end loop;
  perform set_config('app.tenant_id', '', true);
end $$;

-- What a person who tries a destination out wants to see there: at a shop that it answers, of mail one to that person.
create or replace function holdfast.test_facts(p_tenant uuid, p_row bigint, p_kind text) returns text
language sql stable as $$
  select case p_kind
    when 'shopify_inventory' then '{"test":true}'
    when 'email' then (
      select format('{"senderAllowed":%s,"to":%s,"paused":%s,"toName":%s,"test":%s}',
                    holdfast.is_allowed_target(p_tenant, d.kind, d.url)::text, holdfast.quote(u.email),
                    holdfast.quote(holdfast.why_paused(u.email)), holdfast.quote(u.display_name), holdfast.quote(d.name))
      from public.outbox o
      join public.destination d on d.id = o.destination_id
      join public.app_user u on u.tenant_id = p_tenant and u.id = (o.payload::jsonb -> 'data' ->> 'userId')::uuid
      where o.id = p_row) end
$$;

-- silent: the shop did not carry the SKU less than a day ago, and no person has requeued the event: it is not asked.
create or replace function holdfast.push_facts(p_tenant uuid, p_destination uuid, p_sku uuid, p_requeues int) returns text
language sql stable as $$
  select format('{"code":%s,"ats":%s,"inventoryItemId":%s,"requeues":%s,"silent":%s}', holdfast.quote(s.code),
                p.on_hand + p.on_order - p.allocated, holdfast.quote(i.inventory_item_id), p_requeues,
                (p_requeues = 0 and i.inventory_item_id is null and coalesce(i.ask_after > clock_timestamp(), false))::text)
  from public.sku s
  join public.sku_position p on p.tenant_id = p_tenant and p.sku_id = s.id
  left join public.shopify_inventory_item i
    on i.tenant_id = p_tenant and i.destination_id = p_destination and i.sku_id = s.id
  where s.tenant_id = p_tenant and s.id = p_sku
$$;

-- What one allocation promised, as the data of its events, one per SKU; null for all but the first of them, so that one mail
-- confirms them all. The events of an allocation are written by one statement, and so have one time.
create or replace function holdfast.allocation_of(p_tenant uuid, p_destination uuid, p_order uuid, p_at timestamptz,
  p_sequence bigint) returns jsonb
language plpgsql stable as $$
begin
  if exists (select from public.outbox o
             where o.tenant_id = p_tenant and o.created_at = p_at and o.destination_id = p_destination
               and o.aggregate_id = p_order and o.event_type = 'order.line_allocated' and o.sequence < p_sequence) then
    return null;
  end if;
  return (select jsonb_agg(o.payload::jsonb -> 'data' order by o.sequence) from public.outbox o
          where o.tenant_id = p_tenant and o.created_at = p_at and o.destination_id = p_destination
            and o.aggregate_id = p_order and o.event_type = 'order.line_allocated');
end $$;

-- p_data: [{"skuId","qty","atsAfter"}], or null: no mail. `allocated`, its first, is for relays that know of no others.
create or replace function holdfast.confirmation_facts(p_tenant uuid, p_destination uuid, p_order uuid, p_data jsonb)
returns text language sql stable as $$
  select format('{"senderAllowed":%s,"to":%s,"paused":%s,"toName":%s,"orderNumber":%s,"customerName":%s,"customerPo":%s,"allocated":%s,"allocations":[%s],"lines":[%s]}',
    (select holdfast.is_allowed_target(p_tenant, d.kind, d.url) from public.destination d where d.id = p_destination)::text,
    holdfast.quote(u.email), holdfast.quote(holdfast.why_paused(u.email)), holdfast.quote(u.display_name), holdfast.quote(o.number), holdfast.quote(c.name),
    holdfast.quote(o.customer_po), a.documents[1], array_to_string(a.documents, ','),
    (select string_agg(format('{"code":%s,"qty":%s,"qtyAllocated":%s,"qtyShipped":%s}', holdfast.quote(s.code), l.qty,
                              l.qty_allocated, l.qty_shipped), ',' order by l.line_no, s.code)
     from public.order_line l join public.sku s on s.tenant_id = p_tenant and s.id = l.sku_id
     where l.tenant_id = p_tenant and l.order_id = o.id))
  from public.wholesale_order o
  join public.app_user u on u.tenant_id = p_tenant and u.id = o.created_by
  join public.customer c on c.tenant_id = p_tenant and c.id = o.customer_id
  cross join lateral (
    select array_agg(format('{"code":%s,"styleName":%s,"qty":%s,"atsAfter":%s}', holdfast.quote(s.code), holdfast.quote(y.name),
                            d.data -> 'qty', d.data -> 'atsAfter') order by d.ord) as documents
    from jsonb_array_elements(p_data) with ordinality as d(data, ord)
    join public.sku s on s.tenant_id = p_tenant and s.id = (d.data ->> 'skuId')::uuid
    join public.style y on y.tenant_id = p_tenant and y.id = s.style_id) a
  where o.tenant_id = p_tenant and o.id = p_order and p_data is not null
$$;

