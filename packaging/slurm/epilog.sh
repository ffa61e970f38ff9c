#!/bin/bash
# Slurm epilog (slurm.conf: Epilog=/etc/slurm/plumbline-epilog.sh): ends the relay of the job. What the relay had not
# delivered is in the spools of the processes (PLUMBLINE_SPOOL): `plumb spool send DIR` delivers it.
set -u

environment=${PLUMBLINE_SLURM_ENV:-/etc/plumbline/slurm.env}
# shellcheck source=/dev/null
[ -r "$environment" ] && . "$environment"
: "${SLURM_JOB_ID:?}"
directory=${RELAY_DIR:-/run/plumbline}/relay-$SLURM_JOB_ID
plumbd=${PLUMBD:-/usr/bin/plumbd}

[ -r "$directory/pid" ] || exit 0
pid=$(cat "$directory/pid")
# The process id may belong to another program now.
if [ "$(readlink "/proc/$pid/exe")" = "$(readlink -f "$plumbd")" ]; then
  kill -TERM "$pid"
  for _ in $(seq 50); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null
fi
rm -rf -- "$directory"
exit 0
