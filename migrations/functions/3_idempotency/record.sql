-- Records an outcome in the transaction of its work, and renders the bytes that are sent now and at each replay. A unique
-- violation on idempotency_key_pkey means: roll back and claim again.
create or replace function holdfast.record(p_call jsonb, p_outcome holdfast.outcome) returns holdfast.answer
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
  values ((p_call ->> 'tenantId')::uuid, p_call ->> 'key', p_call ->> 'method', p_call ->> 'path',
      decode(p_call ->> 'hash', 'hex'), p_outcome.status, v_body, v_content_type, p_outcome.etag, p_outcome.location);
  return row('answer', p_outcome.status, v_body, v_content_type, p_outcome.etag, p_outcome.location)::holdfast.answer;
end $$;

-- record() for the multi-statement variant: {"call","outcome"}, the argument of claim() and the result of the work.
create or replace function holdfast.record_outcome(p_record jsonb) returns holdfast.answer
language plpgsql volatile security invoker as $$
begin
  return holdfast.record(p_record -> 'call', jsonb_populate_record(null::holdfast.outcome, p_record -> 'outcome'));
end $$;
