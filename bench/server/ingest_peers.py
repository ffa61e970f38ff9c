#!/usr/bin/env python3
"""Compares plumbd's durable ingest with VictoriaMetrics' native import, in one run on one disk.

    bench/server/ingest_peers.py BUILD_DIR [--victoria-metrics PROGRAM] [--data DIR] [--rounds 3]

Both get the same shape: RANKS x SERIES series of STEPS values (floats of a training curve). plumbd
runs with journal, store and every rule on; it acknowledges after fdatasync (its own policy is
printed from --set-less defaults) and a sample counts when it is acknowledged. VictoriaMetrics has
no log: it keeps rows in memory and writes parts to disk later, without fsync before it answers;
its sample counts when the import request returns, and in a second measurement after its flush to
disk. The imported bytes are VictoriaMetrics' own export of the same samples, so the measured time
contains no conversion. Then, with plumbd alone: 10,000 ranks in bursts across a seal with a fault every few steps
(step to `plumb watch`), its memory, what full segments take once they are packed, and a restart
after kill -9. Prints one JSON object.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time

from processes import free_port, wait_for


def memory(pid):
    """Returns resident MiB, current and peak."""
    fields = dict(
        line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return {
        "now_mib": int(fields["VmRSS"].split()[0]) / 1024,
        "most_mib": int(fields["VmHWM"].split()[0]) / 1024,
    }


def cpu_seconds(pid):
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def folder_bytes(path):
    return sum(f.stat().st_size for f in pathlib.Path(path).rglob("*") if f.is_file())


class Program:
    def __init__(self, command, log):
        self.log = open(log, "ab")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def stop(self, with_signal=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        self.process.wait(60)
        self.log.close()


class Plumbd(Program):
    def __init__(self, build, data, options=()):
        self.port_file = pathlib.Path(data + ".port")
        self.port_file.unlink(missing_ok=True)
        self.started = time.monotonic()
        super().__init__(
            [f"{build}/bin/plumbd", "--grpc", "127.0.0.1:0", "--http", "off", "--data", data,
             "--port-file", str(self.port_file), "--log-level", "warning", *options],
            data + ".log",
        )  # fmt: skip
        self.address = wait_for(self._address, 120, "plumbd's start")

    def _address(self):
        if self.process.poll() is not None:
            raise SystemExit("ingest_peers: plumbd ended: " + pathlib.Path(self.log.name).read_text())
        return self.port_file.read_text().strip() if self.port_file.exists() else None


class Victoria(Program):
    def __init__(self, program, data):
        self.port = free_port()
        super().__init__(
            [program, f"-storageDataPath={data}", "-retentionPeriod=100y",
             f"-httpListenAddr=127.0.0.1:{self.port}", "-loggerLevel=WARN",
             "-search.maxExportSeries=10000000", "-search.maxExportDuration=10m",
             "-search.maxUniqueTimeseries=10000000"],
            data + ".log",
        )  # fmt: skip
        wait_for(self._answers, 60, "VictoriaMetrics' start")

    def _answers(self):
        try:
            return self.request("GET", "/health")[0] == 200
        except OSError:
            return False

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, body)
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        return response.status, answer

    def rows(self):
        text = self.request("GET", "/metrics")[1].decode()
        return sum(
            int(float(line.rpartition(" ")[2]))
            for line in text.splitlines()
            if line.startswith("vm_rows{")
        )


def json_lines(ranks, series, steps, start_ms):
    """Yields the samples for VictoriaMetrics' JSON import. They are made once, outside of any measured time."""
    generator = random.Random(1)
    pool = [f"{2 + generator.gauss(0, 0.01):.7g}" for _ in range(8192)]
    pool += pool
    times = ",".join(str(start_ms + 1000 * step) for step in range(steps))
    for rank in range(ranks):
        for number in range(series):
            at = (rank * 977 + number * 131) % 8192
            values = pool[at : at + steps] if steps <= 8192 else (pool * (steps // 8192 + 1))[:steps]
            yield (
                f'{{"metric":{{"__name__":"series_{number}","rank":"{rank}"}},'
                f'"values":[{",".join(values)}],"timestamps":[{times}]}}\n'
            )


def native_parts(program, folder, shape, parts):
    """Returns the same samples in VictoriaMetrics' own format, as `parts` bodies of similar size."""
    ranks, series, steps = shape
    data = os.path.join(folder, "vm-source")
    server = Victoria(program, data)
    try:
        batch, size = [], 0
        start_ms = (int(time.time()) - steps - 3600) * 1000
        for line in json_lines(ranks, series, steps, start_ms):
            batch.append(line)
            size += len(line)
            if size > 16 << 20:
                server.request("POST", "/api/v1/import", "".join(batch).encode())
                batch, size = [], 0
        server.request("POST", "/api/v1/import", "".join(batch).encode())
        server.request("GET", "/internal/force_flush")
        wait_for(lambda: server.rows() >= ranks * series * steps, 120, "the source import")
        bodies = []
        for part in range(parts):
            numbers = "|".join(str(n) for n in range(part, series, parts))
            match = f'{{__name__=~"series_({numbers})"}}'
            from urllib.parse import quote

            status, body = server.request(
                "GET", f"/api/v1/export/native?match[]={quote(match)}&start={start_ms // 1000 - 60}"
            )
            if status != 200:
                raise SystemExit(f"ingest_peers: export answered {status}: {body[:200]}")
            bodies.append(body)
        return bodies
    finally:
        server.stop()
        shutil.rmtree(data, ignore_errors=True)


def run_victoria(program, folder, bodies, samples):
    data = os.path.join(folder, "vm")
    server = Victoria(program, data)
    try:
        before = cpu_seconds(server.process.pid)
        start = time.monotonic()
        threads = [
            threading.Thread(target=server.request, args=("POST", "/api/v1/import/native", body))
            for body in bodies
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answered = time.monotonic() - start
        server.request("GET", "/internal/force_flush")
        flushed = time.monotonic() - start
        wait_for(lambda: server.rows() >= samples, 120, "the rows")
        return {
            "samples_a_second": samples / answered,
            "samples_a_second_flushed": samples / flushed,
            "server_cpu_seconds": cpu_seconds(server.process.pid) - before,
            "memory": memory(server.process.pid),
            "disk_bytes_a_sample": folder_bytes(data) / samples,
        }
    finally:
        server.stop()
        shutil.rmtree(data, ignore_errors=True)


def simulate(build, address, *options, may_fail=False):
    result = subprocess.run(
        [f"{build}/bin/plumb_simulator", "--server", address, *map(str, options)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    if not result.stdout:
        raise SystemExit(f"ingest_peers: the simulator failed: {result.stderr}")
    answer = json.loads(result.stdout)
    answer["complete"] = result.returncode == 0
    return answer


def run_plumbd(build, folder, shape, keep=None):
    ranks, series, steps = shape
    data = os.path.join(folder, "plumbd")
    server = Plumbd(build, data)
    try:
        before = cpu_seconds(server.process.pid)
        answer = simulate(
            build, server.address, "--ranks", ranks, "--series", series, "--steps", steps,
            "--batch-steps", 1, "--window", 64, "--seconds", 120,
        )  # fmt: skip
        answer["server_cpu_seconds"] = cpu_seconds(server.process.pid) - before
        answer["memory"] = memory(server.process.pid)
        answer["disk_bytes_a_sample"] = folder_bytes(data) / max(1, answer["samples_sent"])
        return answer, server.address if keep else None
    finally:
        server.stop()
        shutil.rmtree(data, ignore_errors=True)


def run_bursts(build, folder, ranks, series, steps, rate, fault_every):
    """Sends bursts of every rank across seals. Measures how long until a watch sees a fault, and the memory."""
    data = os.path.join(folder, "bursts")
    server = Plumbd(build, data)
    try:
        before = cpu_seconds(server.process.pid)
        answer = simulate(
            build, server.address, "--ranks", ranks, "--series", series, "--steps", steps, "--rate",
            rate, "--fault-every", fault_every, "--seconds", 180,
        )  # fmt: skip
        answer["server_cpu_seconds"] = cpu_seconds(server.process.pid) - before
        answer["memory"] = memory(server.process.pid)
        return answer
    finally:
        server.stop()
        shutil.rmtree(data, ignore_errors=True)


def run_restart(build, folder, shape):
    """Stores samples, kills the server with SIGKILL, and measures the time from exec to an answer over the run."""
    ranks, series, steps = shape
    data = os.path.join(folder, "restart")
    server = Plumbd(build, data)
    try:
        filled = simulate(
            build, server.address, "--ranks", ranks, "--series", series, "--steps", steps,
            "--seconds", 120,
        )  # fmt: skip
        server.stop(signal.SIGKILL)
        server = Plumbd(build, data)
        listening = time.monotonic() - server.started

        def known():
            runs = subprocess.run(
                [f"{build}/bin/plumb", "runs", "--server", server.address, "--format", "json"],
                capture_output=True, text=True,
            )  # fmt: skip
            lines = [json.loads(line) for line in runs.stdout.splitlines() if line.startswith("{")]
            return [r for r in lines if r.get("closed_step", -1) >= steps - 1]

        run = wait_for(known, 120, "the restarted run")
        return {
            "samples": filled["samples_acknowledged"],
            "listening_seconds": listening,
            "judged_again_seconds": time.monotonic() - server.started,
            "evidence": run[0].get("evidence"),
            "memory": memory(server.process.pid),
        }
    finally:
        server.stop()
        shutil.rmtree(data, ignore_errors=True)


def segment_sizes(data):
    return {f.name: f.stat().st_size for f in sorted(pathlib.Path(data, "journal").glob("*.plj"))}


def run_packed(build, folder, shape):
    """Measures bytes per sample in journal and store after full segments are packed, and the cost of packing."""
    data = os.path.join(folder, "packed")
    ranks, series, steps = shape
    server = Plumbd(build, data)
    try:
        filled = simulate(
            build, server.address, "--ranks", ranks, "--series", series, "--steps", steps,
            "--batch-steps", 1, "--window", 64, "--seconds", 120,
        )  # fmt: skip
        server.stop()  # writes a checkpoint
        before = segment_sizes(data)
        full = list(before)[:-1]  # the newest one is still being written
        server = Plumbd(build, data)
        cpu, start = cpu_seconds(server.process.pid), time.monotonic()
        wait_for(
            lambda: all(segment_sizes(data)[name] < before[name] for name in full), 600, "packing"
        )
        after = segment_sizes(data)
        share = sum(before[name] for name in full) / sum(before.values())
        samples = share * filled["samples_acknowledged"]
        return {
            "samples": samples,
            "segments": len(full),
            "journal_bytes_a_sample_as_written": sum(before[name] for name in full) / samples,
            "journal_bytes_a_sample_packed": sum(after[name] for name in full) / samples,
            "store_bytes_a_sample": sum(
                f.stat().st_size for f in pathlib.Path(data).glob("store.sqlite*")
            ) / filled["samples_acknowledged"],
            "cpu_ns_a_sample": (cpu_seconds(server.process.pid) - cpu) * 1e9 / samples,
            "seconds": time.monotonic() - start,
            "memory": memory(server.process.pid),
        }
    finally:
        server.stop()
        shutil.rmtree(data, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--victoria-metrics", default=shutil.which("victoria-metrics"))
    parser.add_argument("--data", default=tempfile.gettempdir(), help="a folder on the disk to measure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=400)
    parser.add_argument("--series", type=int, default=50)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--only", choices=["ingest", "packed", "bursts", "restart"], action="append")
    arguments = parser.parse_args()
    parts = arguments.only or ["ingest", "packed", "bursts", "restart"]
    shape = (arguments.ranks, arguments.series, arguments.steps)
    samples = shape[0] * shape[1] * shape[2]
    folder = tempfile.mkdtemp(prefix="ingest-peers-", dir=arguments.data)
    out = {"samples": samples, "cores": os.cpu_count()}
    try:
        if "ingest" in parts:
            ours, theirs = [], []
            bodies = None
            if arguments.victoria_metrics:
                bodies = native_parts(arguments.victoria_metrics, folder, shape, 4)
                out["native_bytes_a_sample"] = sum(map(len, bodies)) / samples
            for _ in range(arguments.rounds):  # alternate, so that both meet the same load of the machine
                ours.append(run_plumbd(arguments.build, folder, shape)[0])
                if bodies:
                    theirs.append(
                        run_victoria(arguments.victoria_metrics, folder, bodies, samples)
                    )
            out["plumbd"] = ours
            out["victoria_metrics"] = theirs
            rate = [r["samples_a_second"] for r in ours]
            out["plumbd_median"] = statistics.median(rate)
            if theirs:
                peer = statistics.median(r["samples_a_second"] for r in theirs)
                out["victoria_metrics_median"] = peer
                out["ratio"] = out["plumbd_median"] / peer
        if "packed" in parts:
            out["packed"] = run_packed(arguments.build, folder, (400, 50, 2500))
        if "bursts" in parts:
            out["bursts"] = run_bursts(arguments.build, folder, 10000, 50, 150, 2, 5)
        if "restart" in parts:
            out["restart"] = run_restart(arguments.build, folder, (1000, 50, 1000))
        print(json.dumps(out, indent=2))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
