-- Events on a bus of EventBridge or a queue of SQS. The relay calls them with its own rights, so a tenant may only use those that the
-- operator has allowed it.

alter table destination
  drop constraint destination_kind_check,
  drop constraint destination_pushes_have_no_order,
  add constraint destination_kind_check check (kind in ('webhook', 'shopify_inventory', 'email', 'eventbridge', 'sqs')),
  add constraint destination_kinds_without_order check (
    not ordered or kind in ('webhook', 'email') or (kind = 'sqs' and url like '%.fifo'));

create table aws_target (
  tenant_id uuid not null references tenant,
  kind text not null check (kind in ('eventbridge', 'sqs')),
  -- The ARN of a bus; the URL of a queue.
  address text not null check (char_length(address) between 1 and 2048),
  primary key (tenant_id, kind, address)
);
alter table aws_target enable row level security;
create policy tenant_only on aws_target to holdfast_app
  using (tenant_id = (select nullif(current_setting('app.tenant_id', true), '')::uuid));
grant select on aws_target to holdfast_app;
