"""Which CUDA toolkit a build folder was configured with."""
import pathlib
import re


def toolkit(build):
    """Its folder, below which bin/nvcc lies; None: the build has no device kernels."""
    if not (pathlib.Path(build) / "lib" / "libplumbline_cuda.so").exists():
        return None
    for path in pathlib.Path(build).glob("CMakeFiles/*/CMakeCUDACompiler.cmake"):
        found = re.search(r'set\(CMAKE_CUDA_COMPILER "(.*)"\)', path.read_text())
        if found:
            return pathlib.Path(found.group(1)).resolve().parent.parent
    return None
