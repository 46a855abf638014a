-- A style's prices, by the same protocol as an order's fields. p_fields: wholesaleMinor, msrpMinor.
create or replace function holdfast.save_style(p_tenant uuid, p_style uuid, p_user uuid, p_match jsonb, p_fields jsonb)
returns holdfast.outcome
language plpgsql volatile security invoker as $$
declare
  v_saved record;
  v_by text;
begin
  update public.style s
  set wholesale_minor = coalesce((p_fields ->> 'wholesaleMinor')::bigint, s.wholesale_minor),
      msrp_minor = coalesce((p_fields ->> 'msrpMinor')::bigint, s.msrp_minor),
      version = s.version + 1, event_sequence = s.event_sequence + 1, updated_by = p_user, updated_at = clock_timestamp()
  where s.tenant_id = p_tenant and s.id = p_style and holdfast.matches(p_match, s.version)
  returning s.version, s.event_sequence, s.wholesale_minor, s.msrp_minor into v_saved;
  if not found then
    select u.display_name into v_by
    from public.style s left join public.app_user u on u.tenant_id = s.tenant_id and u.id = s.updated_by
    where s.tenant_id = p_tenant and s.id = p_style;
    if not found then
      return holdfast.refusal(404, 'not_found', 'There is no style with this id.');
    end if;
    return holdfast.version_conflict(p_match, v_by, holdfast.style_document(p_tenant, p_style));
  end if;
  perform holdfast.emit(p_tenant, array[row('style.saved', 'style', p_style, v_saved.event_sequence, null,
    format('{"version":%s,"wholesaleMinor":%s,"msrpMinor":%s}', v_saved.version, v_saved.wholesale_minor, v_saved.msrp_minor))
    ::holdfast.event]);
  return row(200, null, null,
    format('{"version":%s,"style":%s}', v_saved.version, holdfast.style_document(p_tenant, p_style)),
    format('"%s"', v_saved.version), null)::holdfast.outcome;
end $$;
