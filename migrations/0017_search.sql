-- What lists and searches look for is found by an index, under row-level security too: that lets only leakproof operators use one,
-- so a search is a range of text in the order of its bytes.

-- A place in a list of orders, newest first.
create type holdfast.order_place as (created_at timestamptz, id uuid);

-- ── Orders ─────────────────────────────────────────────────────────────────────────────────────────────────────

alter table wholesale_order
  -- In lower case: what the beginning of a number or of a PO is looked up by. order_keys() fills them.
  add column number_key text collate "C",
  add column po_key text collate "C",
  -- Its first two characters. So short a beginning fits thousands of orders, of which the newest are wanted.
  add column number_head text collate "C";
update wholesale_order
set number_key = lower(number), number_head = left(lower(number), 2), po_key = lower(customer_po);
alter table wholesale_order alter column number_key set not null, alter column number_head set not null;
create index wholesale_order_by_number_key on wholesale_order (tenant_id, number_key);
create index wholesale_order_by_number_head on wholesale_order (tenant_id, number_head, created_at, id);
create index wholesale_order_by_po on wholesale_order (tenant_id, po_key) where po_key is not null;
create index wholesale_order_of_status on wholesale_order (tenant_id, status, created_at, id);
create index wholesale_order_of_customer on wholesale_order (tenant_id, customer_id, status, created_at, id);
drop index wholesale_order_by_customer;

-- Before an insert, and after an update: a trigger before updates would lock the row of every allocation once more.
create function holdfast.order_keys() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    new.number_key := lower(new.number);
    new.number_head := left(lower(new.number), 2);
    new.po_key := lower(new.customer_po);
    return new;
  end if;
  update public.wholesale_order o
  set number_key = lower(o.number), number_head = left(lower(o.number), 2), po_key = lower(o.customer_po)
  where o.tenant_id = new.tenant_id and o.id = new.id;
  return null;
end $$;
create trigger order_keys before insert on wholesale_order for each row execute function holdfast.order_keys();
create trigger order_keys_anew after update of number, customer_po on wholesale_order for each row
  when (old.number <> new.number or old.customer_po is distinct from new.customer_po) execute function holdfast.order_keys();
grant update (number_key, number_head, po_key) on wholesale_order to holdfast_app;

-- ── Customers ──────────────────────────────────────────────────────────────────────────────────────────────────

-- A customer's name in lower case from each of its words on: what begins with `sea` is found in `North Sea Sons`.
create table customer_word (
  tenant_id uuid not null,
  word text collate "C" not null,
  customer_id uuid not null,
  primary key (tenant_id, word, customer_id),
  foreign key (tenant_id, customer_id) references customer on delete cascade
);
create index customer_word_of_customer on customer_word (tenant_id, customer_id, word);

-- A word begins after white space, and where a letter or digit follows what is neither. As long as a search may be, and few enough
-- of them that no name fills the table.
create function holdfast.name_from_words(p_name text) returns setof text language sql immutable parallel safe as $$
  select distinct left(substr(n.name, w.at), 200)
  from (select lower(p_name) as name) n
  cross join lateral (
    select g.at from generate_series(1, least(length(n.name), 2000)) g(at)
    where substr(n.name, g.at, 1) !~ '\s'
      and (g.at = 1 or substr(n.name, g.at - 1, 1) ~ '\s'
           or (substr(n.name, g.at, 1) ~ '[[:alnum:]]' and substr(n.name, g.at - 1, 1) !~ '[[:alnum:]]'))
    order by g.at limit 50) w
$$;

create function holdfast.customer_words() returns trigger language plpgsql as $$
begin
  delete from public.customer_word w where w.tenant_id = new.tenant_id and w.customer_id = new.id;
  insert into public.customer_word (tenant_id, word, customer_id)
  select new.tenant_id, w, new.id from holdfast.name_from_words(new.name) w;
  return null;
end $$;
insert into customer_word (tenant_id, word, customer_id)
select c.tenant_id, w, c.id from customer c cross join lateral holdfast.name_from_words(c.name) w;
create trigger customer_words after insert on customer for each row execute function holdfast.customer_words();
create trigger customer_words_anew after update of name on customer for each row
  when (old.name <> new.name) execute function holdfast.customer_words();
alter table customer_word enable row level security;
create policy tenant_only on customer_word to holdfast_app
  using (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid);
grant select, insert, delete on customer_word to holdfast_app;

-- ── Invoices ───────────────────────────────────────────────────────────────────────────────────────────────────

create index invoice_of_status on invoice (tenant_id, status, created_at, id);
create index invoice_of_customer_and_status on invoice (tenant_id, customer_id, status, created_at, id);
