-- Records an outcome in the transaction of its work, and renders the bytes that are sent now and at each replay. A unique
-- violation on idempotency_key_pkey means: roll back and claim again.
create or replace function holdfast.record_key(p_tenant uuid, p_key text, p_method text, p_path text, p_hash bytea,
  p_outcome holdfast.outcome) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_body bytea;
  v_content_type text := 'application/json';
begin
  if p_outcome.status is null then
    raise exception 'nothing to record: the outcome has no status';
  end if;
  if p_outcome.error is null then
    v_body := convert_to(p_outcome.content, 'UTF8');
  else
    v_content_type := 'application/problem+json';
    v_body := convert_to(format('{"type":"urn:holdfast:problem:%s","title":%s,"status":%s,"detail":%s,"error":"%s"%s}',
      p_outcome.error, holdfast.quote(holdfast.problem_title(p_outcome.error)), p_outcome.status,
      holdfast.quote(p_outcome.detail), p_outcome.error, ',' || p_outcome.content), 'UTF8');
  end if;
  insert into public.idempotency_key (tenant_id, key, request_method, request_path, request_hash, response_status,
      response_body, response_content_type, response_etag, response_location)
  values (p_tenant, p_key, p_method, p_path, p_hash, p_outcome.status, v_body, v_content_type, p_outcome.etag,
      p_outcome.location);
  return row('answer', p_outcome.status, v_body, v_content_type, p_outcome.etag, p_outcome.location)::holdfast.answer;
end $$;

-- record_key() for the multi-statement variant: {"call","outcome"}, the argument of claim() and the result of the work.
create or replace function holdfast.record_outcome(p_record jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
declare
  v_call constant jsonb := p_record -> 'call';
begin
  return holdfast.record_key((v_call ->> 'tenantId')::uuid, v_call ->> 'key', v_call ->> 'method', v_call ->> 'path',
    decode(v_call ->> 'hash', 'hex'), jsonb_populate_record(null::holdfast.outcome, p_record -> 'outcome'));
end $$;
