-- A customer's exposure is summed over the lines that count in it, however many others were settled. Whether a line counts is a
-- column that changes two or three times in the line's life, and not the index's predicate over its quantities: those change with
-- each allocation, which would then write every index of the table anew (no HOT update).

alter table order_line
  -- The order's.
  add column customer_id uuid,
  -- Whether units are allocated or shipped that were not invoiced. exposed_line() keeps both.
  add column exposed boolean not null default false;
update order_line l
set customer_id = o.customer_id, exposed = l.qty_allocated + l.qty_shipped > l.qty_invoiced
from wholesale_order o where o.tenant_id = l.tenant_id and o.id = l.order_id;
alter table order_line alter column customer_id set not null;
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
where l.customer_id <> o.customer_id or l.exposed <> (l.qty_allocated + l.qty_shipped > l.qty_invoiced);
grant select on exposed_line_audit to holdfast_app;
