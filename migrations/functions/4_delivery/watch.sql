-- Which relay watches: each goes on until it sees that another one has begun.

-- {"relay"}: notes that this relay begins to watch.
create or replace function holdfast.relay_begin_watch(p_call jsonb) returns void
language sql volatile security invoker as $$
  insert into public.relay_watch (relay, began_at) values ((p_call ->> 'relay')::uuid, clock_timestamp())
  on conflict (only_row) do update set relay = excluded.relay, began_at = excluded.began_at
$$;

-- {"relay"}: whether another relay has begun since this one did.
create or replace function holdfast.relay_is_followed(p_call jsonb, out followed boolean)
language sql stable security invoker as $$
  select exists (select from public.relay_watch w where w.relay <> (p_call ->> 'relay')::uuid)
$$;

-- {"secs"}: how many destinations have answered nothing but "slow down" for so long.
create or replace function holdfast.relay_long_throttled(p_call jsonb, out destinations bigint)
language sql stable security invoker as $$
  select count(*) from public.destination_health h
  where h.throttled_since < clock_timestamp() - make_interval(secs => (p_call ->> 'secs')::float8)
$$;
