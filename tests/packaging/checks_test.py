"""Tests that tools/package refuses faulty inputs and that its changes to libraries have their effect, on small libraries built here."""

import ctypes
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

import support
from support import Case, ROOT, UNPACKED, clean_environment, main, run, stated

import checks
from elf import Elf, elf_hash
from relink import NoRoom, relink


WAITS = "#include <condition_variable>\nvoid f(std::condition_variable& c,std::unique_lock<std::mutex>& l){c.wait(l);}"
COPIES = """#include <string.h>
void use(char*);
__attribute__((weak)) void use(char* text) { text[0] = 0; }
void copy(const char* from) { char text[64]; strcpy(text, from); use(text); }
"""


def prefix():
    return next(UNPACKED.glob("plumbline-*"))


def older_libstdcxx(folder):
    """Returns a copy whose versions from GLIBCXX_3.4.30 on have names that no file requests."""
    path = pathlib.Path(folder) / "libstdc++.so.6"
    done = run("c++", "-print-file-name=libstdc++.so.6")
    data = bytearray(pathlib.Path(done.stdout.strip()).resolve().read_bytes())
    for number in range(30, 40):
        name = f"GLIBCXX_3.4.{number}"
        at = data.find(name.encode() + b"\0")
        if at >= 0:
            data[at : at + len(name)] = name.replace("GLIBCXX", "REMOVED").encode()
        hashed = data.find(struct.pack("<I", elf_hash(name)))
        if hashed >= 0:
            struct.pack_into("<I", data, hashed, elf_hash(name.replace("GLIBCXX", "REMOVED")))
    path.write_bytes(data)
    return path


class Small(Case):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="plumb-checks-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def library(self, name, text, *flags, language="c"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        compiler = "cc" if language == "c" else "c++"
        done = subprocess.run(
            [
                compiler,
                "-shared",
                "-fPIC",
                "-x",
                language,
                "-",
                "-x",
                "none",
                "-o",
                path,
                f"-Wl,-soname,{name}",
                *flags,
            ],
            input=text,
            text=True,
            capture_output=True,
        )
        self.assertEqual(done.returncode, 0, stated(done))
        return path


