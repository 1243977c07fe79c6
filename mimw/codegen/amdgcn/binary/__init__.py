"""From text to a code object that HIP loads: LLVM assembles in a process of its own, the rest is written here. `build.py` is the whole."""
