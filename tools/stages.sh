# Sourced by ./run, ./test and .ci/run, from the top of the tree: work in named stages, each with
# its time and its log under build/logs. On a terminal the last line of the log is shown meanwhile.

stage_logs=build/logs
# ccache uses the dependencies that the compiler writes anyway, and preprocesses no unit before: a
# third of what a first build takes.
export CCACHE_DEPEND=1
stage_child=

# Ctrl-C or a signal: the running stage, with all that it has started, ends with us.
stage_interrupted() {
  [[ -z $stage_child ]] || kill -TERM -- "-$stage_child" 2>/dev/null || true
  printf '\ninterrupted\n' >&2
  exit 130
}
trap stage_interrupted INT TERM

# try_stage TITLE LOG COMMAND...: runs the command, prints one line about it; returns its status.
try_stage() {
  local title=$1 log="$stage_logs/$2.log" status=0 begin=$SECONDS
  shift 2
  mkdir -p "$stage_logs"
  set -m  # a process group of its own, for stage_interrupted
  "$@" >"$log" 2>&1 </dev/null &
  stage_child=$!
  set +m
  if [[ -t 1 ]]; then
    while kill -0 "$stage_child" 2>/dev/null; do
      local last
      last=$(tail -c 400 "$log" | tr '\r' '\n' | tail -n 1)
      printf '\r\033[K  %-34s %4d s  %.70s' "$title" $((SECONDS - begin)) "$last"
      sleep 0.5
    done
    printf '\r\033[K'
  fi
  wait "$stage_child" || status=$?
  stage_child=
  if [[ $status -eq 0 ]]; then
    printf '  %-34s %4d s  ok\n' "$title" $((SECONDS - begin))
  else
    printf '  %-34s %4d s  FAILED (log: %s)\n' "$title" $((SECONDS - begin)) "$log"
  fi
  return "$status"
}

# stage TITLE LOG COMMAND...: as try_stage, but a failure shows the end of the log and is the end.
stage() {
  local log="$stage_logs/$2.log"
  try_stage "$@" && return 0
  printf '\n'
  # Compilers and linkers say "error"; else the end of the log is the best that is known.
  grep -n -m 5 -E '(^FAILED:|error:|Error )' "$log" | cut -c 1-300 || true
  printf '...\n'
  tail -n 25 "$log"
  printf '\nThe whole log: %s\n' "$log"
  return 1
}
