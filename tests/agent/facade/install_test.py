"""install_test.py BUILD_DIR: the installed files work for users of pkg-config, CMake and Python.

Installs the component "guest" under a prefix other than the configured one.
"""

import os
import re
import subprocess
import sys
import tempfile

C_PROGRAM = """
#include "plumbline/plumbline.h"
#include <stdio.h>
int main(void) {
  plumbline_run_t* run = NULL;
  printf("%s %s", plumbline_version(), plumbline_status_name(plumbline_open(NULL, &run)));
  return 0;
}
"""
CXX_PROGRAM = """
#include "plumbline/agent.h"
int main() { return plumbline::Run().status() == PLUMBLINE_DISABLED ? 0 : 1; }
"""
CMAKE_PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(Plumbline REQUIRED)
add_executable(user main.cc)
target_compile_features(user PRIVATE cxx_std_20)
target_link_libraries(user PRIVATE Plumbline::plumbline)
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def check_pkg_config(work, environment):
    write(f"{work}/main.c", C_PROGRAM)
    flags = run("pkg-config", "--cflags", "--libs", "plumbline", env=environment).split()
    run("cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"{work}/main.c", "-o",
        f"{work}/user", *flags)  # fmt: skip
    printed = run(f"{work}/user", env={**os.environ, "PLUMBLINE_DISABLE": "1"})
    assert re.fullmatch(r"[0-9.]+~\S+ disabled", printed), printed


def check_cmake(work, prefix):
    os.mkdir(f"{work}/project")
    write(f"{work}/project/main.cc", CXX_PROGRAM)
    write(f"{work}/project/CMakeLists.txt", CMAKE_PROJECT)
    run("cmake", "-G", "Ninja", "-S", f"{work}/project", "-B", f"{work}/project/build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", f"{work}/project/build")
    run(f"{work}/project/build/user")


def check_python(prefix, libdir):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PLUMBLINE_")}
    environment["PYTHONPATH"] = f"{prefix}/lib/python3/dist-packages"
    path = run(sys.executable, "-c",
               "import plumbline; from plumbline import _library; plumbline.version(); "
               "print(_library.load().path)", env=environment, cwd=prefix)  # fmt: skip
    assert os.path.samefile(path, f"{libdir}/libplumbline.so"), path


def main(build):
    with tempfile.TemporaryDirectory() as work:
        prefix = f"{work}/prefix"
        run("cmake", "--install", build, "--component", "guest", "--prefix", prefix)
        config = run("find", prefix, "-name", "plumbline.pc")
        libdir = os.path.dirname(os.path.dirname(config))
        assert os.path.exists(f"{prefix}/include/plumbline/agent.h")
        for name in os.listdir(f"{build}/lib"):  # and the device kernels, if they were built
            if name.startswith("libplumbline"):
                assert os.path.exists(f"{libdir}/{name}"), name
        environment = {**os.environ, "PKG_CONFIG_PATH": os.path.dirname(config)}
        check_pkg_config(work, environment)
        check_cmake(work, prefix)
        check_python(prefix, libdir)


main(sys.argv[1])
