#!/bin/bash
# Slurm prolog (slurm.conf: Prolog=/etc/slurm/plumbline-prolog.sh), runs as root on each node of a job: starts a relay
# that the job's processes reach over a Unix socket. Only the relay has credentials for the server. A failure here must
# not drain the node: monitoring is less important than a job.
#
# /etc/plumbline/slurm.env:  UPSTREAM=plumbd.example.org:7433     (and RELAY_DIR, PLUMBD to change them)
# /etc/plumbline/relay.toml: [relay] tls_ca, token_file; see packaging/plumbd.toml
#
# The job sets PLUMBLINE_SERVER=unix:/run/plumbline/relay-$SLURM_JOB_ID/socket; a TaskProlog can do so:
#   echo "export PLUMBLINE_SERVER=unix:/run/plumbline/relay-$SLURM_JOB_ID/socket"
set -u

environment=${PLUMBLINE_SLURM_ENV:-/etc/plumbline/slurm.env}
# shellcheck source=/dev/null
[ -r "$environment" ] && . "$environment"
: "${SLURM_JOB_ID:?}"
upstream=${UPSTREAM:-}
plumbd=${PLUMBD:-/usr/bin/plumbd}
config=${RELAY_CONFIG:-/etc/plumbline/relay.toml}
directory=${RELAY_DIR:-/run/plumbline}/relay-$SLURM_JOB_ID
user=${SLURM_JOB_USER:-root}

log() { logger -t plumbline-prolog -- "job $SLURM_JOB_ID: $*" 2>/dev/null || echo "plumbline: $*" >&2; }

if [ -z "$upstream" ]; then
  log "no UPSTREAM in $environment: no relay is started"
  exit 0
fi
# Only the job's user can reach the socket: its directory is closed to all other users.
if ! install -d -m 0711 "${directory%/*}" || ! install -d -m 0700 "$directory"; then
  log "$directory cannot be made: no relay is started"
  exit 0
fi
chown "$user" "$directory" || log "$directory cannot be given to $user"

setsid "$plumbd" --config "$config" --relay "$upstream" --grpc "unix:$directory/socket" --http off \
  --port-file "$directory/ready" >"$directory/log" 2>&1 </dev/null &
echo $! >"$directory/pid"

for _ in $(seq 300); do # 30 s: the node may be busy
  if [ -e "$directory/ready" ]; then
    chown "$user" "$directory/socket"
    exit 0
  fi
  kill -0 "$(cat "$directory/pid")" 2>/dev/null || break
  sleep 0.1
done
log "the relay did not start: $(tail -n 1 "$directory/log")"
exit 0
