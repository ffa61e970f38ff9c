"""Every product of a build with device kernels contains them, for all three architectures, with the licence of the code that nvcc compiled in."""

import pathlib
import subprocess
import tarfile
import tempfile
import zipfile

from support import BUILD, Case, archive, main, product, run, unpack

import elf
from toolkit_licence import toolkit

LIBRARY = "libplumbline_cuda.so"
LICENCE = "nvidia-cuda-toolkit.txt"
MOST_BYTES = 12_000_000  # of the library


class DeviceLibrary(Case):
    def names(self):
        """Returns {product: its file names}."""
        with zipfile.ZipFile(product("*.whl")) as wheel, tarfile.open(archive()) as packed:
            deb = run("dpkg-deb", "--contents", product("*.deb")).stdout
            return {"wheel": wheel.namelist(), "archive": packed.getnames(), "deb": deb.splitlines()}

    def test_all_products_hold_it_and_its_terms(self):
        for kind, names in self.names().items():
            for file in (LIBRARY, LICENCE):
                with self.subTest(product=kind, file=file):
                    self.assertEqual(sum(name.endswith(f"/{file}") for name in names), 1)

    def test_it_holds_machine_code_for_three_architectures_and_needs_no_toolkit(self):
        library = unpack(self.folder()) / "lib" / LIBRARY
        self.assertLess(library.stat().st_size, MOST_BYTES)
        needed = elf.Elf(library).needed
        self.assertEqual([name for name in needed if "cuda" in name or "nv" in name], [])
        cuobjdump = toolkit(BUILD) / "bin/cuobjdump"
        if not cuobjdump.exists():
            self.skipTest("the toolkit has no cuobjdump")
        listed = subprocess.run([cuobjdump, "--list-elf", library], capture_output=True, text=True, check=True).stdout
        for architecture in ("sm_80", "sm_90", "sm_100"):
            self.assertIn(f".{architecture}.cubin", listed)

    def folder(self):
        work = tempfile.TemporaryDirectory(prefix="plumb-cuda-")
        self.addCleanup(work.cleanup)
        return pathlib.Path(work.name)


if __name__ == "__main__":
    main()
