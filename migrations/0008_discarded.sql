-- What a person set aside, newest first: found without walking over all that was delivered since.
create index outbox_discarded on outbox (tenant_id, created_at, id) where discarded_at is not null;
