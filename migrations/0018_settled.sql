-- What is settled, over or past its retention costs nobody anything.

-- ── Exposure ───────────────────────────────────────────────────────────────────────────────────────────────────

-- A customer's exposure is summed over the lines that count in it, however many others were settled. Whether a line counts is a
-- column that changes two or three times in the line's life, and not the index's predicate over its quantities: those change with
-- each allocation, which would then write every index of the table anew (no HOT update).

alter table order_line
  -- The order's. Null only in a line without an order, which its foreign key refuses.
  add column customer_id uuid,
  -- Whether units are allocated or shipped that were not invoiced. exposed_line() keeps both.
  add column exposed boolean not null default false;
update order_line l
set customer_id = o.customer_id, exposed = l.qty_allocated + l.qty_shipped > l.qty_invoiced
from wholesale_order o where o.tenant_id = l.tenant_id and o.id = l.order_id;
create index order_line_exposed on order_line (tenant_id, customer_id) where exposed;

create function holdfast.exposed_line() returns trigger language plpgsql as $$
begin
  new.exposed := new.qty_allocated + new.qty_shipped > new.qty_invoiced;
  if tg_op = 'INSERT' then
    new.customer_id := (select o.customer_id from public.wholesale_order o where o.tenant_id = new.tenant_id and o.id = new.order_id);
  end if;
  return new;
end $$;
create trigger exposed_line before insert or update of qty_allocated, qty_shipped, qty_invoiced on order_line
  for each row execute function holdfast.exposed_line();

-- An order's customer does not change; if somebody changes it all the same, its lines follow.
create function holdfast.order_lines_follow() returns trigger language plpgsql as $$
begin
  update public.order_line l set customer_id = new.customer_id where l.tenant_id = new.tenant_id and l.order_id = new.id;
  return null;
end $$;
create trigger order_lines_follow after update of customer_id on wholesale_order for each row
  when (old.customer_id <> new.customer_id) execute function holdfast.order_lines_follow();

-- Lines whose customer, or whose part in the exposure, is not what it should be. Always empty.
create view exposed_line_audit with (security_invoker = true) as
select l.tenant_id, l.order_id, l.sku_id, l.customer_id, l.exposed
from order_line l join wholesale_order o on o.tenant_id = l.tenant_id and o.id = l.order_id
where l.customer_id is distinct from o.customer_id or l.exposed <> (l.qty_allocated + l.qty_shipped > l.qty_invoiced);
grant select on exposed_line_audit to holdfast_app;

-- ── What the reaper deletes ────────────────────────────────────────────────────────────────────────────────────

-- By age, of all tenants. Few rows come to be in these.
create index outbox_dead_by_age on outbox (dead_lettered_at) where dead_lettered_at is not null;
create index outbox_discarded_by_age on outbox (discarded_at) where discarded_at is not null;
create index destination_secret_retired on destination_secret (retires_at) where retires_at is not null;
grant update (retires_at), delete on destination_secret to holdfast_worker;

-- ── Whom a kept body is about ──────────────────────────────────────────────────────────────────────────────────

-- Hashes of what a shop may name a person by, of each of its kept bodies; so customers/redact reads the bodies that it erases and no
-- others. They go with the body.
create table exception_trace (
  trace bigint not null,
  exception_id uuid not null references inbox_exception on delete cascade,
  primary key (trace, exception_id)
);
create index exception_trace_of_exception on exception_trace (exception_id);

create function holdfast.keep_traces() returns trigger language plpgsql as $$
begin
  delete from public.exception_trace t where t.exception_id = new.id;
  if new.redacted_at is null and octet_length(new.body) > 0 then
    insert into public.exception_trace (trace, exception_id)
    select t, new.id from holdfast.traces_of(new.provider, new.body, new.command) t;
  end if;
  return null;
end $$;
-- What was kept before is read itself, as what is too large (the trace `all`).
insert into exception_trace (trace, exception_id)
select hashtextextended(e.provider || '/all/', 0), e.id from inbox_exception e
where e.provider like 'shopify:%' and e.redacted_at is null;
create trigger keep_traces after insert or update of body, command on inbox_exception for each row
  when (new.provider like 'shopify:%') execute function holdfast.keep_traces();

alter table exception_trace enable row level security;
-- Whoever sees the exception.
create policy of_exception on exception_trace to holdfast_app
  using (exists (select from inbox_exception e where e.id = exception_id));
create policy drain on exception_trace to holdfast_worker using (true);
grant select, insert, delete on exception_trace to holdfast_app;
grant select, delete on exception_trace to holdfast_worker;
