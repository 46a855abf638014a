#!/bin/sh
# What `cargo lambda watch` is given as its cargo. It starts each instance by `cargo run … --bin NAME`; `dev` has built
# all of them, so they are run as they are: no instance waits for the compiler's lock, and none is built from sources
# that were edited meanwhile. Everything else goes to cargo.
if [ "$1" = run ]; then
  for name do :; done
  if [ -x "$HOLDFAST_BUILT/$name" ]; then
    exec "$HOLDFAST_BUILT/$name"
  fi
fi
exec cargo "$@"