class Refused(Small):
    def only(self, found, *words):
        found = list(found)
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_a_newer_glibc(self):
        path = self.library(
            "libnew-plumb0.so",
            "unsigned f(void);unsigned arc4random(void);unsigned f(void){return arc4random();}",
        )
        self.only(checks.check_versions(Elf(path)), "GLIBC_2.36", "arc4random")
        self.assertEqual(checks.newest([Elf(path)], "GLIBC"), "GLIBC_2.36")

    def test_versions_by_number(self):
        for version in (
            "GLIBC_2.35",
            "GLIBC_2.100",
            "GLIBCXX_3.4.30",
            "CXXABI_1.3.14",
            "GLIBC_ABI_DT_RELR",
            "GLIBC_PRIVATE",
            "OTHER_1",
        ):
            self.assertTrue(checks.too_new(version), version)
        for version in (
            "GLIBC_2.2.5",
            "GLIBC_2.34",
            "GLIBCXX_3.4.29",
            "GLIBCXX_3.4.9",
            "CXXABI_1.3.13",
            "GCC_3.4",
        ):
            self.assertFalse(checks.too_new(version), version)

    def test_what_an_older_libstdcxx_lacks(self):
        path = self.library("libwait-plumb0.so", WAITS, language="c++")
        self.only(checks.check_versions(Elf(path)), "GLIBCXX_3.4.30", "condition_variable4wait")

    def test_what_is_not_hardened(self):
        bare = self.library("libbare-plumb0.so", COPIES, "-O2", "-fno-stack-protector", "-U_FORTIFY_SOURCE",
                            "-Wl,-z,norelro", "-Wl,-z,lazy", "-Wl,-z,execstack")  # fmt: skip
        found = "\n".join(checks.check_hardening(Elf(bare), True))
        for word in ("RELRO", "executable stack", "-z now", "stack canaries", "checked copies"):
            self.assertIn(word, found)
        self.assertNotIn("PIE", found)
        fixed = self.folder / "fixed"
        done = run("cc", "-no-pie", "-x", "c", "-", "-o", fixed, input="int main(void){return 0;}")
        self.assertEqual(done.returncode, 0, stated(done))
        self.assertIn("expected PIE", "\n".join(checks.check_hardening(Elf(fixed), True)))
        # For third-party libraries, only the effects of Debian's flags are required.
        lazy = self.library("liblazy-plumb0.so", COPIES, "-fno-stack-protector", "-Wl,-z,relro", "-Wl,-z,lazy")
        self.assertEqual(list(checks.check_hardening(Elf(lazy), False)), [])

    def test_the_flags_of_a_release_are_those_that_are_checked(self):
        (self.folder / "main.c").write_text(COPIES + "int main(int n, char** v) { copy(v[0]); return n; }")
        (self.folder / "CMakeLists.txt").write_text(
            f"cmake_minimum_required(VERSION 3.24)\nproject(small LANGUAGES C CXX)\n"
            f"set(CMAKE_POSITION_INDEPENDENT_CODE ON)\ninclude({ROOT}/cmake/PlumblineHarden.cmake)\n"
            "add_executable(small main.c)\nadd_library(part SHARED main.c)\n"
        )
        preset = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
        (release,) = [one["cacheVariables"] for one in preset if one["name"] == "release"]
        flags = [f"-D{name}={value}" for name, value in release.items()]
        self.ok(run("cmake", "-S", self.folder, "-B", self.folder / "b", *flags))
        self.ok(run("cmake", "--build", self.folder / "b"))
        for name in ("small", "libpart.so"):
            self.assertEqual(list(checks.check_hardening(Elf(self.folder / "b" / name), True)), [])

    def test_a_library_that_none_carries(self):
        path = self.library(
            "libneeds-plumb0.so",
            "unsigned long zlibCompileFlags(void);unsigned long g(void){return zlibCompileFlags();}",
            "-lz",
        )
        self.only(checks.check_needed(Elf(path), set()), "libz.so.1")
        self.assertEqual(list(checks.check_needed(Elf(path), {"libz.so.1"})), [])

    def test_a_name_that_another_may_have(self):
        path = self.library("libz.so.1", "int f(void){return 1;}")
        self.only(checks.check_carried(Elf(path), ()), "no name of its own")
        self.assertEqual(list(checks.check_carried(Elf(path), ("libz.so.1",))), [])

    def test_symbols_of_the_whole_process(self):
        text = "template <class T> struct A { static int x; }; template <class T> int A<T>::x; int* f() { return &A<int>::x; }"
        path = self.library("libunique-plumb0.so", text, language="c++")
        self.only(checks.check_carried(Elf(path), ()), "STB_GNU_UNIQUE")
        self.assertEqual(Elf(path).weaken_unique_symbols(), 1)
        self.assertEqual(list(checks.check_carried(Elf(path), ())), [])
        self.assertIn("_ZN1AIiE1xE", {s.name for s in Elf(path).symbols() if s.binding == 2})

    def test_a_runpath_which_the_environment_overrules(self):
        path = self.library(
            "librun-plumb0.so",
            "int f(void){return 1;}",
            "-Wl,-rpath,$ORIGIN",
            "-Wl,--enable-new-dtags",
        )
        self.only(checks.check_search_path(Elf(path), "$ORIGIN"), "RUNPATH")

    def test_a_wheel_that_is_too_large(self):
        path = self.folder / "plumbline.whl"
        with open(path, "wb") as file:
            file.truncate(checks.WHEEL_BYTES + 1)
        self.only(checks.check_wheel(path), f"{checks.WHEEL_BYTES / 1e6:.1f} MB")

    def test_exports_and_missing_parts(self):
        copy = self.folder / "prefix"
        shutil.copytree(prefix() / "lib", copy / "lib", ignore=shutil.ignore_patterns("python3"))
        self.library(
            "libplumbline.so", "int plumbline_open(void){return 1;}int stranger(void){return 2;}"
        )
        shutil.copy2(self.folder / "libplumbline.so", copy / "lib/libplumbline.so")
        found = "\n".join(checks.problems(copy, ("libgrpc++_reflection.so.1.51",)))
        self.assertIn("stranger", found)
        self.assertIn("bin/plumb is missing", found)

    def test_the_whole_tool_states_so_and_fails(self):
        copy = self.folder / "prefix"
        shutil.copytree(prefix() / "lib/plumbline", copy / "lib/plumbline")
        done = run("/usr/bin/python3", checks.__file__, copy)
        self.assertEqual(done.returncode, 1)
        self.assertIn("PROBLEM  bin/plumb is missing", done.stdout)


