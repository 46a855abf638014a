-- Lists: their common prologue and paging. p_read: tenantId, userId, list (the table's name), limit, after (id of the last item
-- seen, or null), and the list's filters. holdfast.page_of_<list>(tenant, read) returns up to limit + 1 items in order. Keyset
-- paging: a page costs the same at any depth, and items that arrive meanwhile neither shift nor repeat others.
-- decision: answer; unknown_user; unknown_after (no item has that id). VOLATILE, since is_user sets app.tenant_id.
create or replace function holdfast.list(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_tenant constant uuid := p_read ->> 'tenantId';
  v_table constant text := p_read ->> 'list';
  v_limit constant int := p_read ->> 'limit';
  v_after constant text := p_read ->> 'after';
  v_after_exists boolean;
  v_ids text[];
  v_documents text[];
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
  end if;
  if v_after is not null then
    execute format('select exists (select from public.%I i where i.tenant_id = $1 and i.id = %L)', v_table, v_after)
    into v_after_exists using v_tenant;
    if not v_after_exists then
      return holdfast.decided('unknown_after');
    end if;
  end if;
  execute format('select array_agg(i.id), array_agg(i.document) from holdfast.%I($1, $2) i', 'page_of_' || v_table)
  into v_ids, v_documents using v_tenant, p_read;
  return holdfast.document_answer(format('{"items":[%s],"next":%s}', array_to_string(v_documents[1:v_limit], ','),
    case when cardinality(v_ids) > v_limit then format('"%s"', v_ids[v_limit]) else 'null' end));
end $$;
