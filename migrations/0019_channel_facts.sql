-- Channel orders as facts and state. What a shop told of an order stands in rows by the shop's own ids; what the order wants of a
-- SKU follows from all of them (holdfast.channel_targets), and what it has of it is one row per order and SKU.

-- ── Facts ──────────────────────────────────────────────────────────────────────────────────────────────────────

alter table channel_order
  -- Shopify's created_at: who waits for stock is served in this order.
  add column placed_at timestamptz,
  -- Of the newest body with lines: its updated_at; and updated_at, X-Shopify-Triggered-At and hash, by which bodies are ordered.
  add column body_updated_at timestamptz,
  add column body_version text collate "C",
  -- The newest orders/fulfilled that had no list of fulfilments, and whether it had lines.
  add column fulfilled_version text collate "C",
  add column fulfilled_lines boolean not null default false,
  add column deleted_at timestamptz,
  add column is_test boolean not null default false;
update channel_order set placed_at = created_at;
alter table channel_order alter column placed_at set default now(), alter column placed_at set not null;

alter table shopify_shop add column ignores_test_orders boolean not null default false;

alter table channel_order_line
  -- The code as the shop told it; sku_id is null while it is none of ours.
  add column code text,
  add column is_goods boolean not null default true,
  -- Of quantity - current_quantity in a body that does not list its refunds: known refunds count as ordered up to this.
  add column qty_unexplained bigint not null default 0 check (qty_unexplained >= 0),
  -- What the newest orders/fulfilled without a list shipped; null: all that was wanted.
  add column qty_fulfilled bigint check (qty_fulfilled >= 0),
  -- The delivery that was kept as an exception because the code is none of ours.
  add column kept_by text,
  alter column sku_id drop not null,
  -- Null: not in the newest body.
  alter column qty drop not null,
  drop constraint channel_order_line_qty_check,
  add constraint channel_order_line_qty_check check (qty >= 0);
update channel_order_line l set code = k.code from sku k where k.tenant_id = l.tenant_id and k.id = l.sku_id;

-- A shipment by its own id, as its newest body says.
create table channel_fulfillment (
  tenant_id uuid not null,
  channel_order_id uuid not null,
  external_id text not null,
  -- updated_at, whether it counts, hash: the greatest is the newest.
  version text collate "C" not null,
  primary key (tenant_id, channel_order_id, external_id),
  foreign key (tenant_id, channel_order_id) references channel_order
);

-- What it shipped of a line; 0 where it was cancelled or failed.
create table channel_fulfillment_line (
  tenant_id uuid not null,
  channel_order_id uuid not null,
  line_external_id text not null,
  fulfillment_external_id text not null,
  qty bigint not null check (qty >= 0),
  primary key (tenant_id, channel_order_id, line_external_id, fulfillment_external_id),
  foreign key (tenant_id, channel_order_id, fulfillment_external_id) references channel_fulfillment
);

-- An edit of an order, by its own id: it counts until a body is there that is as new.
create table channel_edit_line (
  tenant_id uuid not null,
  channel_order_id uuid not null,
  line_external_id text not null,
  edit_external_id text not null,
  committed_at timestamptz not null,
  delta bigint not null check (delta <> 0),
  primary key (tenant_id, channel_order_id, line_external_id, edit_external_id),
  foreign key (tenant_id, channel_order_id) references channel_order
);

-- Returned units that were put back on the shelf, by the id of the disposition.
create table channel_disposition (
  tenant_id uuid not null,
  channel_order_id uuid not null,
  line_external_id text not null,
  external_id text not null,
  qty bigint not null check (qty > 0),
  primary key (tenant_id, channel_order_id, line_external_id, external_id),
  foreign key (tenant_id, channel_order_id) references channel_order
);

-- ── State ──────────────────────────────────────────────────────────────────────────────────────────────────────