class Accepted(Case):
    def test_what_is_packed(self):
        build_opens = [
            p.name for p in (prefix() / "lib/plumbline").iterdir() if "-plumb" not in p.name
        ]
        self.assertEqual(list(checks.problems(prefix(), build_opens)), [])
        self.assertEqual(len(build_opens), 1, "only the library that plumbd opens keeps its name")

    def test_it_runs_with_an_older_libstdcxx(self):
        """This machine's library, without the newest versions of its symbols: those of GCC 12."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="plumb-older-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        library = older_libstdcxx(folder)
        environment = clean_environment(LD_LIBRARY_PATH=folder)
        refused = folder / "refused"
        text = WAITS + "\nint main(int n, char**) { std::mutex m; std::unique_lock<std::mutex> l(m); std::condition_variable c; if (n > 1) f(c, l); }"
        self.ok(run("c++", "-x", "c++", "-", "-o", refused, input=text))
        self.assertIn("GLIBCXX_3.4.30' not found", run(refused, environment=environment).stderr)
        for name in ("plumb", "plumbd"):
            self.ok(run(prefix() / "bin" / name, "--version", environment=environment))
        with support.plumbd(prefix(), environment=environment) as (address, pid):
            self.assertIn(str(library), pathlib.Path(f"/proc/{pid}/maps").read_text())
            self.ok(run(prefix() / "bin/plumb", "doctor", "--server", address, environment=environment))


class Relinked(Small):
    def setUp(self):
        super().setUp()
        self.low = self.library("liblow.so", "int low(void){return 41;}")
        self.high = self.library(
            "libhigh.so", "int low(void);int high(void){return low()+1;}", "-L.", f"{self.low}"
        )

    def test_new_names_load_and_nothing_else_changes(self):
        before = [(s.name, s.binding, s.version) for s in Elf(self.high).symbols()]
        relink(self.low, {}, "$ORIGIN", "liblow-plumb1.so")
        relink(self.high, {"liblow.so": "liblow-plumb1.so"}, "$ORIGIN", "libhigh-plumb2.so")
        self.low.rename(self.folder / "liblow-plumb1.so")
        file = Elf(self.high)
        self.assertEqual(
            (file.soname, file.search_path, file.has_runpath),
            ("libhigh-plumb2.so", "$ORIGIN", False),
        )
        self.assertIn("liblow-plumb1.so", file.needed)
        self.assertEqual([(s.name, s.binding, s.version) for s in file.symbols()], before)
        self.assertEqual(ctypes.CDLL(str(self.high)).high(), 42)

    def test_a_wait_requests_the_version_that_gcc_11_has_too(self):
        path = self.library("libwait.so", WAITS, language="c++")
        relink(path, {}, "$ORIGIN", "libwait-plumb1.so")
        self.assertEqual(list(checks.check_versions(Elf(path))), [])
        (wait,) = [s for s in Elf(path).symbols() if "condition_variable4wait" in s.name]
        self.assertEqual(wait.version, "GLIBCXX_3.4.11")
        ctypes.CDLL(str(path), mode=os.RTLD_NOW)  # resolves its symbols

    def test_no_room(self):
        path = self.library(
            "libbare.so",
            "int f(void){return 1;}",
            "-Wl,--build-id=none",
            "-nostartfiles",
            "-fcf-protection=none",
            "-nostdlib",
        )
        before = path.read_bytes()
        with self.assertRaisesRegex(NoRoom, "program header"):
            relink(path, {}, "$ORIGIN", "libother.so")
        self.assertEqual(path.read_bytes(), before)


if __name__ == "__main__":
    main()
