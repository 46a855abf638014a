-- What a 3PL said it has of each SKU, a row a day (the day on which the walk began), and how far a walk has come.
create table inventory_snapshot (
  tenant_id uuid not null,
  sku_id uuid not null,
  snapshot_date date not null,
  on_hand bigint not null,
  taken_at timestamptz not null default now(),
  primary key (tenant_id, sku_id, snapshot_date),
  foreign key (tenant_id, sku_id) references sku (tenant_id, id)
);
create index inventory_snapshot_by_age on inventory_snapshot (snapshot_date);
create table sync_checkpoint (
  tenant_id uuid not null references tenant (id),
  job_name text not null,
  cursor text,
  updated_at timestamptz not null default now(),
  primary key (tenant_id, job_name)
);
alter table inventory_snapshot enable row level security;
alter table sync_checkpoint enable row level security;
create policy drain on inventory_snapshot to holdfast_worker using (true);
create policy drain on sync_checkpoint to holdfast_worker using (true);
grant select, insert, update, delete on inventory_snapshot, sync_checkpoint to holdfast_worker;
