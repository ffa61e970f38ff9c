#!/usr/bin/env python3
"""Measures the time from a planted fault to the received notification: plumbd, Debian's Alertmanager, two receivers.

    bench/server/alert_latency.py BUILD_DIR [--runs 50] [--ranks 4096] [--steps 220]

Twice: the C++ example with a router that leaks, started again for every fault (the clock starts when
its first step begins; each of its layers is an incident), and simulated ranks that share one plumbd,
of which one leaks every second step (the clock starts with the step of all ranks). plumbd has all
rules, journal and store on, and two routes: a signed webhook, and an Alertmanager with group_wait 0s
whose webhook is the second receiver. Prints one JSON object, seconds.
"""

import argparse
import http.server
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request

from processes import free_port, wait_for


class Receiver:
    """Records when each (run, layer) was first reported as firing."""

    def __init__(self, keys):
        seen = self.seen = {}
        self.repeated = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(handler):
                now = time.time()
                body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
                for key in keys(body):
                    (self.repeated.append(key) if key in seen else seen.setdefault(key, now))
                handler.send_response(200)
                handler.end_headers()

            def log_message(handler, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def direct_keys(body):
    site = body.get("finding", {}).get("site", {})
    return [(site["run"], site["layer"])] if body["status"] == "firing" and site else []


def alertmanager_keys(body):
    labels = [a["labels"] for a in body["alerts"] if a["status"] == "firing"]
    return [(x["run"], x.get("layer", "")) for x in labels]


def spread(seconds):
    ordered = sorted(seconds)
    at = lambda q: round(ordered[min(len(ordered) - 1, int(q * len(ordered)))], 3)
    return {"count": len(ordered), "p50": at(0.5), "p99": at(0.99), "max": round(ordered[-1], 3)}


def start(command, processes, **more):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
    processes.append(process)
    return process


def example(build, server, run, layers=2):
    """Runs the example. Returns when its first step began, and which incidents it plants."""
    command = [build / "bin/moe_cpp", "--router", "score-drop", "--steps", "3", "--run", run]
    process = subprocess.Popen(
        ["stdbuf", "-oL", *map(str, command), "--server", server],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    process.stdout.readline()  # the line before the training starts
    began = time.time()
    process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"alert_latency: {command} ended with {process.returncode}")
    return began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=50, help="of the example, two layers each")
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--rate", type=float, default=2.0, help="simulated steps a second")
    options = parser.parse_args()
    build = options.build.resolve()

    direct, after = Receiver(direct_keys), Receiver(alertmanager_keys)
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        try:
            am = f"127.0.0.1:{free_port()}"
            (folder / "am.yml").write_text(
                "route: {receiver: hook, group_by: [fingerprint], group_wait: 0s,"
                " group_interval: 1s, repeat_interval: 1h}\n"
                f"receivers: [{{name: hook, webhook_configs: [{{url: '{after.url}'}}]}}]\n"
            )
            start(["prometheus-alertmanager", f"--config.file={folder}/am.yml",
                   f"--storage.path={folder}/am", f"--web.listen-address={am}",
                   "--cluster.listen-address="], processes)
            ready = lambda: urllib.request.urlopen(f"http://{am}/-/ready").status == 200
            wait_for(lambda: not raises(ready), 30, "Alertmanager's start")
            (folder / "secret").write_text("0123456789abcdef0123\n")
            (folder / "secret").chmod(0o600)
            leaks = 'rules = ["causality/moe-future-leak"]\n'  # the planted fault
            (folder / "plumbd.toml").write_text(
                f'[[alerts.route]]\nname = "am"\n{leaks}alertmanager = "http://{am}"\n'
                f'[[alerts.route]]\nname = "hook"\n{leaks}webhook = "{direct.url}"\nmost_a_minute = 0\n'
                f'secret_file = "{folder}/secret"\n'
            )
            start([str(build / "bin/plumbd"), "--grpc", "127.0.0.1:0", "--http", "off", "--config",
                   f"{folder}/plumbd.toml", "--data", f"{folder}/data", "--port-file",
                   f"{folder}/port"], processes)
            wait_for((folder / "port").exists, 30, "plumbd's start")
            server = (folder / "port").read_text().strip()
            out = {"load_before": os.getloadavg()[0]}

            began = {f"example-{i}": example(build, server, f"example-{i}") for i in range(options.runs)}
            mine = lambda r: {k: t for k, t in r.seen.items() if k[0] in began}
            wait_for(lambda: {k[0] for k in mine(after)} >= set(began), 60, "the example's alerts")
            out["example"] = {
                name: spread([t - began[run] for (run, layer), t in mine(r).items()])
                for name, r in (("webhook", direct), ("through_alertmanager", after))
            }

            faults = folder / "faults"
            subprocess.run(
                [str(build / "bin/plumb_simulator"), "--server", server, "--ranks", str(options.ranks),
                 "--steps", str(options.steps), "--rate", str(options.rate), "--fault-every", "2",
                 "--fault-log", str(faults), "--seconds", "300"],
                stdout=subprocess.DEVNULL, check=True,
            )
            lines = [line.split() for line in faults.read_text().splitlines()]
            planted = {("simulated", layer): int(ns) / 1e9 for layer, ns in lines}
            wait_for(lambda: planted.keys() <= after.seen.keys(), 60, "the simulator's alerts")
            out["simulated"] = {
                name: spread([r.seen[k] - t for k, t in planted.items()])
                for name, r in (("webhook", direct), ("through_alertmanager", after))
            }
            out["simulated"]["ranks"] = options.ranks
            out["load_after"] = os.getloadavg()[0]
            out["told_twice"] = {"webhook": len(direct.repeated), "through_alertmanager": len(after.repeated)}
            print(json.dumps(out, indent=2))
        finally:
            for process in reversed(processes):
                process.send_signal(signal.SIGTERM)
                process.wait(30)


def raises(call):
    try:
        return not call()
    except OSError:
        return True


if __name__ == "__main__":
    main()
