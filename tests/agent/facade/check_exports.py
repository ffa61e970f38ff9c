"""check_exports.py facade|agent|cuda LIBRARY: checks the library's exports and dependencies."""

import pathlib
import re
import subprocess
import sys

KINDS = (pathlib.Path(__file__).resolve().parents[3] / "proto/evidence_kinds.inc").read_text()

ALLOCATOR = {
    "malloc", "free", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc", "valloc",
    "pvalloc", "malloc_usable_size",
}  # fmt: skip
C_ABI = {
    "open", "set_rank", "site", "site_at", "step_begin", "step_end", "sample_indices", "scalar", "scalar_at", "charge", "look", "checksums", "square_sums", "moved", "capture_begin", "capture_end", "together_begin", "together_end", "marks", "steps", "stop_order", "next_look", "span_begin", "span_end",
    "flush", "close", "note_ending", "watch_sigterm", "check_router", "fingerprint", "status_name", "last_error", "version", "link_agent", "process_allocator",
}  # fmt: skip
C_ABI |= {"observe_" + name for name in re.findall(r"^PLUMB_KIND\w*\(\w+, \w+, (\w+),", KINDS, re.M)}
SYSTEM = r"libc\.so|ld-linux|libdl|libpthread"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exports(library):
    lines = output("nm", "-D", "--defined-only", library).splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines}


def needed(library):
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", library)))


def expect(what, found, expected):
    if found == expected:
        return 0
    print(f"{what}: unexpected {sorted(found - expected)}, missing {sorted(expected - found)}")
    return 1


def main():
    kind, library = sys.argv[1:]
    if kind == "facade":
        libc = {n for n in needed(library) if not re.match(SYSTEM, n)}
        failures = expect("exports", exports(library), {"plumbline_" + name for name in C_ABI})
        failures += expect("needs besides libc", libc, set())
    elif kind == "cuda":
        failures = expect("exports", exports(library), {"plumbline_device_table"})
        # Without the driver and the shared runtime, so that it loads on machines that have neither.
        others = {n for n in needed(library) if not re.match(SYSTEM + r"|libstdc\+\+|libgcc_s|libm\.so|librt", n)}
        failures += expect("needs besides libc and libstdc++", others, set())
    else:
        failures = expect("exports", exports(library), ALLOCATOR | {"plumbline_agent_table"})
        failures += expect("façade", needed(library) & {"libplumbline.so"}, {"libplumbline.so"})
    dynamic = output("readelf", "-d", library)
    if "NODELETE" not in dynamic:
        print("the library can be unloaded while its handlers are registered")
        failures += 1
    return 1 if failures else 0


sys.exit(main())
