-- Creates and cancels orders.

-- {"tenantId","userId","fields"}; fields: customerId, customerPo, shipWindowStart, shipWindowEnd, notes, lines (with prices).
create or replace function holdfast.create_order(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_user constant uuid := p_call ->> 'userId';
  v_fields constant jsonb := p_call -> 'fields';
  v_order constant uuid := gen_random_uuid();
  v_customer record;
  v_number text;
  v_refused holdfast.outcome;
begin
  select c.id, c.currency, c.on_hold into v_customer from public.customer c
  where c.tenant_id = v_tenant and c.id = (v_fields ->> 'customerId')::uuid;
  if not found then
    return holdfast.refusal(422, 'unknown_customer', 'There is no customer with this id.');
  elsif v_customer.on_hold then
    return holdfast.refuse_on_hold();
  end if;
  insert into public.wholesale_order (tenant_id, id, number, customer_id, currency, customer_po, ship_window_start,
      ship_window_end, notes, event_sequence, created_by, updated_by)
  values (v_tenant, v_order, v_order::text, v_customer.id, v_customer.currency, v_fields ->> 'customerPo',
      (v_fields ->> 'shipWindowStart')::date, (v_fields ->> 'shipWindowEnd')::date, v_fields ->> 'notes', 1, v_user, v_user);
  v_refused := holdfast.replace_lines(v_tenant, v_order, v_fields -> 'lines');
  if v_refused.status is not null then
    return v_refused;
  end if;
  perform holdfast.emit(v_tenant, array[row('order.created', 'wholesale_order', v_order, 1, v_customer.id,
    format('{"version":1,"changed":%s}',
      (select json_agg(name order by name) from jsonb_object_keys(v_fields) name)))::holdfast.event]);
  perform holdfast.note_order_change(v_tenant, v_order, 'created', p_call ->> 'actor',
    jsonb_build_object('version', 1, 'after', holdfast.order_fields(v_tenant, v_order, v_fields)));
  -- Last, since whoever creates an order waits for the tenant's row from here to the commit. Until now its id was its number.
  update public.tenant t set order_number = t.order_number + 1 where t.id = v_tenant returning t.order_number into v_number;
  update public.wholesale_order o set number = v_number where o.tenant_id = v_tenant and o.id = v_order;
  return holdfast.success(201, holdfast.order_document(v_tenant, v_order), '"1"', '/orders/' || v_order);
end $$;

-- {"tenantId","orderId","userId","actor","match"}: releases all that the order holds, and sets it to cancelled.
create or replace function holdfast.cancel_order(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_order constant uuid := p_call ->> 'orderId';
  v_user constant uuid := p_call ->> 'userId';
  v_actor constant text := p_call ->> 'actor';
  v_order_row record;
  v_held jsonb;
  v_refused holdfast.outcome;
  v_released holdfast.outcome;
begin
  select o.customer_id, o.status into v_order_row from public.wholesale_order o
  where o.tenant_id = v_tenant and o.id = v_order for no key update;
  if not found then
    return holdfast.refusal(404, 'order_not_found', 'There is no order with this id.');
  elsif v_order_row.status <> 'open' then
    return holdfast.refusal(409, 'order_not_open',
      format('The order is %s; only an open order can be cancelled.', v_order_row.status));
  end if;
  v_refused := holdfast.refuse_version(v_tenant, v_order, nullif(p_call -> 'match', 'null'));
  if v_refused.status is not null then
    return v_refused;
  end if;
  if exists (select from public.order_line l
             where l.tenant_id = v_tenant and l.order_id = v_order and l.qty_shipped > 0) then
    return holdfast.refusal(409, 'order_part_shipped',
      'Something of the order was shipped, so it cannot be cancelled: close it instead.');
  end if;
  select jsonb_agg(jsonb_build_object('skuId', l.sku_id, 'qty', l.qty_allocated)) into v_held from public.order_line l
  where l.tenant_id = v_tenant and l.order_id = v_order and l.qty_allocated > 0;
  if v_held is not null then
    v_released := holdfast.give_back(v_tenant, v_order, v_held, v_actor, 'cancel');
    if v_released.status <> 200 then
      raise exception 'the order cannot give back what it holds: %', v_released.error;
    end if;
  end if;
  update public.wholesale_order o
  set status = 'cancelled', version = o.version + 1, event_sequence = o.event_sequence + 1,
      updated_by = v_user, updated_at = clock_timestamp()
  where o.tenant_id = v_tenant and o.id = v_order
  returning o.version, o.event_sequence, o.customer_id into v_order_row;
  perform holdfast.emit(v_tenant, array[row('order.cancelled', 'wholesale_order', v_order, v_order_row.event_sequence,
    v_order_row.customer_id, format('{"version":%s,"changed":["status"]}', v_order_row.version))::holdfast.event]);
  perform holdfast.note_order_change(v_tenant, v_order, 'cancelled', v_actor,
    jsonb_build_object('version', v_order_row.version));
  return holdfast.success(200, holdfast.order_document(v_tenant, v_order), format('"%s"', v_order_row.version));
end $$;

-- {"tenantId","orderId","userId","actor","match"}: ends a part-shipped order: what it holds is released, each line falls to what was
-- shipped of it, and lines of which nothing was shipped go. Invoices stand.
create or replace function holdfast.close_order(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_order constant uuid := p_call ->> 'orderId';
  v_actor constant text := p_call ->> 'actor';
  v_order_row record;
  v_held jsonb;
  v_before jsonb;
  v_refused holdfast.outcome;
  v_released holdfast.outcome;
begin
  select o.status into v_order_row from public.wholesale_order o
  where o.tenant_id = v_tenant and o.id = v_order for no key update;
  if not found then
    return holdfast.refusal(404, 'order_not_found', 'There is no order with this id.');
  elsif v_order_row.status <> 'open' then
    return holdfast.refusal(409, 'order_not_open',
      format('The order is %s; only an open order can be closed.', v_order_row.status));
  end if;
  v_refused := holdfast.refuse_version(v_tenant, v_order, nullif(p_call -> 'match', 'null'));
  if v_refused.status is not null then
    return v_refused;
  end if;
  if not exists (select from public.order_line l
                 where l.tenant_id = v_tenant and l.order_id = v_order and l.qty_shipped > 0) then
    return holdfast.refusal(409, 'nothing_shipped', 'Nothing of the order was shipped: cancel it instead.');
  end if;
  v_before := holdfast.order_fields(v_tenant, v_order, '{"lines":null}');
  select jsonb_agg(jsonb_build_object('skuId', l.sku_id, 'qty', l.qty_allocated)) into v_held from public.order_line l
  where l.tenant_id = v_tenant and l.order_id = v_order and l.qty_allocated > 0;
  if v_held is not null then
    v_released := holdfast.give_back(v_tenant, v_order, v_held, v_actor);
    if v_released.status <> 200 then
      raise exception 'the order cannot give back what it holds: %', v_released.error;
    end if;
  end if;
  delete from public.order_line l where l.tenant_id = v_tenant and l.order_id = v_order and l.qty_shipped = 0;
  update public.order_line l set qty = l.qty_shipped
  where l.tenant_id = v_tenant and l.order_id = v_order and l.qty <> l.qty_shipped;
  update public.wholesale_order o set version = o.version + 1, updated_by = (p_call ->> 'userId')::uuid,
      updated_at = clock_timestamp()
  where o.tenant_id = v_tenant and o.id = v_order returning o.version into v_order_row;
  perform holdfast.note_order_change(v_tenant, v_order, 'closed', v_actor, jsonb_build_object('version', v_order_row.version,
    'before', v_before, 'after', holdfast.order_fields(v_tenant, v_order, '{"lines":null}')));
  perform holdfast.end_if_shipped(v_tenant, v_order, v_actor);
  return holdfast.success(200, holdfast.order_document(v_tenant, v_order), format('"%s"', v_order_row.version));
end $$;

-- Ends an open order, whose row is locked, when it has lines and nothing of them remains to be shipped.
create or replace function holdfast.end_if_shipped(p_tenant uuid, p_order uuid, p_actor text) returns void
language plpgsql volatile security invoker as $$
declare
  v_ended record;
begin
  update public.wholesale_order o set status = 'shipped', event_sequence = o.event_sequence + 1
  where o.tenant_id = p_tenant and o.id = p_order and o.status = 'open'
    and exists (select from public.order_line l where l.tenant_id = p_tenant and l.order_id = p_order)
    and not exists (select from public.order_line l
                    where l.tenant_id = p_tenant and l.order_id = p_order and l.qty_shipped < l.qty)
  returning o.version, o.event_sequence, o.customer_id into v_ended;
  if found then
    perform holdfast.emit(p_tenant, array[row('order.shipped', 'wholesale_order', p_order, v_ended.event_sequence,
      v_ended.customer_id, format('{"version":%s,"changed":["status"]}', v_ended.version))::holdfast.event]);
  end if;
end $$;
