-- Addresses at which mails bounced for good, or whose owners called one spam. Of no tenant: what is true of an address is true for all.
create table paused_address (
  -- In lower case: no server that matters tells cases apart.
  address text primary key check (char_length(address) between 1 and 320),
  kind text not null check (kind in ('bounce', 'complaint')),
  reason text not null check (char_length(reason) <= 500),
  -- When it bounced, or its owner complained.
  told_at timestamptz not null,
  -- When an operator let mails go there again. What is told of before counts no more.
  resumed_at timestamptz
);
alter table paused_address enable row level security;
create policy drain on paused_address to holdfast_worker using (true);
grant select, insert, update on paused_address to holdfast_worker;
