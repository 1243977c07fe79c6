"""Code objects: descriptors bit for bit as LLVM's, what is written reads back, by us and by llvm-readelf."""

from __future__ import annotations

import itertools
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimw.codegen.amdgcn.binary import message_pack
from mimw.codegen.amdgcn.binary.assemble import assemble, disassemble
from mimw.codegen.amdgcn.binary.code_object import KernelArg, KernelCode, read, write
from mimw.codegen.amdgcn.binary.elf import Elf
from mimw.codegen.amdgcn.binary.kernel_descriptor import KernelDescriptor

TARGETS = ("gfx942", "gfx950")
ARGS = [KernelArg("x_ptr", 0, 8, "global_buffer"), KernelArg("n", 8, 4, "by_value")]


def directives(name: str, d: KernelDescriptor) -> str:
    """The directives that make LLVM write the same descriptor."""
    return f"""
.rodata
.p2align 6
.amdhsa_kernel {name}
  .amdhsa_group_segment_fixed_size {d.lds_bytes}
  .amdhsa_private_segment_fixed_size {d.scratch_bytes}
  .amdhsa_enable_private_segment {int(d.scratch_bytes > 0)}
  .amdhsa_kernarg_size {d.kernarg_bytes}
  .amdhsa_user_sgpr_count 2
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_x {int("x" in d.workgroup_ids)}
  .amdhsa_system_sgpr_workgroup_id_y {int("y" in d.workgroup_ids)}
  .amdhsa_system_sgpr_workgroup_id_z {int("z" in d.workgroup_ids)}
  .amdhsa_system_vgpr_workitem_id {d.workitem_dims - 1}
  .amdhsa_next_free_vgpr {d.total_vgprs}
  .amdhsa_accum_offset {d.accum_offset}
  .amdhsa_next_free_sgpr {d.sgprs}
  .amdhsa_reserve_vcc 1
  .amdhsa_float_denorm_mode_32 {d.denorm_32}
  .amdhsa_float_denorm_mode_16_64 {d.denorm_16_64}
  .amdhsa_ieee_mode {int(d.ieee_mode)}
  .amdhsa_dx10_clamp {int(d.dx10_clamp)}
  .amdhsa_tg_split {int(d.tg_split)}
.end_amdhsa_kernel
"""


def kernel_text(name: str, body: str = "  s_endpgm\n") -> str:
    return f".text\n.globl {name}\n.p2align 8\n.type {name},@function\n{name}:\n{body}.L{name}_end:\n.size {name}, .L{name}_end-{name}\n"


DESCRIPTORS = [
    KernelDescriptor(vgprs=v, agprs=a, sgprs=s)
    for v, a, s in [
        (1, 0, 1),
        (8, 0, 10),
        (9, 0, 11),
        (16, 0, 26),
        (17, 16, 27),
        (128, 128, 42),
        (256, 256, 96),
        (255, 0, 102),
    ]
] + [
    KernelDescriptor(lds_bytes=65536, kernarg_bytes=28, workgroup_ids="xyz", workitem_dims=3),
    KernelDescriptor(scratch_bytes=64, workgroup_ids="", workitem_dims=2),
    KernelDescriptor(workgroup_ids="xz", kernarg_bytes=4096, agprs=1, vgprs=3),
    KernelDescriptor(workgroup_ids="y", lds_bytes=4),
]


@pytest.mark.parametrize("target", TARGETS)
def test_descriptors_equal_llvms_bit_for_bit(target: str) -> None:
    text = "".join(kernel_text(f"k{i}") for i in range(len(DESCRIPTORS)))
    text += "".join(directives(f"k{i}", d) for i, d in enumerate(DESCRIPTORS))
    rodata = Elf(assemble(text, target).object).section(".rodata")
    assert rodata is not None
    assert len(rodata.data) == 64 * len(DESCRIPTORS)
    for i, d in enumerate(DESCRIPTORS):
        # The entry offset is a relocation in LLVM's object.
        assert d.pack(0).hex(" ", 4) == rodata.data[64 * i : 64 * i + 64].hex(" ", 4), f"descriptor {i}"


