-- Tells the tenant's other destinations that one was disabled, fails or recovered. `state` says whether anybody must act: an
-- active one with an open breaker (cause failing) is probed and comes back by itself, a disabled one (gone, person) does not.
create or replace function holdfast.tell_of_destination(p_destination uuid, p_type text, p_cause text, p_reason text)
returns void language plpgsql volatile security invoker as $$
declare
  v_destination public.destination;
begin
  select * into v_destination from public.destination d where d.id = p_destination;
  perform holdfast.emit_tenant_event(v_destination.tenant_id, p_type,
    format('{"destinationId":"%s","name":%s,"state":"%s","cause":"%s","reason":%s}', p_destination,
           holdfast.quote(v_destination.name), v_destination.state, p_cause, holdfast.quote(p_reason)),
    null, p_destination);
end $$;
