-- A customer's exposure in minor units: the unpaid part of its invoices awaiting payment, and what its orders hold or have
-- shipped that is not invoiced. Whoever raises it holds the customer's lock and calls this in a later statement. Reads what
-- counts, by two partial indexes; what was paid or settled costs nothing.
create or replace function holdfast.exposure(p_tenant uuid, p_customer uuid) returns numeric
language plpgsql stable security invoker as $$
begin
  return (select coalesce(sum(greatest(0, i.total_minor - (i.paid_minor - i.refunded_minor))), 0) from public.invoice i
          where i.tenant_id = p_tenant and i.customer_id = p_customer and i.status = 'awaiting_payment')
       + (select coalesce(sum(l.unit_price_minor::numeric * greatest(0, l.qty_allocated + l.qty_shipped - l.qty_invoiced)), 0)
          from public.order_line l
          where l.tenant_id = p_tenant and l.customer_id = p_customer and l.exposed);
end $$;

-- What one order adds to it.
create or replace function holdfast.order_exposure(p_tenant uuid, p_order uuid) returns numeric
language plpgsql stable security invoker as $$
begin
  return (select coalesce(sum(l.unit_price_minor::numeric * greatest(0, l.qty_allocated + l.qty_shipped - l.qty_invoiced)), 0)
          from public.order_line l where l.tenant_id = p_tenant and l.order_id = p_order);
end $$;

-- Takes a customer's lock, before its orders': alone where it has a credit limit, else shared with others that run without one.
-- Returns the limit. promise() does the same inline.
create or replace function holdfast.lock_customer(p_tenant uuid, p_customer uuid) returns bigint
language plpgsql volatile security invoker as $$
declare
  v_limit bigint;
begin
  select c.credit_limit_minor into v_limit from public.customer c where c.tenant_id = p_tenant and c.id = p_customer;
  if v_limit is null then
    perform pg_advisory_xact_lock_shared(holdfast.lock_class_customer(), uuid_hash(p_customer));
    if (select c.credit_limit_minor from public.customer c where c.tenant_id = p_tenant and c.id = p_customer) is not null then
      raise exception 'a credit limit was set meanwhile: retry' using errcode = 'serialization_failure';
    end if;
    return null;
  end if;
  perform pg_advisory_xact_lock(holdfast.lock_class_customer(), uuid_hash(p_customer));
  perform from public.customer c where c.tenant_id = p_tenant and c.id = p_customer for no key update;
  return (select c.credit_limit_minor from public.customer c where c.tenant_id = p_tenant and c.id = p_customer);
end $$;

-- Tells that a customer's exposure is over its limit, where something that is not refused has brought it there: a shipment, a
-- void, a lowered limit. The customer's row is locked if it has a limit.
create or replace function holdfast.tell_over_limit(p_tenant uuid, p_customer uuid) returns void
language plpgsql volatile security invoker as $$
declare
  v_limit constant bigint := (select c.credit_limit_minor from public.customer c
                              where c.tenant_id = p_tenant and c.id = p_customer);
  v_exposure numeric;
  v_told record;
begin
  if v_limit is null then
    return;
  end if;
  v_exposure := holdfast.exposure(p_tenant, p_customer);
  if v_exposure <= v_limit then
    return;
  end if;
  update public.customer c set event_sequence = c.event_sequence + 1
  where c.tenant_id = p_tenant and c.id = p_customer returning c.event_sequence, c.version into v_told;
  perform holdfast.emit(p_tenant, array[row('customer.over_limit', 'customer', p_customer, v_told.event_sequence, null,
    format('{"version":%s,"limit":%s,"exposure":%s}', v_told.version, v_limit, v_exposure))::holdfast.event]);
end $$;

create or replace function holdfast.refuse_on_hold() returns holdfast.outcome language sql immutable parallel safe
return holdfast.refusal(422, 'customer_on_hold', 'The customer is on hold: nothing new is promised to it.');

create or replace function holdfast.refuse_credit(p_limit bigint, p_exposure numeric, p_raise_minor numeric)
returns holdfast.outcome language sql immutable parallel safe
return holdfast.refusal(422, 'credit_limit_exceeded',
  'What the customer owes and holds, with this request, would pass its credit limit (minor units).',
  format('"limit":%s,"exposure":%s,"requested":%s', p_limit, p_exposure, p_raise_minor));
