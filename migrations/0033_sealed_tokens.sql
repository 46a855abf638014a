-- They tell besides whose token it is, since it opens only there.
drop function if exists holdfast.claim_questions(jsonb);
drop function if exists holdfast.shop_access(uuid, text);
