"""Finds the toolkit's programs, and the machine code in the objects of a build."""
import os
import pathlib
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def nvcc():
    """Returns the path of nvcc, in CMake's search order; None if not found."""
    found = os.environ.get("CUDACXX") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if pathlib.Path(found).exists():
        return pathlib.Path(found)
    kept = subprocess.run([ROOT / "tools" / "toolkit" / "install", "--where"], text=True,
                          stdout=subprocess.PIPE, check=False)
    return pathlib.Path(kept.stdout.strip(), "bin", "nvcc") if kept.returncode == 0 else None


def program(name):
    """Returns the path of cuobjdump or nvdisasm, next to nvcc; None if it is not there."""
    compiler = nvcc()
    path = compiler and compiler.with_name(name)
    return path if path and path.exists() else None


def extract(build, source, architectures, folder):
    """Writes FOLDER/<name>_<architecture>.cubin of a source, from its object in `build`."""
    source = pathlib.Path(source)
    built = pathlib.Path(build, "kernels", "CMakeFiles", "plumb_kernels.dir",
                         source.relative_to("kernels")).resolve()
    built = built.with_name(built.name + ".o")
    if not built.exists():
        raise FileNotFoundError(f"{built}: expected the object of {source}, built with a CUDA toolkit")
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([program("cuobjdump"), "-xelf", "all", built], check=True, cwd=work,
                       stdout=subprocess.DEVNULL)
        for architecture in architectures:
            (found,) = pathlib.Path(work).glob(f"*.sm_{architecture}.cubin")
            shutil.copyfile(found, pathlib.Path(folder, f"{source.stem}_{architecture}.cubin"))
