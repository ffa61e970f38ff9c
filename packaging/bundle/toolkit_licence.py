"""Adds the licence of what nvcc compiles into the device library: libdevice's mathematics and the inline functions of
CUDA's headers. No runtime library of NVIDIA is linked (docs/decisions/0089)."""

import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/toolkit"))

from of_build import toolkit  # noqa: E402

NAME = "share/doc/plumbline/licenses/nvidia-cuda-toolkit.txt"
# In wheels, three folders up; then the places of NVIDIA's installers.
PLACES = ("../../nvidia_cuda_nvcc-*.dist-info/licenses/License.txt", "EULA.txt", "LICENSE")


def add_toolkit_licence(build, prefix):
    """Copies the toolkit's licence to `prefix`, if that has the device library. Raises RuntimeError if there is no
    licence."""
    if not (prefix / "lib/libplumbline_cuda.so").exists():
        return
    folder = toolkit(build)
    found = [path for place in PLACES for path in sorted(folder.glob(place))]
    if not found:
        raise RuntimeError(f"no licence of the CUDA toolkit was found: expected {folder}/{PLACES[1]}")
    (prefix / NAME).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(found[0], prefix / NAME)
