-- Lists: their common prologue and paging. p_read: tenantId, userId, list (the table's name), limit, after (id of the last item
-- seen, or null), and the list's filters. holdfast.page_of_<list>(tenant, read) returns up to limit + 1 items in order, and is STABLE:
-- which items there are and how they look is read in one snapshot. Keyset paging: a page costs the same at any depth, and items that
-- arrive meanwhile neither shift nor repeat others.
-- decision: answer; unknown_user; unknown_after (no item has that id). VOLATILE, since is_user sets app.tenant_id.
create or replace function holdfast.list(p_read jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_table constant text := p_read ->> 'list';
  v_after constant text := p_read ->> 'after';
  v_after_exists boolean;
  v_ids text[];
  v_documents text[];
begin
  if not holdfast.is_user(p_read) then
    return holdfast.decided('unknown_user');
  end if;
  execute format('select exists (select from public.%I i where i.tenant_id = $1 and i.id = %L), p.ids, p.documents
      from (select array_agg(i.id) as ids, array_agg(i.document) as documents from holdfast.%I($1, $2) i) p',
    v_table, v_after, 'page_of_' || v_table)
  into v_after_exists, v_ids, v_documents using (p_read ->> 'tenantId')::uuid, p_read;
  if v_after is not null and not v_after_exists then
    return holdfast.decided('unknown_after');
  end if;
  return holdfast.document_answer(holdfast.page(v_ids, v_documents, (p_read ->> 'limit')::int));
end $$;

-- What the items of a page may take together: "before 4 MB", with room for what stands around them. Lambda carries 6 MB.
create or replace function holdfast.page_bytes() returns int language sql immutable parallel safe return 3900000;

-- A page of items that are given in order. It ends after p_limit of them, or before its bytes would pass page_bytes(), but never
-- without an item; `next` is then the last one's id. An item without a document ends it too: more may follow behind that id.
create or replace function holdfast.page(p_ids text[], p_documents text[], p_limit int) returns text
language plpgsql immutable as $$
declare
  v_kept int := 0;
  v_bytes int := 0;
  v_next text;
begin
  for n in 1 .. coalesce(cardinality(p_ids), 0) loop
    if p_documents[n] is null then
      v_next := p_ids[n];
      exit;
    elsif n > p_limit or n > 1 and v_bytes + octet_length(p_documents[n]) > holdfast.page_bytes() then
      v_next := p_ids[n - 1];
      exit;
    end if;
    v_kept := n;
    v_bytes := v_bytes + octet_length(p_documents[n]) + 1;
  end loop;
  return format('{"items":[%s],"next":%s}', array_to_string(p_documents[1:v_kept], ','), holdfast.quote(v_next));
end $$;