-- One channel order and one SKU. Changes only under the lock of the SKU's position; what it wants also under its order's.
create table channel_hold (
  tenant_id uuid not null,
  channel_order_id uuid not null,
  sku_id uuid not null,
  -- What the facts say: to be shipped yet; refunded and not restocked, never shipped; shipped and not returned.
  qty_wanted bigint not null default 0 check (qty_wanted >= 0),
  qty_written_off bigint not null default 0 check (qty_written_off >= 0),
  qty_shipped bigint not null default 0 check (qty_shipped >= 0),
  -- Of the wanted ones, allocated; what is not is missing. Of those written off, taken from on_hand; the others never were there.
  qty_held bigint not null default 0,
  qty_lost bigint not null default 0,
  -- How many of the missing units are counted in which shortfall.
  qty_counted bigint not null default 0 check (qty_counted >= 0),
  shortfall_id uuid,
  -- Of the order: who waits is served in this order.
  placed_at timestamptz not null,
  external_id text collate "C" not null,
  primary key (tenant_id, channel_order_id, sku_id),
  foreign key (tenant_id, channel_order_id) references channel_order,
  foreign key (tenant_id, sku_id) references sku_position,
  constraint channel_hold_held_within_wanted check (qty_held between 0 and qty_wanted),
  constraint channel_hold_lost_within_written_off check (qty_lost between 0 and qty_written_off)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
-- Only what is open: who waits for a SKU, oldest first, and who holds it. Shopify's ids are numbers: the shorter one is the lower.
create index channel_hold_lacking on channel_hold (tenant_id, sku_id, placed_at, length(external_id), external_id)
  where qty_held < qty_wanted;
create index channel_hold_holding on channel_hold (tenant_id, sku_id, placed_at, length(external_id), external_id)
  where qty_held > 0;

-- Orders keep what they have. Until now units that were written off were taken first, and what a shipped order lacked was owed.
insert into channel_hold (tenant_id, channel_order_id, sku_id, qty_wanted, qty_written_off, qty_shipped, qty_held, qty_lost,
  qty_counted, shortfall_id, placed_at, external_id)
select s.tenant_id, s.channel_order_id, s.sku_id, s.held + greatest(0, s.short - s.owed), s.written_off,
  s.gone - least(s.gone, s.written_off) + s.owed, s.held, least(s.gone, s.written_off),
  greatest(0, s.short - s.owed), s.shortfall_id, o.placed_at, o.external_id
from (
  select l.tenant_id, l.channel_order_id, l.sku_id, sum(l.qty_allocated)::bigint as held, sum(l.qty_gone)::bigint as gone,
    sum(l.qty_short)::bigint as short, sum(l.qty_owed)::bigint as owed,
    sum(least(l.qty, coalesce(r.not_restocked, 0)))::bigint as written_off, max(l.shortfall_id::text)::uuid as shortfall_id
  from channel_order_line l
  left join (select tenant_id, channel_order_id, line_external_id, sum(qty) as not_restocked from channel_refund_line
             where restock_type = 'no_restock' group by 1, 2, 3) r
    on r.tenant_id = l.tenant_id and r.channel_order_id = l.channel_order_id and r.line_external_id = l.external_id
  group by 1, 2, 3
) s
join channel_order o on o.tenant_id = s.tenant_id and o.id = s.channel_order_id;

-- What worked on those columns. A delivery that meets this migration fails, and is sent again.
drop function if exists holdfast.settle_channel_order(uuid, uuid, text, text);
drop function if exists holdfast.miss_for_channel_order(uuid, uuid, uuid[], bigint[], bigint[]);
drop function if exists holdfast.channel_lines_due(uuid, uuid);
drop function if exists holdfast.channel_lines(uuid, uuid);
drop function if exists holdfast.ease_shortfall(uuid, uuid, bigint, bigint, text);
drop function if exists holdfast.lower_shortfall(uuid, uuid, bigint, text, text);
alter table channel_order_line drop column qty_allocated, drop column qty_gone, drop column qty_short, drop column qty_needed,
  drop column qty_owed, drop column shortfall_id;

-- ── Shapes and rights ──────────────────────────────────────────────────────────────────────────────────────────

-- What a channel order wants of one SKU; see holdfast.channel_targets.
create type holdfast.channel_target as (sku_id uuid, wanted bigint, written_off bigint, shipped bigint);

-- What it is to have of it, and what changes: on_hand and allocated of the position, units shipped beyond all that it could have,
-- newly missing units; see holdfast.channel_plan.
create type holdfast.channel_change as (sku_id uuid, held bigint, lost bigint, on_hand bigint, allocated bigint, beyond bigint,
  missing bigint);

-- Units that one channel order gets (+) or loses (-).
create type holdfast.channel_move as (channel_order_id uuid, sku_id uuid, qty bigint);

do $$
declare
  v_table text;
begin
  foreach v_table in array array['channel_fulfillment', 'channel_fulfillment_line', 'channel_edit_line', 'channel_disposition',
      'channel_hold'] loop
    execute format('alter table public.%I enable row level security', v_table);
    execute format($policy$create policy tenant_only on public.%I to holdfast_app
      using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid))$policy$, v_table);
  end loop;
end $$;
grant select, insert, update on channel_fulfillment, channel_fulfillment_line, channel_hold to holdfast_app;
grant select, insert on channel_edit_line, channel_disposition to holdfast_app;
grant update on channel_refund_line to holdfast_app;
