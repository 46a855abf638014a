#!/bin/sh
# What `cargo lambda watch` is given as its cargo. It starts each instance by `cargo run … --bin NAME`; `dev` has built
# all of them, so they are run as they are: no instance waits for the compiler's lock, and none is built from sources
# that were edited meanwhile. They reach the watcher's Runtime API over the bridge (bridge.rs). Everything else goes to
# cargo, in the project's root, where the watcher does not stand.
if [ "$1" = run ]; then
  for name do :; done
  if [ -x "$HOLDFAST_BUILT/$name" ]; then
    path=${AWS_LAMBDA_RUNTIME_API#http://}
    export AWS_LAMBDA_RUNTIME_API="http://$HOLDFAST_BRIDGE/${path#*/}"
    exec "$HOLDFAST_BUILT/$name"
  fi
fi
cd "$HOLDFAST_ROOT" && exec cargo "$@"
