-- Events about an exception or a destination count on the row of that thing: the tenant's row would be a queue of all that
-- its senders and destinations tell of, held while positions are.
alter table inbox_exception add column event_sequence bigint not null default 0;
-- Beside the destination and not in it, as the rest of what changes often: every event reads destination.
alter table destination_health add column event_sequence bigint not null default 0;

-- An order gets its number when all else of it is written.
grant update (number) on wholesale_order to holdfast_app;
