-- {"tenantId","styleId","userId","match","fields"}: saves prices as save_order does; fields: wholesaleMinor, msrpMinor.
create or replace function holdfast.save_style(p_call jsonb) returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_call ->> 'tenantId';
  v_style constant uuid := p_call ->> 'styleId';
  v_user constant uuid := p_call ->> 'userId';
  v_match constant jsonb := p_call -> 'match';
  v_fields constant jsonb := p_call -> 'fields';
  v_saved record;
  v_saved_by text;
begin
  update public.style s
  set wholesale_minor = coalesce((v_fields ->> 'wholesaleMinor')::bigint, s.wholesale_minor),
      msrp_minor = coalesce((v_fields ->> 'msrpMinor')::bigint, s.msrp_minor),
      version = s.version + 1, event_sequence = s.event_sequence + 1, updated_by = v_user, updated_at = clock_timestamp()
  where s.tenant_id = v_tenant and s.id = v_style and holdfast.matches(v_match, s.version)
  returning s.version, s.event_sequence, s.wholesale_minor, s.msrp_minor into v_saved;
  if not found then
    select u.display_name into v_saved_by
    from public.style s left join public.app_user u on u.tenant_id = s.tenant_id and u.id = s.updated_by
    where s.tenant_id = v_tenant and s.id = v_style;
    if not found then
      return holdfast.refusal(404, 'not_found', 'There is no style with this id.');
    end if;
    return holdfast.version_conflict(v_match, v_saved_by, holdfast.style_document(v_tenant, v_style));
  end if;
  perform holdfast.emit(v_tenant, array[row('style.saved', 'style', v_style, v_saved.event_sequence, null,
    format('{"version":%s,"wholesaleMinor":%s,"msrpMinor":%s}', v_saved.version, v_saved.wholesale_minor, v_saved.msrp_minor))
    ::holdfast.event]);
  return holdfast.success(200, format('{"version":%s,"style":%s}', v_saved.version, holdfast.style_document(v_tenant, v_style)),
    format('"%s"', v_saved.version));
end $$;
