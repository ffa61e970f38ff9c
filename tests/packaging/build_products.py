"""build_products.py: makes the inputs of the other tests, once: the three products, the archive unpacked, a record."""

import shutil
import subprocess
import sys

from support import (
    BUILD,
    PRODUCTS,
    PYTHON,
    RECORD,
    ROOT,
    UNPACKED,
    clean_environment,
    stated,
    run,
    unpack,
)

TINY = (
    "--layers",
    "2",
    "--dim",
    "16",
    "--experts",
    "8",
    "--batch",
    "4",
    "--seq",
    "64",
    "--steps",
    "12",
    "--quiet",
)


def package():
    print(
        subprocess.run(
            [ROOT / "tools/package", "--build", BUILD, "--output", PRODUCTS],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )


def unpack_archive():
    shutil.rmtree(UNPACKED, ignore_errors=True)
    unpack(UNPACKED)


def record():
    """Records the example if there is PyTorch, otherwise the trainer that needs only numpy; with the build's library."""
    shutil.rmtree(RECORD, ignore_errors=True)
    environment = clean_environment(PYTHONPATH=BUILD / "python")
    done = run(
        PYTHON,
        ROOT / "examples/moe_pytorch/train.py",
        "--router",
        "score-drop",
        "--run",
        "packaged",
        "--record",
        RECORD,
        *TINY,
        environment=environment,
    )
    if done.returncode != 0:
        done = run(
            PYTHON,
            ROOT / "tests/packaging/numpy_trainer.py",
            "packaged",
            RECORD,
            environment=environment,
        )
    if done.returncode != 0:
        sys.exit(f"no record was made: {stated(done)}")


if __name__ == "__main__":
    try:
        package()
    except subprocess.CalledProcessError as error:
        sys.exit(f"tools/package ended with {error.returncode}:\n{error.stdout}{error.stderr}")
    unpack_archive()
    record()
