"""A folder with what the build needs besides a compiler, CMake and CUDA, for machines without a network.

collect() fills one from Debian's packages; cmake_options() and environment() use one.
"""
import os
import pathlib
import re
import shutil
import subprocess

# What is copied whole. A library's other files come by the name that ldd gives.
PACKAGES = ["libcli11-dev", "nlohmann-json3-dev", "libfmt-dev", "zlib1g-dev", "libpng-dev", "libturbojpeg0-dev",
            "catch2", "libopenmpi-dev", "libopenmpi3", "openmpi-bin", "openmpi-common", "libpmix2"]
OPTIONAL = ["libdnnl-dev"]
LEFT_OUT = re.compile(r"/share/(doc|man|info|lintian|bug|java)|/include/oneapi/dnnl/dnnl_sycl|/fortran/|/openmpi/ompi/|"
                      r"\.jar$|/openmpi/.*\.a$|java|oshmem")
# The C library and the compiler's belong to the machine.
SYSTEM = re.compile(r"^(ld-linux.*|linux-vdso.*|lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s|gomp))\.so")


class PrefixError(Exception):
    """One line for the user."""


def installed_files(package):
    done = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    return [pathlib.Path(line) for line in done.stdout.splitlines() if line.startswith("/")]


def inside(path):
    """A path's place in the folder: what /usr and / hold are merged."""
    parts = path.parts[1:]
    return pathlib.Path(*(parts[1:] if parts and parts[0] == "usr" else parts))


def copy(path, folder):
    """Copies a file or link, and what a link leads to."""
    target = folder / inside(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink() or target.exists():
        return
    if not path.is_symlink():
        shutil.copy2(path, target)
        return
    leads_to = path.parent / os.readlink(path)
    real = pathlib.Path(os.path.normpath(leads_to))
    if not real.exists():
        return
    if real.is_dir():
        target.symlink_to(os.path.relpath(folder / inside(real), target.parent))
        return
    copy(real, folder)
    target.symlink_to(os.path.relpath(folder / inside(real), target.parent))


def is_program(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def libraries_of(path):
    """The shared libraries that a program or library loads, the system's left out."""
    done = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False)
    found = re.findall(r"^\s*(\S+) => (/\S+)", done.stdout, re.MULTILINE)
    return [pathlib.Path(place) for name, place in found if not SYSTEM.match(name)]


def collect(folder):
    """Fills `folder`, which must not hold anything yet. Gives the packages that are not installed here."""
    folder = pathlib.Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise PrefixError(f"{folder}: expected an empty or new folder, found files in it")
    if shutil.which("dpkg") is None:
        raise PrefixError("there is no dpkg here: --collect takes the files of Debian's packages")
    copied, missing = [], []
    for package in PACKAGES + OPTIONAL:
        files = installed_files(package)
        if files is None:
            missing.append(package)
            continue
        copied += [path for path in files if (path.is_file() or path.is_symlink())
                   and not LEFT_OUT.search(str(path)) and path.parts[1] != "etc"]
    needed = [package for package in missing if package in PACKAGES]
    if needed:
        raise PrefixError(f"not installed here: {' '.join(needed)} (scripts/setup installs them)")
    folder.mkdir(parents=True, exist_ok=True)
    for path in copied:
        copy(path, folder)
    loaded = {library for path in copied if path.is_file() and is_program(path) for library in libraries_of(path)}
    for path in sorted(loaded):
        copy(path, folder)
    for name in ("mpirun", "mpiexec"):  # Debian's alternatives
        link = folder / "bin" / name
        if not link.exists():
            link.symlink_to("orterun")
    return missing


def library_folder(prefix):
    """Where the folder's libraries are: lib, or lib/<machine> as Debian has it."""
    places = sorted(prefix.glob("lib/*-linux-gnu")) + [prefix / "lib"]
    return places[0]


def header(prefix, name):
    """The folder of a header, or None."""
    found = sorted(prefix.glob(f"include/{name}")) + sorted(prefix.glob(f"lib/**/include/{name}"))
    return found[0].parent if found else None


def cmake_options(prefix):
    """What makes CMake look in the folder first; Open MPI's wrapper compilers, whose paths are fixed, are not used."""
    prefix = pathlib.Path(prefix).resolve()
    if not prefix.is_dir():
        raise PrefixError(f"--prefix: {prefix}: no such folder")
    libraries = library_folder(prefix)
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_LIBRARY_PATH={libraries};{prefix / 'lib'}",
               f"-DCMAKE_INCLUDE_PATH={prefix / 'include'}"]
    mpi = header(prefix, "mpi.h")
    if mpi is not None:
        library = [path for path in (mpi.parent / "lib" / "libmpi.so", libraries / "libmpi.so",
                                     prefix / "lib" / "libmpi.so") if path.exists()]
        if not library:
            raise PrefixError(f"{prefix}: expected libmpi.so beside {mpi}, found none")
        options += ["-DMPI_SKIP_COMPILER_WRAPPER=ON", "-DMPI_CXX_SKIP_MPICXX=ON",
                    "-DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON", f"-DMPI_CXX_HEADER_DIR={mpi}",
                    "-DMPI_CXX_LIB_NAMES=mpi", f"-DMPI_mpi_LIBRARY={library[0]}"]
        if (prefix / "bin" / "mpirun").exists():
            options.append(f"-DMPIEXEC_EXECUTABLE={prefix / 'bin' / 'mpirun'}")
    return options


def environment(prefix, base):
    """`base` with the folder's programs and libraries first, and Open MPI told that it was moved."""
    prefix = pathlib.Path(prefix).resolve()
    result = dict(base)

    def put_first(name, *values):
        old = [result[name]] if result.get(name) else []
        result[name] = os.pathsep.join([str(value) for value in values] + old)

    put_first("LD_LIBRARY_PATH", library_folder(prefix), prefix / "lib")
    if (prefix / "bin" / "orterun").exists():
        put_first("PATH", prefix / "bin")
        result["OPAL_PREFIX"] = str(prefix)
        result["PMIX_INSTALL_PREFIX"] = str(prefix)
        # Plugins for hardware that is not there complain otherwise.
        result["OMPI_MCA_mca_base_component_show_load_errors"] = "0"
    return result
