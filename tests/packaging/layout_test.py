"""Tests the archive: the places of files, that it runs from any place, and that programs can link and find it."""

import email
import fnmatch
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import zipfile

from build_products import TINY
from support import (
    BUILD,
    Case,
    PYTHON,
    RECORD,
    ROOT,
    clean_environment,
    expected_findings,
    findings,
    main,
    plumbd,
    product,
    run,
    stated,
    unpack,
)

import documents

OTHER_USER = 65534
C_PROGRAM = """
#include "plumbline/plumbline.h"
int main(void) { plumbline_run_t* run = 0; return plumbline_open(0, &run) != PLUMBLINE_OK; }
"""
CXX_PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(user LANGUAGES C)
find_package(Plumbline REQUIRED)
add_executable(user main.c)
target_link_libraries(user PRIVATE Plumbline::plumbline)
"""


def opened(pid):
    """Returns the files mapped in a process."""
    lines = [
        line.split(None, 5) for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    ]
    return {words[5] for words in lines if len(words) == 6}


class Tree(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="plumb-layout-"))
        os.chmod(cls.folder, 0o755)
        cls.prefix = unpack(cls.folder / "with some spaces")
        cls.plumb = cls.prefix / "bin/plumb"
        cls.expected = expected_findings()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def audited(self, **options):
        done = self.ok(
            run(self.plumb, "audit", RECORD, "--format", "json", "--quiet", **options), 1
        )
        self.assertEqual(findings(done.stdout), self.expected)

    def trained(self, name, python=PYTHON, **environment):
        """Runs a trainer with this tree's package, and judges it with this tree's program."""
        record = self.folder / name
        environment = clean_environment(
            PYTHONPATH=self.prefix / "lib/python3/dist-packages", **environment
        )
        self.ok(
            run(
                python,
                ROOT / "tests/packaging/numpy_trainer.py",
                name,
                record,
                environment=environment,
            )
        )
        done = run(self.plumb, "audit", record, "--format", "json", "--quiet")
        self.assertIn(
            "causality/moe-future-leak", {rule for rule, _, _ in findings(done.stdout)}, stated(done)
        )


class Everywhere(Tree):
    def test_findings_are_those_of_the_build(self):
        self.assertTrue(self.expected)
        self.audited()

    def test_a_path_with_spaces_and_numpy(self):
        self.trained("spaces")

    def test_ld_library_path_elsewhere(self):
        """Libraries with the original names of ours, which cannot be loaded."""
        bogus = self.folder / "bogus"
        bogus.mkdir(exist_ok=True)
        for name in (
            "libprotobuf.so.32",
            "libgrpc.so.29",
            "libgrpc++.so.1.51",
            "libz.so.1",
            "libssl.so.3",
            "libcrypto.so.3",
        ):
            (bogus / name).write_text("no library")
        (bogus / "libgrpc++_reflection.so.1.51").write_text("no library")
        self.audited(environment=clean_environment(LD_LIBRARY_PATH=bogus))
        done = run(
            self.prefix / "bin/plumbd",
            "--version",
            environment=clean_environment(LD_LIBRARY_PATH=bogus),
        )
        self.ok(done)
        # Programs without our libraries (Python's zlib) would fail too, so only those that Python does not need.
        for name in ("libz.so.1", "libssl.so.3", "libcrypto.so.3"):
            (bogus / name).unlink()
        self.trained("elsewhere", LD_LIBRARY_PATH=bogus)

    def test_read_only_and_for_everybody(self):
        if os.geteuid() != 0:
            self.skipTest("another user is needed")
        tree = self.folder / "read only"
        shutil.copytree(self.prefix, tree)
        subprocess.run(["chmod", "-R", "a-w,a+rX", tree], check=True)
        work = self.folder / "theirs"
        work.mkdir()
        os.chown(work, OTHER_USER, OTHER_USER)
        shutil.copytree(RECORD, work / "record")
        subprocess.run(["chmod", "-R", "a+rX", work], check=True)
        trainer = shutil.copy(ROOT / "tests/packaging/numpy_trainer.py", work)
        as_other = {"user": OTHER_USER, "group": OTHER_USER, "extra_groups": [], "cwd": work}
        environment = clean_environment(PYTHONPATH=tree / "lib/python3/dist-packages", HOME=work)
        self.ok(run(PYTHON, trainer, "theirs", work / "run", environment=environment, **as_other))
        self.ok(
            run(
                tree / "bin/plumb",
                "audit",
                work / "run",
                "--quiet",
                environment=environment,
                **as_other,
            ),
            1,
        )

    def test_plumbd_with_reflection_takes_its_own_library(self):
        with plumbd(self.prefix, "--reflection") as (address, pid):
            maps = opened(pid)
            ours = {path for path in maps if path.startswith(str(self.prefix))}
            self.assertTrue(any("reflection" in path for path in ours))
            others = {pathlib.Path(path).name for path in maps - ours if ".so" in path}
            for name in others:  # only the named libraries of the machine
                self.assertRegex(
                    name,
                    r"^(ld-linux.*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|resolv|nss_\w+|anl))\.so",
                )
            self.ok(run(self.plumb, "doctor", "--server", address))


class Linked(Tree):
    def setUp(self):
        self.need("pkg-config")
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="plumb-link-", dir=self.folder))
        (self.work / "main.c").write_text(C_PROGRAM)

    def test_pkg_config(self):
        environment = clean_environment(
            PKG_CONFIG_PATH=self.prefix / "lib/pkgconfig", PLUMBLINE_RECORD=self.work / "record"
        )
        command = "eval cc main.c -o user $(pkg-config --cflags --libs plumbline) && ./user"
        self.ok(run("sh", "-c", command, environment=environment, cwd=self.work))

    def test_cmake_package(self):
        (self.work / "CMakeLists.txt").write_text(CXX_PROJECT)
        self.ok(
            run("cmake", "-S", ".", "-B", "b", f"-DCMAKE_PREFIX_PATH={self.prefix}", cwd=self.work)
        )
        self.ok(run("cmake", "--build", "b", cwd=self.work))
        self.ok(
            run(
                "b/user",
                cwd=self.work,
                environment=clean_environment(PLUMBLINE_RECORD=self.work / "record"),
            )
        )


class Contents(Tree):
    def test_manuals(self):
        pages = {
            path.name.partition(".")[0]: gzip.decompress(path.read_bytes()).decode()
            for path in (self.prefix / "share/man/man1").iterdir()
        }
        for name in ("plumb", "plumbd", "plumb-audit", "plumb-doctor", "plumb-watch"):
            self.assertIn(name, pages)
            self.assertIn(f".TH {name.upper()} ", pages[name])
            self.assertIn(".SH OPTIONS", pages[name].upper())
            self.assertNotIn(str(BUILD), pages[name])

    def test_licences(self):
        folder = self.prefix / "share/doc/plumbline/licenses"
        listed = (folder / "README").read_text()
        for path in (self.prefix / "lib/plumbline").iterdir():
            self.assertIn(path.name, listed)
        self.assertIn("The Plumbline authors", (folder / "plumbline.txt").read_text())
        self.assertIn((ROOT / "LICENSE").read_text(), (folder / "plumbline.txt").read_text())
        for name in ("libgrpc29.txt", "libprotobuf32.txt", "libssl3.txt", "libcli11-dev.txt"):
            self.assertGreater((folder / name).stat().st_size, 200)

    def test_documents_hold_what_they_point_to(self):
        folder = self.prefix / "share/doc/plumbline"
        pages = [folder / "README.md", *(folder / "docs").rglob("*.md")]
        self.assertGreater(len(pages), 50)
        for page in pages:
            for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
                if not re.match(r"[a-z]+:", link):
                    self.assertTrue((page.parent / link).exists(), f"{page}: {link}")
        # The documents that the programs name.
        for name in ("operating", "security", "alerts", "rollout_records", "install"):
            self.assertTrue((folder / f"docs/{name}.md").exists(), name)

    def test_documents_name_files_that_are_there(self):
        """A path in a document is below the folder of README.md, or its page states that it is only in the source."""
        with zipfile.ZipFile(product("*.whl")) as wheel:
            start = "plumbline/share/doc/plumbline/"
            in_wheel = {name[len(start) :] for name in wheel.namelist() if name.startswith(start)}
        listed = self.ok(run("dpkg-deb", "--contents", product("*.deb"))).stdout
        in_deb = set(re.findall(r" \./usr/share/doc/plumbline/(\S+)$", listed, re.M))
        folder = self.prefix / "share/doc/plumbline"
        named = set()
        for page in [folder / "README.md", *(folder / "docs").rglob("*.md")]:
            text = page.read_text()
            note = re.search(r"(?m)^\*Only in the source.*: (.*)\.\*$", text)
            absent = tuple(re.findall("`(.*?)`", note[1])) if note else ()
            for name in documents.named_files(text.replace(note[0], "") if note else text):
                if f"{name}/".startswith(absent):
                    continue
                found = [path.relative_to(folder) for path in folder.glob(name.rstrip("/"))]
                self.assertTrue(found, f"{page}: {name}")
                for path in found:
                    for names in (in_wheel, in_deb):
                        self.assertTrue(any(one.startswith(str(path)) for one in names), f"{page}: {path}")
                named.add(name)
        # The files that users need.
        for name in ("dashboards/grafana/plumbline.json", "dashboards/prometheus/plumbline.rules.yml", "packaging/plumbd.toml",
                     "packaging/plumbd.service", "packaging/Containerfile", "examples/ledger/ledger.toml"):  # fmt: skip
            self.assertIn(name, named)
        for name in ("packaging/kubernetes/sidecar.yaml", "packaging/slurm/prolog.sh", "examples/watch_pytorch/train.py"):
            self.assertTrue((folder / name).exists(), name)

    def test_documents_name_the_packages_as_they_are_called(self):
        names = [product(pattern).name for pattern in ("*.whl", "*.deb", "*.tar.gz")]
        for page in ("README.md", "docs/install.md", "docs/operating.md"):
            text = (ROOT / page).read_text()
            for word in re.findall(r"plumbline[-_][^\s`/]*\.(?:whl|deb|tar\.gz)", text):
                fitting = fnmatch.filter(names, word.replace("VERSION", "*"))
                self.assertEqual(len(fitting), 1, f"{page}: {word} fits {fitting}")
        self.assertIn("pip install plumbline-*.whl", (ROOT / "README.md").read_text())

    def test_documents_name_the_header_of_each_language(self):
        text = (self.prefix / "share/doc/plumbline/docs/instrumenting.md").read_text()
        (names,) = re.findall(r"`(plumbline/\w+\.h)` for C or `(plumbline/\w+\.h)` for C\+\+", text)
        for name, language, status in ((names[0], "c", 0), (names[1], "c++", 0), (names[1], "c", 1)):
            done = run("cc", "-x", language, "-std=c++20" if language == "c++" else "-std=c11", "-fsyntax-only",
                       "-I", self.prefix / "include", "-include", name, "/dev/null")  # fmt: skip
            self.assertEqual(done.returncode, status, f"{name} as {language}: {stated(done)}")

    def test_an_example_runs_where_it_is_installed(self):
        self.need_module("torch")
        record = self.folder / "example"
        trainer = self.prefix / "share/doc/plumbline/examples/moe_pytorch/train.py"
        environment = clean_environment(PYTHONPATH=self.prefix / "lib/python3/dist-packages")
        self.ok(run(PYTHON, trainer, "--run", "example", "--record", record, *TINY, environment=environment))
        self.assertTrue(any(record.rglob("*")))

    def test_versions_of_what_is_carried(self):
        listed = self.ok(run(self.plumb, "doctor", "--libraries")).stdout
        for path in (self.prefix / "lib/plumbline").iterdir():
            self.assertIn(path.name, listed)
        done = self.ok(run("dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", "libssl3"))
        source, version = done.stdout.split()
        self.assertRegex(listed, rf"(?m)^{source} +{re.escape(version)} +libcrypto-plumb")
        self.assertRegex(listed, r"(?m)^nlohmann-json3 .*compiled in")
        built = self.ok(run(BUILD / "bin/plumb", "doctor", "--libraries")).stdout
        self.assertIn("contains no libraries of its own", built)

    def test_metadata_of_the_wheel(self):
        wheel = product("*.whl")
        with zipfile.ZipFile(wheel) as file:
            (name,) = [n for n in file.namelist() if n.endswith("/METADATA")]
            text = email.message_from_bytes(file.read(name))
        self.assertEqual(text["Name"], "plumbline")
        self.assertEqual(text["License"], "Apache-2.0")
        self.assertEqual(text["Author"], "The Plumbline authors")
        self.assertEqual(text["Requires-Python"], ">=3.9")
        self.assertIn("License :: OSI Approved :: Apache Software License", text.get_all("Classifier"))
        self.assertTrue(wheel.name.startswith(f"plumbline-{text['Version']}-py3-none-"), wheel.name)
        code = "import plumbline; print(plumbline.__version__)"
        environment = clean_environment(PYTHONPATH=self.prefix / "lib/python3/dist-packages")
        self.assertEqual(self.ok(run(PYTHON, "-c", code, environment=environment)).stdout.strip(), text["Version"])
        version = self.ok(run(self.plumb, "--version")).stdout.split()[1]
        for pattern in (f"plumbline_{version}_amd64.deb", f"plumbline-{version}-linux-x86_64.tar.gz"):
            self.assertTrue((product("*.deb").parent / pattern).exists(), pattern)

    def test_the_wheel_stays_silent_of_files_next_to_it(self):
        with zipfile.ZipFile(product("*.whl")) as wheel:
            (name,) = [n for n in wheel.namelist() if n.endswith("/METADATA")]
            text = wheel.read(name).decode()
            self.assertIn("plumbline/share/doc/plumbline/docs/install.md", wheel.namelist())
        self.assertNotIn("](", text)

    def test_debian_has_its_documents(self):
        self.need("dpkg-deb")
        listed = self.ok(run("dpkg-deb", "--contents", product("*.deb"))).stdout
        for name in ("copyright", "changelog.gz", "README.md"):
            self.assertIn(f"./usr/share/doc/plumbline/{name}", listed)

    def test_no_path_of_the_build(self):
        for path in self.prefix.rglob("*"):
            if path.is_file() and path.suffix in (
                ".py",
                ".pc",
                ".cmake",
                ".md",
                ".toml",
                ".service",
                "",
            ):
                if path.read_bytes()[:4] != b"\x7fELF":
                    self.assertNotIn(str(BUILD).encode(), path.read_bytes(), path)

    def test_completions(self):
        for program, word in (("plumb", "audit"), ("plumbd", "check-config")):
            for name in (
                f"bash-completion/completions/{program}",
                f"zsh/site-functions/_{program}",
                f"fish/vendor_completions.d/{program}.fish",
            ):
                self.assertIn(word, (self.prefix / "share" / name).read_text())
            self.ok(run("bash", "-n", self.prefix / f"share/bash-completion/completions/{program}"))


class Installed(Case):
    """`cmake --install` of any build, also one with the demo's targets only."""

    def test_whatever_builds_plumb_builds_what_is_installed_with_it(self):
        self.need("ninja")
        requested = run("ninja", "-C", BUILD, "-t", "query", "bin/plumb").stdout
        self.assertTrue(
            "|| bin/plumb-load-check" in requested, "plumb does not depend on plumb-load-check"
        )

    def test_programs_and_libraries_run_where_they_are_put(self):
        with tempfile.TemporaryDirectory(prefix="plumb-install-") as folder:
            self.ok(run("cmake", "--install", BUILD, "--prefix", folder))
            prefix = pathlib.Path(folder)
            for name in (
                "bin/plumb",
                "bin/plumbd",
                "bin/plumb-load-check",
                "lib/libplumbline_agent.so",
                "lib/libplumb_interpose.so",
            ):
                self.assertTrue((prefix / name).exists(), name)
            self.ok(run(prefix / "bin/plumbd", "--version"))
            doctor = run(prefix / "bin/plumb", "doctor")
            self.assertRegex(doctor.stdout, rf"ok +library +{folder}/lib/libplumbline.so")


if __name__ == "__main__":
    main()
