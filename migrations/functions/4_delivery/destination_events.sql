-- One event whose aggregate is a destination; counts its sequence beside it, in destination_health. p_only, p_except: as of fan_out.
create or replace function holdfast.emit_destination_event(p_destination uuid, p_type text, p_data text, p_only uuid,
  p_except uuid) returns void
language plpgsql volatile security invoker as $$
declare
  v_tenant uuid;
  v_sequence bigint;
begin
  insert into public.destination_health as h (tenant_id, destination_id, event_sequence)
  select d.tenant_id, d.id, 1 from public.destination d where d.id = p_destination
  on conflict (destination_id) do update set event_sequence = h.event_sequence + 1
  returning h.tenant_id, h.event_sequence into v_tenant, v_sequence;
  perform holdfast.fan_out(v_tenant,
    array[row(p_type, 'destination', p_destination, v_sequence, null, p_data)::holdfast.event], p_only, p_except);
end $$;

-- Tells the tenant's other destinations that one was disabled, fails or recovered. `state` says whether anybody must act: an
-- active one with an open breaker (cause failing) is probed and comes back by itself, a disabled one (gone, person) does not.
create or replace function holdfast.tell_of_destination(p_destination uuid, p_type text, p_cause text, p_reason text)
returns void language plpgsql volatile security invoker as $$
declare
  v_destination public.destination;
begin
  select * into v_destination from public.destination d where d.id = p_destination;
  perform holdfast.emit_destination_event(p_destination, p_type,
    format('{"destinationId":"%s","name":%s,"state":"%s","cause":"%s","reason":%s}', p_destination,
           holdfast.quote(v_destination.name), v_destination.state, p_cause, holdfast.quote(p_reason)),
    null, p_destination);
end $$;