@pytest.mark.parametrize("modes", list(itertools.product((False, True), (False, True), (False, True), (0, 3))))
def test_modes_equal_llvms(modes: tuple[bool, bool, bool, int]) -> None:
    d = KernelDescriptor()
    d.ieee_mode, d.dx10_clamp, d.tg_split, d.denorm_32 = modes
    rodata = Elf(assemble(kernel_text("k") + directives("k", d), "gfx950").object).section(".rodata")
    assert rodata is not None
    assert d.pack(0) == rodata.data


@pytest.mark.parametrize("d", DESCRIPTORS)
def test_descriptor_reads_back_as_granted(d: KernelDescriptor) -> None:
    found, entry = KernelDescriptor.unpack(d.pack(-1024))
    assert entry == -1024
    assert (found.lds_bytes, found.scratch_bytes, found.kernarg_bytes) == (
        d.lds_bytes,
        d.scratch_bytes,
        d.kernarg_bytes,
    )
    assert (found.workgroup_ids, found.workitem_dims) == (d.workgroup_ids, d.workitem_dims)
    assert found.vgprs >= d.vgprs
    assert found.accum_offset == d.accum_offset
    assert found.sgprs >= d.sgprs
    assert found.granted_vgprs == d.granted_vgprs
    assert found.pack(-1024) == d.pack(-1024)


def test_what_the_hardware_does_not_have_is_refused() -> None:
    for d in (KernelDescriptor(vgprs=257), KernelDescriptor(agprs=257), KernelDescriptor(sgprs=103)):
        with pytest.raises(ValueError, match="are more than 256, 256 and 102"):
            d.pack(0)
    with pytest.raises(ValueError, match="workgroup ids"):
        KernelDescriptor(workgroup_ids="zx").pack(0)


def test_initial_registers() -> None:
    d = KernelDescriptor(workgroup_ids="xz")
    assert d.initial_sgprs() == {"kernarg_segment_ptr": (0, 2), "workgroup_id_x": (2, 1), "workgroup_id_z": (3, 1)}
    d.properties |= 2  # the dispatch packet's pointer stands before the arguments'
    d.user_sgprs, d.preload = 7, (3, 0)
    assert d.initial_sgprs()["dispatch_ptr"] == (0, 2)
    assert d.initial_sgprs()["kernarg_segment_ptr"] == (2, 2)
    assert d.initial_sgprs()["preloaded_kernargs"] == (4, 3)
    assert d.initial_sgprs()["workgroup_id_x"] == (7, 1)


@pytest.mark.parametrize(
    ("vgprs", "agprs", "waves"), [(1, 0, 8), (64, 0, 8), (65, 0, 7), (128, 0, 4), (256, 0, 2), (256, 256, 1)]
)
def test_waves_per_simd(vgprs: int, agprs: int, waves: int) -> None:
    assert KernelDescriptor(vgprs=vgprs, agprs=agprs).waves_per_simd == waves


def two_kernels(target: str) -> bytes:
    text = kernel_text("first", "  s_nop 3\n  s_endpgm\n") + kernel_text("second", "  s_nop 5\n  s_nop 6\n  s_endpgm\n")
    done = assemble(text, target)
    kernels = [
        KernelCode(name, *done.symbols[name], descriptor, ARGS, max_threads=128 * n)
        for n, (name, descriptor) in enumerate(
            [
                ("first", KernelDescriptor(kernarg_bytes=12)),
                ("second", KernelDescriptor(lds_bytes=6144, agprs=16, vgprs=40)),
            ],
            1,
        )
    ]
    return write(target, done.code, kernels)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_written_reads_back(target: str) -> None:
    code = read(two_kernels(target))
    assert (code.target, code.version) == (target, 5)
    assert list(code.kernels) == ["first", "second"]
    first, second = code.kernels.values()
    assert (first.size, second.size) == (8, 12)
    assert second.entry == first.entry + 256
    assert first.entry % 256 == 0
    assert (first.max_threads, second.max_threads) == (128, 256)
    assert (second.descriptor.lds_bytes, second.descriptor.accum_offset) == (6144, 40)
    assert [(a.name, a.offset, a.size, a.kind) for a in first.args] == [
        (a.name, a.offset, a.size, a.kind) for a in ARGS
    ]
    assert first.descriptor.kernarg_bytes == 12
    start = second.entry - code.text_address
    assert [i.text for i in disassemble(code.text[start : start + second.size], target)] == [
        "s_nop 5",
        "s_nop 6",
        "s_endpgm",
    ]
    # The prefetcher may run on behind the last instruction.
    assert code.text[start + second.size :] == struct.pack("<I", 0xBF800000) * 64
    assert code.bytes_at(second.entry, 4) == struct.pack("<I", 0xBF800005)
    with pytest.raises(ValueError, match="loads no"):
        code.bytes_at(1 << 20, 4)


