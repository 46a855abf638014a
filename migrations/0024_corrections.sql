-- What a count corrects is no movement: it says what had been so all the time. reconcile_book says when it corrects.
create or replace function holdfast.note_owed() returns trigger language plpgsql as $$
begin
  if coalesce(current_setting('app.correcting', true), '') <> 'on' then
    insert into public.owed_ledger (tenant_id, sku_id, on_hand_delta)
    values (new.tenant_id, new.sku_id, new.owed_on_hand - case tg_op when 'UPDATE' then old.owed_on_hand else 0 end);
  end if;
  return null;
end $$;
