-- The reaper forgets the secrets that a sender no longer signs with, and cannot read them.
create policy drain on threepl_account to holdfast_worker using (true);
create policy drain on shopify_shop to holdfast_worker using (true);
grant select (id, previous_retires_at), update (previous_secret, previous_retires_at) on threepl_account to holdfast_worker;
grant select (domain, previous_retires_at), update (previous_secret, previous_retires_at) on shopify_shop to holdfast_worker;
