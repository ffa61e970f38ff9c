"""checks.py PREFIX: reports what a bundled tree requires of a machine, and checks that it is no more than promised.

If anything exceeds that, prints a line for each and ends with status 1.
"""

import pathlib
import subprocess
import sys

from bundle import ALONE, FOLDER, GUESTS, OWN, PROGRAMS, elf_files
from closure import is_system
from elf import Elf, version_key

# The newest symbol version of each system library that may be required: those of manylinux_2_34. RHEL 9 (GCC 11),
# Ubuntu 22.04 and Debian 12 have them.
MOST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}
WHEEL_BYTES = 30_000_000  # 3.2 MB of it are the device kernels
EXPORTS = pathlib.Path(__file__).resolve().parents[2] / "tests/agent/facade/check_exports.py"
LIBRARIES = {
    "facade": "lib/libplumbline.so",
    "agent": "lib/libplumbline_agent.so",
    "cuda": "lib/libplumbline_cuda.so",
}


def too_new(version):
    """Returns True if a symbol version is newer than allowed. "GLIBC_ABI_DT_RELR" counts as newer: it contains no version."""
    family = version.partition("_")[0]
    return not version_key(version) or version_key(version) > MOST.get(family, ())


def check_versions(file):
    for library, version in sorted(file.versions_needed()):
        if is_system(library) and too_new(version):
            names = sorted(s.name for s in file.symbols() if s.version == version)
            yield f"{file.path.name} needs {version} of {library}: {', '.join(names) or 'as a whole'}"


def check_needed(file, carried):
    for name in file.needed:
        if not is_system(name) and name not in OWN and name not in carried:
            yield f"{file.path.name} needs {name}, which is neither carried nor of glibc, libstdc++ or libgcc_s"


def check_carried(file, opened):
    """Checks a library of the closure: it has a unique name, and no symbols in process-wide tables."""
    name = file.path.name
    if file.soname != name:
        yield f"{name} calls itself {file.soname}"
    if "-plumb" not in name and name not in opened:
        yield f"{name} may be another's in the process: its name is no name of its own"
    for symbol in file.unique_symbols()[:1]:
        yield f"{name} shares {symbol} with the whole process (STB_GNU_UNIQUE)"


def check_search_path(file, expected):
    if file.has_runpath or file.search_path != expected:
        kind = "RUNPATH" if file.has_runpath else "RPATH"
        yield f"{file.path.name} looks in {kind} '{file.search_path}'; expected RPATH '{expected}'"


def check_exports(prefix):
    for kind, name in LIBRARIES.items():
        if (prefix / name).exists():
            done = subprocess.run(
                [sys.executable, EXPORTS, kind, prefix / name], capture_output=True, text=True
            )
            if done.returncode != 0:
                yield f"{name}: {(done.stdout + done.stderr).strip()}"


def check_whole(prefix):
    for name in (*PROGRAMS, *GUESTS, *(n for n in ALONE if "cuda" not in n)):
        if not (prefix / name).exists():
            yield f"{name} is missing"


def check_wheel(path):
    size = path.stat().st_size
    if size > WHEEL_BYTES:
        yield f"{path.name} has {size / 1e6:.1f} MB; at most {WHEEL_BYTES / 1e6:.0f} may be asked of who installs it"


def check_hardening(file, ours):
    """Checks for what cmake/PlumblineHarden.cmake enables; in third-party libraries, for what Debian's flags enable. A
    canary and a checked copy exist only if the compiler found a use for them, so `ours` are files that are large
    enough."""
    name, imported = file.path.name, {s.name for s in file.symbols() if not s.defined}
    if not file.has_relro:
        yield f"{name} has no RELRO segment"
    if file.has_executable_stack:
        yield f"{name} has an executable stack"
    if not ours:
        return
    if not file.binds_now:
        yield f"{name} binds functions when they are first called, so their table stays writable; expected -z now"
    if not file.is_position_independent:
        yield f"{name} is loaded at a fixed address; expected PIE"
    if "__stack_chk_fail" not in imported:
        yield f"{name} has no stack canaries; expected -fstack-protector-strong"
    if not any(symbol.startswith("__") and symbol.endswith("_chk") for symbol in imported):
        yield f"{name} has no checked copies; expected -D_FORTIFY_SOURCE=2"


def problems(prefix, opened=(), hardened=False):
    """`hardened`: the build has the flags of cmake/PlumblineHarden.cmake, as a release has."""
    prefix = pathlib.Path(prefix)
    files = [Elf(path) for path in elf_files(prefix)]
    carried = {file.path.name for file in files if file.path.parent == prefix / FOLDER}
    yield from check_whole(prefix)
    for file in files:
        yield from check_versions(file)
        yield from check_needed(file, carried)
        name = str(file.path.relative_to(prefix))
        yield from check_hardening(file, hardened and name in (*PROGRAMS, *GUESTS))
        if file.path.parent == prefix / FOLDER:
            yield from check_carried(file, opened)
            yield from check_search_path(file, "$ORIGIN")
        else:
            yield from check_search_path(file, {**PROGRAMS, **GUESTS}.get(name, ""))
    yield from check_exports(prefix)


def newest(files, family):
    """Returns the newest version of a family that any file needs."""
    versions = {
        v for file in files for _, v in file.versions_needed() if v.partition("_")[0] == family
    }
    return max(versions, key=version_key, default="")


def report(prefix):
    """Yields what the tree requires of a machine, in lines."""
    files = [Elf(path) for path in elf_files(prefix)]
    families = ("GLIBC", "GLIBCXX", "CXXABI", "GCC")
    yield "needs  " + ", ".join(filter(None, (newest(files, family) for family in families)))


def main(prefix, *opened):
    for line in report(prefix):
        print(line)
    found = list(problems(prefix, opened))
    for line in found:
        print(f"PROBLEM  {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