def test_flags_and_segments_are_as_the_loader_wants_them() -> None:
    for target, flags in (("gfx942", 0x54C), ("gfx950", 0x54F)):
        file = Elf(two_kernels(target))
        assert (file.flags, file.type, file.machine, file.abi, file.abi_version) == (flags, 3, 224, 64, 3)
        # As LLVM's own object says.
        assert Elf(assemble("s_nop 0\n", target).object).flags == flags
        pages = [range(s.address // 4096, (s.address + s.size - 1) // 4096 + 1) for s in file.segments]
        assert not set(pages[0]) & set(pages[1]) and not set(pages[1]) & set(pages[2])
        assert [s.executable for s in file.segments] == [False, True, False]


@pytest.mark.skipif(shutil.which("llvm-readelf") is None, reason="there is no llvm-readelf on this machine")
@pytest.mark.parametrize("target", TARGETS)
def test_readelf_reads_it(target: str, tmp_path: Path) -> None:
    path = tmp_path / "kernels.hsaco"
    path.write_bytes(two_kernels(target))
    command = ["llvm-readelf", "-h", "-l", "-S", "--dyn-syms", "--symbols", "--notes", "--hash-table", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "warning" not in done.stderr
    assert f"amdhsa.target:   amdgcn-amd-amdhsa--{target}" in done.stdout
    assert ".max_flat_workgroup_size: 256" in done.stdout
    assert "HashTable {" in done.stdout
    assert done.stdout.count("OBJECT  GLOBAL PROTECTED   5 second.kd") == 2
    assert done.stdout.count("FUNC    GLOBAL PROTECTED   6 second\n") == 2


def test_kernels_must_lie_in_the_code() -> None:
    for offset, size in ((4, 4), (256, 4), (0, 12), (0, 0)):
        with pytest.raises(ValueError, match="kernel 'k'"):
            write("gfx942", bytes(8), [KernelCode("k", offset, size, KernelDescriptor())])


def test_other_files_are_refused() -> None:
    with pytest.raises(ValueError, match="not a 64-bit little-endian ELF file"):
        read(b"#!/bin/sh\n")
    with pytest.raises(ValueError, match="must be linked first"):
        read(assemble(kernel_text("k"), "gfx942").object)
    with pytest.raises(ValueError, match="no code object of AMD's"):
        read(Path("/proc/self/exe").read_bytes())
    whole = two_kernels("gfx942")
    with pytest.raises(ValueError, match="cut off"):
        read(whole[:-100])
    with pytest.raises(ValueError, match="unknown machine 0x2"):
        read(whole[:48] + b"\x02" + whole[49:])


def values() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=40)
    return st.recursive(
        leaves, lambda v: st.lists(v, max_size=20) | st.dictionaries(st.text(max_size=4), v, max_size=20)
    )


@given(values())
def test_message_pack_round_trip(value: Any) -> None:
    data = message_pack.pack(value)
    found = message_pack.unpack(data)
    assert found == value
    assert type(found) is type(value)
    for cut in range(0, len(data), max(1, len(data) // 8)):
        with pytest.raises(ValueError, match="cut off"):
            message_pack.unpack(data[:cut])


@pytest.mark.parametrize("size", [15, 16, 31, 32, 255, 256, 65535, 65536])
def test_message_pack_sizes(size: int) -> None:
    for value in ("x" * size, list(range(size)), {str(i): i for i in range(size)}):
        assert message_pack.unpack(message_pack.pack(value)) == value


def test_message_pack_of_others() -> None:
    assert message_pack.unpack(bytes.fromhex("93 cb 3ff8000000000000 ca 3fc00000 c4 02 0102")) == [
        1.5,
        1.5,
        b"\x01\x02",
    ]
    with pytest.raises(TypeError, match="no MessagePack form for a set"):
        message_pack.pack({1})
    with pytest.raises(TypeError, match="more than 64 bits"):
        message_pack.pack(1 << 64)
    with pytest.raises(ValueError, match="type 0xd4 is not known"):
        message_pack.unpack(b"\xd4\x01\x02")
