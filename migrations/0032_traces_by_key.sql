-- A trace is visible with its exception. As a scalar look-up by key: an EXISTS may be planned as a hash of all exceptions, when
-- statistics call them few.
alter policy of_exception on exception_trace
  using ((select true from inbox_exception e where e.id = exception_id limit 1));
