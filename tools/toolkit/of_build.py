"""Finds the CUDA toolkit with which a build folder was configured."""
import pathlib
import re


def toolkit(build):
    """Returns its folder, which has bin/nvcc; None if the build has no device kernels."""
    if not (pathlib.Path(build) / "lib" / "libplumbline_cuda.so").exists():
        return None
    for path in pathlib.Path(build).glob("CMakeFiles/*/CMakeCUDACompiler.cmake"):
        found = re.search(r'set\(CMAKE_CUDA_COMPILER "(.*)"\)', path.read_text())
        if found:
            return pathlib.Path(found.group(1)).resolve().parent.parent
    return None
