#!/usr/bin/env python3
"""Compares plumbd as a relay (many agents' streams in one call) with a relay that makes one call for each
agent over one HTTP/2 channel, in one run, in turns.

    bench/server/relay_peers.py BUILD_DIR [--relays 16] [--agents 64] [--steps 150] [--rate 5] [--rounds 3]

Each relay has its own simulator of --agents agents (plumb_simulator); all relays send to one plumbd. The
comparison is of this server: its CPU seconds, its memory, and the time until acknowledgements. Prints
one JSON object; ratios are the peer's figure divided by ours, so above 1 means that ours is better.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

from ingest_peers import Plumbd, Program, cpu_seconds, memory
from processes import wait_for


class Relay(Program):
    def __init__(self, command, port_file, log):
        self.port_file = pathlib.Path(port_file)
        super().__init__(command, log)
        self.address = wait_for(self._address, 60, "a relay's start")

    def _address(self):
        if self.process.poll() is not None:
            raise SystemExit("relay_peers: a relay ended: " + pathlib.Path(self.log.name).read_text())
        text = self.port_file.read_text().strip() if self.port_file.exists() else ""
        return text or None


def relay_of(kind, build, upstream, name):
    port_file, log = f"{name}.port", f"{name}.log"
    if kind == "plumbd":
        command = [f"{build}/bin/plumbd", "--relay", upstream, "--grpc", "127.0.0.1:0",
                   "--port-file", port_file, "--log-level", "warning"]  # fmt: skip
    else:
        command = [f"{build}/bin/bench_passthrough_relay", upstream, port_file]
    return Relay(command, port_file, log)


def simulator(build, address, relay, args):
    return subprocess.Popen(
        [f"{build}/bin/plumb_simulator", "--server", address, "--run", f"relay{relay}",
         "--ranks", str(args.agents), "--ranks-per-stream", "1", "--series", "8", "--steps",
         str(args.steps), "--rate", str(args.rate), "--threads", "1", "--seconds", "300"],
        stdout=subprocess.PIPE, text=True)  # fmt: skip


def measure(kind, args, folder):
    server = Plumbd(args.build, f"{folder}/server")
    relays = [relay_of(kind, args.build, server.address, f"{folder}/relay{i}")
              for i in range(args.relays)]  # fmt: skip
    try:
        before = cpu_seconds(server.process.pid)
        running = [simulator(args.build, relay.address, i, args) for i, relay in enumerate(relays)]
        stated = [json.loads(one.communicate(timeout=400)[0]) for one in running]
        if any(one.returncode != 0 for one in running):
            raise SystemExit(f"relay_peers: not everything was acknowledged through {kind}: {stated}")
        return {
            "server_cpu_s": cpu_seconds(server.process.pid) - before,
            "server_most_mib": memory(server.process.pid)["most_mib"],
            "relays_cpu_s": sum(cpu_seconds(relay.process.pid) for relay in relays),
            "relays_most_mib": sum(memory(relay.process.pid)["most_mib"] for relay in relays),
            "ack_median_s": statistics.median(one["ack_seconds"]["p50"] for one in stated),
            "ack_p99_s": max(one["ack_seconds"]["p99"] for one in stated),
        }
    finally:
        for relay in relays:
            relay.stop()
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--relays", type=int, default=16)
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rate", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    found = {"plumbd": [], "a call an agent": []}
    for _ in range(args.rounds):
        for kind, figures in found.items():
            with tempfile.TemporaryDirectory(prefix="relay-peers-") as folder:
                figures.append(measure(kind, args, folder))
    middle = {kind: {key: statistics.median(one[key] for one in figures) for key in figures[0]}
              for kind, figures in found.items()}  # fmt: skip
    ours, peer = middle.values()
    print(json.dumps({"shape": vars(args), **middle,
                      "peer_to_ours": {key: peer[key] / ours[key] for key in ours}}, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
