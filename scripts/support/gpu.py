"""What gpu-check asks of the machine: the GPU by the driver's library, and libraries that pip installed."""
import ctypes
import importlib.util
import pathlib
import re
import shutil
import subprocess


class NoGpu(Exception):
    """Why CUDA cannot be used here."""


COMPUTE_MAJOR, COMPUTE_MINOR = 75, 76  # CUdevice_attribute
NO_ERROR = 0


def find_gpu():
    """The first GPU, as the driver describes it. Throws NoGpu."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise NoGpu("the driver's libcuda.so.1 is not there") from None

    def call(name, *arguments):
        status = getattr(cuda, name)(*arguments)
        if status != NO_ERROR:
            raise NoGpu(f"{name} says {status}")

    count, major, minor, version = (ctypes.c_int() for _ in range(4))
    device, memory, text = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        raise NoGpu("the driver sees none")
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDeviceGetName", text, 256, device)
    call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    call("cuDeviceGetAttribute", ctypes.byref(major), COMPUTE_MAJOR, device)
    call("cuDeviceGetAttribute", ctypes.byref(minor), COMPUTE_MINOR, device)
    call("cuDriverGetVersion", ctypes.byref(version))
    return {"name": text.value.decode(), "count": count.value, "memory_bytes": memory.value,
            "compute_capability": f"{major.value}.{minor.value}",
            "driver_cuda": f"{version.value // 1000}.{version.value % 1000 // 10}"}


def first_line(*command, pattern=r"(.+)", **options):
    """What of a program's output matches, or None where it does not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(pattern, done.stdout + done.stderr)
    return found.group(1).strip() if found and done.returncode == 0 else None


def find_nvcc():
    return shutil.which("nvcc") or next((str(path) for path in [pathlib.Path("/usr/local/cuda/bin/nvcc")]
                                         if path.exists()), None)


def pip_libraries():
    """The folders lib of NVIDIA's Python packages, and include of cuDNN and of cuBLAS (PyTorch brings them with it)."""
    found = importlib.util.find_spec("nvidia")
    roots = [pathlib.Path(place) for place in found.submodule_search_locations] if found else []
    libraries = [path for root in roots for path in sorted(root.glob("*/lib"))]
    cudnn, cublas = ([path.parent for root in roots for path in sorted(root.glob(f"*/include/{name}"))]
                     for name in ("cudnn.h", "cublas_v2.h"))
    return libraries, cudnn, cublas


def pip_options(build):
    """CMake's options for cuDNN and cuBLAS of Python packages, whose files lack the names that linkers look for:
    links in the build folder supply them. Used where the system has no cudnn.h."""
    nvcc = find_nvcc()
    toolkit = pathlib.Path(nvcc).resolve().parent.parent if nvcc else pathlib.Path("/usr/local/cuda")
    folders = [toolkit / "include", *toolkit.glob("targets/*/include"), pathlib.Path("/usr/include"),
               *pathlib.Path("/usr/include").glob("*-linux-gnu")]

    def has_header(name):
        return any((folder / name).exists() for folder in folders)

    if has_header("cudnn.h"):
        return []
    libraries, cudnn, cublas = pip_libraries()
    if not cudnn:
        return []
    headers = cudnn[:1] + ([] if has_header("cublas_v2.h") else cublas[:1])
    links = pathlib.Path(build) / "pip-libraries"
    links.mkdir(parents=True, exist_ok=True)
    for folder in libraries:
        for path in folder.glob("libcu*.so.*"):
            link = links / (path.name.split(".so.")[0] + ".so")
            link.unlink(missing_ok=True)
            link.symlink_to(path)
    rpath = ";".join(str(folder) for folder in libraries)
    return [f"-DPD_CUDNN_INCLUDE_DIR={';'.join(str(folder) for folder in headers)}",
            f"-DPD_CUDNN_LIBRARY={links / 'libcudnn.so'}", f"-DCMAKE_BUILD_RPATH={rpath}"] + ([] if has_cublas(toolkit) else
                                               [f"-DCUDA_cublas_LIBRARY={links / 'libcublas.so'}",
                                                f"-DCUDA_cublasLt_LIBRARY={links / 'libcublasLt.so'}"])


def has_cublas(toolkit):
    return any(toolkit.glob("lib64/libcublas.so")) or any(toolkit.glob("targets/*/lib/libcublas.so"))
