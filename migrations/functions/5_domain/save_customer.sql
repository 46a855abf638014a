-- {"tenantId","customerId","userId","match","fields"}: saves a customer as save_order does an order; fields: creditLimitMinor (null: no
-- limit), onHold, name. The version counts saves only: exposure does not touch it.
create or replace function holdfast.save_customer(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_customer constant uuid := p_call ->> 'customerId';
  v_user constant uuid := p_call ->> 'userId';
  v_match constant jsonb := p_call -> 'match';
  v_fields constant jsonb := p_call -> 'fields';
  v_saved record;
  v_saved_by text;
begin
  if v_fields ? 'creditLimitMinor' then
    -- Waits for promises that run without a limit: they count.
    perform pg_advisory_xact_lock(holdfast.lock_class_customer(), uuid_hash(v_customer));
  end if;
  update public.customer c
  set name = coalesce(v_fields ->> 'name', c.name), on_hold = coalesce((v_fields ->> 'onHold')::boolean, c.on_hold),
      credit_limit_minor = case when v_fields ? 'creditLimitMinor' then (v_fields ->> 'creditLimitMinor')::bigint
                                else c.credit_limit_minor end,
      version = c.version + 1, event_sequence = c.event_sequence + 1, updated_by = v_user, updated_at = clock_timestamp()
  where c.tenant_id = v_tenant and c.id = v_customer and holdfast.matches(v_match, c.version)
  returning c.version, c.event_sequence, c.credit_limit_minor into v_saved;
  if not found then
    select u.display_name into v_saved_by
    from public.customer c left join public.app_user u on u.tenant_id = c.tenant_id and u.id = c.updated_by
    where c.tenant_id = v_tenant and c.id = v_customer;
    if not found then
      return holdfast.refusal(404, 'not_found', 'There is no customer with this id.');
    end if;
    return holdfast.version_conflict(v_match, v_saved_by, holdfast.customer_document(v_tenant, v_customer));
  end if;
  perform holdfast.emit(v_tenant, array[row('customer.saved', 'customer', v_customer, v_saved.event_sequence, null,
    format('{"version":%s,"changed":%s,"limit":%s,"exposure":%s}', v_saved.version,
      (select json_agg(name order by name) from jsonb_object_keys(v_fields) name),
      coalesce(v_saved.credit_limit_minor::text, 'null'), holdfast.exposure(v_tenant, v_customer)))::holdfast.event]);
  if v_fields ? 'creditLimitMinor' then
    perform holdfast.tell_over_limit(v_tenant, v_customer);
  end if;
  return holdfast.success(200,
    format('{"version":%s,"customer":%s}', v_saved.version, holdfast.customer_document(v_tenant, v_customer)),
    format('"%s"', v_saved.version));
end $$;
