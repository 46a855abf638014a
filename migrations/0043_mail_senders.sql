-- A tenant's mails bear a sender that the operator has allowed it, like its buses and queues: else one brand could write as another,
-- since SES has verified both.

-- Its address is mailto: and the sender, in lower case.
alter table aws_target drop constraint aws_target_kind_check;
alter table aws_target add constraint aws_target_kind_check check (kind in ('eventbridge', 'sqs', 'email'));
-- The relay looks again before it sends: what was allowed may have been taken back.
create policy drain on aws_target to holdfast_worker using (true);
grant select on aws_target to holdfast_worker;

-- Whoever wrote as somebody until now may go on.
insert into aws_target (tenant_id, kind, address)
select distinct d.tenant_id, 'email', lower(d.url) from destination d where d.kind = 'email' and d.url like 'mailto:%';

-- They tell besides whether the sender is allowed.
drop function if exists holdfast.confirmation_facts(uuid, uuid, jsonb);
