"""Makes the Debian package and the archive with CPack, from the bundled tree."""

import email.utils
import gzip
import pathlib
import shutil

from command import run

PACKAGING = pathlib.Path(__file__).resolve().parents[1]
CONTROL = ("conffiles", "postinst", "prerm", "postrm", "triggers")


def run_cpack(work, output, **values):
    text = (PACKAGING / "cpack.cmake.in").read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    config = work / f"cpack-{values['GENERATOR']}.cmake"
    config.write_text(text.replace("@OUTPUT@", str(output)))
    run("cpack", "--config", config, cwd=work)
    shutil.rmtree(output / "_CPack_Packages", ignore_errors=True)


def quoted(*words):
    return " ".join(f'"{word}"' for word in words)


def write_archive(prefix, version, output, work):
    name = f"plumbline-{version}-linux-x86_64"
    run_cpack(
        work,
        output,
        GENERATOR="TGZ",
        VERSION=version,
        FILE_NAME=name,
        PREFIX="/",
        CONTROL="",
        DIRECTORIES=quoted(prefix, "."),
    )
    return output / f"{name}.tar.gz"


def add_debian_documents(folder, version, epoch):
    """Adds what Debian's policy requires of each package."""
    folder.mkdir(parents=True)
    shutil.copyfile(PACKAGING / "debian/copyright", folder / "copyright")
    change = (
        f"plumbline ({version}) unstable; urgency=medium\n\n"
        "  * Made by tools/package. CHANGELOG.md in this folder has the changes.\n\n"
        f" -- The Plumbline authors <plumbline@localhost>  {email.utils.formatdate(epoch)}\n"
    )
    (folder / "changelog.gz").write_bytes(gzip.compress(change.encode(), 9, mtime=0))


def debian_extras(prefix, version, work, epoch):
    """Adds files outside of /usr, and those that only Debian needs."""
    root, control = work / "debian-root", work / "debian-control"
    shutil.rmtree(root, ignore_errors=True)
    shutil.rmtree(control, ignore_errors=True)
    for source, target in (
        (PACKAGING / "plumbd.toml", "etc/plumbline/plumbd.toml"),
        (PACKAGING / "plumbd.service", "usr/lib/systemd/system/plumbd.service"),
        (PACKAGING / "debian/lintian-overrides", "usr/share/lintian/overrides/plumbline"),
        (PACKAGING / "plumbline.sysusers", "usr/lib/sysusers.d/plumbline.conf"),
        (prefix / "share/zsh/site-functions/_plumb", "usr/share/zsh/vendor-completions/_plumb"),
    ):
        if source.exists():
            (root / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, root / target)
    add_debian_documents(root / "usr/share/doc/plumbline", version, epoch)
    control.mkdir()
    for name in CONTROL:
        shutil.copyfile(PACKAGING / "debian" / name, control / name)
        (control / name).chmod(0o644 if name in ("conffiles", "triggers") else 0o755)
    return root, control


def write_deb(prefix, version, output, work, epoch):
    root, control = debian_extras(prefix, version, work, epoch)
    name = f"plumbline_{version}_amd64"
    run_cpack(
        work,
        output,
        GENERATOR="DEB",
        VERSION=version,
        FILE_NAME=name,
        PREFIX="/",
        CONTROL=quoted(*(control / c for c in CONTROL)),
        DIRECTORIES=quoted(prefix, "usr", root, "."),
    )
    return output / f"{name}.deb"
