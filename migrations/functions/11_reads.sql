-- The reads, each in one statement and so in one message. p_read carries tenantId and userId beside what each names.
-- decision: answer; unknown_user; not_found; unknown_after (the item to go on from is not there).
--
-- VOLATILE, since they set the tenant that the statements after it are bound to. Lists go by keyset: `after` is the id
-- of the last item seen, whose place is looked up, so a page costs the same however deep it lies, and items that
-- arrive meanwhile neither shift nor repeat any.

-- One order, SKU, style or invoice: {"kind","id"}.
create or replace function holdfast.read_one(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_id constant uuid := p_read ->> 'id';
  v_document text;
  v_etag text;
begin
  if not holdfast.is_user(p_read) then
    return row('unknown_user', null, null, null, null, null)::holdfast.answer;
  end if;
  case p_read ->> 'kind'
    when 'order' then
      select holdfast.order_document(o.tenant_id, o.id), format('"%s"', o.version) into v_document, v_etag
      from public.wholesale_order o where o.tenant_id = v_tenant and o.id = v_id;
    when 'style' then
      select holdfast.style_document(s.tenant_id, s.id), format('"%s"', s.version) into v_document, v_etag
      from public.style s where s.tenant_id = v_tenant and s.id = v_id;
    when 'sku' then
      v_document := holdfast.sku_document(v_tenant, v_id);
    when 'invoice' then
      v_document := holdfast.invoice_document(v_tenant, v_id);
  end case;
  if v_document is null then
    return row('not_found', null, null, null, null, null)::holdfast.answer;
  end if;
  return row('answer', 200, convert_to(v_document, 'UTF8'), 'application/json', v_etag, null)::holdfast.answer;
end $$;

-- Orders, newest first: {"limit","after","q","status","customerId"}; all but limit may be null. q is a part of the
-- number, the PO or the customer's name, in any case; strpos knows no wildcards. It cannot use an index under
-- row-level security (nor could LIKE, which is not leakproof): it filters the walk along wholesale_order_newest.
--
-- Planned with its values: which filters are there decides the plan.
create or replace function holdfast.list_orders(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker set plan_cache_mode = force_custom_plan as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_limit constant int := p_read ->> 'limit';
  v_after constant uuid := p_read ->> 'after';
  v_after_at timestamptz;
  v_q constant text := lower(p_read ->> 'q');
  v_status constant text := p_read ->> 'status';
  v_customer constant uuid := p_read ->> 'customerId';
  v_ids uuid[];
begin
  if not holdfast.is_user(p_read) then
    return row('unknown_user', null, null, null, null, null)::holdfast.answer;
  end if;
  if v_after is not null then
    select o.created_at into v_after_at from public.wholesale_order o where o.tenant_id = v_tenant and o.id = v_after;
    if not found then
      return row('unknown_after', null, null, null, null, null)::holdfast.answer;
    end if;
  end if;
  v_ids := array(
    select o.id from public.wholesale_order o
    where o.tenant_id = v_tenant
      and (v_after is null or (o.created_at, o.id) < (v_after_at, v_after))
      and (v_status is null or o.status = v_status)
      and (v_customer is null or o.customer_id = v_customer)
      and (v_q is null or strpos(lower(o.number), v_q) > 0 or strpos(lower(o.customer_po), v_q) > 0
           or o.customer_id in (select c.id from public.customer c
                                where c.tenant_id = v_tenant and strpos(lower(c.name), v_q) > 0))
    order by o.created_at desc, o.id desc
    limit v_limit + 1);
  return holdfast.page(v_ids, v_limit, (
    select string_agg(d.document, ',' order by d.ord) from holdfast.order_documents(v_tenant, v_ids[1:v_limit]) d));
end $$;

-- SKUs by code: {"limit","after","q"}; q is a part of the code.
create or replace function holdfast.list_skus(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker set plan_cache_mode = force_custom_plan as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_limit constant int := p_read ->> 'limit';
  v_after constant uuid := p_read ->> 'after';
  v_after_code text;
  v_q constant text := lower(p_read ->> 'q');
  v_ids uuid[];
begin
  if not holdfast.is_user(p_read) then
    return row('unknown_user', null, null, null, null, null)::holdfast.answer;
  end if;
  if v_after is not null then
    select s.code into v_after_code from public.sku s where s.tenant_id = v_tenant and s.id = v_after;
    if not found then
      return row('unknown_after', null, null, null, null, null)::holdfast.answer;
    end if;
  end if;
  v_ids := array(
    select s.id from public.sku s -- a code is unique, so no tie to break
    where s.tenant_id = v_tenant and (v_after is null or s.code > v_after_code)
      and (v_q is null or strpos(lower(s.code), v_q) > 0)
    order by s.code
    limit v_limit + 1);
  return holdfast.page(v_ids, v_limit, (
    select string_agg(d.document, ',' order by d.ord) from holdfast.sku_documents(v_tenant, v_ids[1:v_limit]) d));
end $$;

-- Customers by name: {"limit","after","q"}; q is a part of the name.
create or replace function holdfast.list_customers(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker set plan_cache_mode = force_custom_plan as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_limit constant int := p_read ->> 'limit';
  v_after constant uuid := p_read ->> 'after';
  v_after_name text;
  v_q constant text := lower(p_read ->> 'q');
  v_ids uuid[];
begin
  if not holdfast.is_user(p_read) then
    return row('unknown_user', null, null, null, null, null)::holdfast.answer;
  end if;
  if v_after is not null then
    select c.name into v_after_name from public.customer c where c.tenant_id = v_tenant and c.id = v_after;
    if not found then
      return row('unknown_after', null, null, null, null, null)::holdfast.answer;
    end if;
  end if;
  v_ids := array(
    select c.id from public.customer c
    where c.tenant_id = v_tenant and (v_after is null or (c.name, c.id) > (v_after_name, v_after))
      and (v_q is null or strpos(lower(c.name), v_q) > 0)
    order by c.name, c.id
    limit v_limit + 1);
  return holdfast.page(v_ids, v_limit, (
    select string_agg(d.document, ',' order by d.ord) from holdfast.customer_documents(v_tenant, v_ids[1:v_limit]) d));
end $$;

-- A list's answer. p_ids holds one more than the page where there is a next one.
create or replace function holdfast.page(p_ids uuid[], p_limit int, p_items text) returns holdfast.answer
language sql stable as $$
  select row('answer', 200,
    convert_to(format('{"items":[%s],"next":%s}', p_items,
      case when cardinality(p_ids) > p_limit then format('"%s"', p_ids[p_limit]) else 'null' end), 'UTF8'),
    'application/json', null, null)::holdfast.answer
$$;
