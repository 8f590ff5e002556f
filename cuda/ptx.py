"""Compiles CUDA C to PTX files next to the sources, without a GPU and without a toolkit.

Use: ptx.py FILE.cu...

    python3 -m venv ENV && ENV/bin/pip install nvidia-cuda-nvrtc-cu11==11.8.89
    ENV/bin/python cuda/ptx.py cuda/check/kernels/check.cu cuda/examples/digits/digits.cu

The compiler is deliberately old: a driver accepts PTX of its own version and of older ones. The output of this compiler
(PTX 7.8, for compute capability 7.5) runs with drivers from 520 on, on Turing and newer GPUs.
"""

import ctypes
import sys
from pathlib import Path

OPTIONS = [b"--gpu-architecture=compute_75", b"--std=c++14"]


def compiler():
    """Returns the compiler library of the Python package, or the system's if the package is not installed."""
    for folder in map(Path, sys.path):
        for path in sorted(folder.glob("nvidia/cuda_nvrtc/lib/libnvrtc.so.*")):
            return ctypes.CDLL(str(path))
    return ctypes.CDLL("libnvrtc.so")


def text(nvrtc, program, what):
    """Returns an output of the compiler: `PTX`, or the `ProgramLog` of a failed compilation."""
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    return buffer.value


def ptx(nvrtc, path):
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), path.read_bytes(), path.name.encode(), 0, None, None)
    if nvrtc.nvrtcCompileProgram(program, len(OPTIONS), (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)):
        sys.exit(text(nvrtc, program, "ProgramLog").decode())
    return text(nvrtc, program, "PTX")


def main():
    nvrtc = compiler()
    for path in map(Path, sys.argv[1:]):
        path.with_suffix(".ptx").write_bytes(ptx(nvrtc, path))


if __name__ == "__main__":
    main()
