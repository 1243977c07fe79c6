"""Task partition: what tasks take from outside, where their warps start, who gets which registers and barrier ids."""

from __future__ import annotations

import pytest

import mimw.ir.ops  # noqa: F401  (fills the op table)
from mimw.diagnostics import CompilationError
from mimw.ir.core import Module
from mimw.ir.ops.task import TaskSpec
from mimw.ir.parser import parse_module
from mimw.ir.verifier import verify
from mimw.passes import canonicalize, task_partition
from mimw.passes.task_registers import Demand, entry_registers, share
from mimw.passes.tasks import partition_of
from mimw.target import get_target

TILE = "tensor<64x64xf32>"


def build(
    tasks: dict[str, str], before: str = "", num_warps: int = 4, target: str = "sm_90a", after: str = ""
) -> Module:
    """A kernel with these tasks (spec to body), after the pass; the default task comes first."""
    specs = ", ".join(f'"{s}"' for s in tasks)
    bodies = " ".join(f"bodies {{\n{body}\n    control.yield\n  }}" for body in tasks.values())
    module = parse_module(
        f"kernel @k(%p: ptr<i32>, %n: i32, %x: f32) num_warps = {num_warps} {{\n{before}\n"
        f"  task.partition {{tasks = [{specs}]}} {bodies}\n{after}\n  control.return\n}}\n"
    )
    task_partition.run(module, get_target(target))
    verify(module)
    return module


def specs(module: Module) -> list[TaskSpec]:
    partition = partition_of(module.function)
    assert partition is not None
    return partition.specs()


def names(module: Module, task: int) -> list[str]:
    partition = partition_of(module.function)
    assert partition is not None
    return [op.name for op in partition.bodies[task].block.ops]


def starts(tasks: dict[str, str], num_warps: int = 4) -> list[int]:
    return [s.start_warp for s in specs(build(tasks, num_warps=num_warps))]


TILES = f"    %t = arith.constant {{value = 0.0}} : {TILE}"


# Captures.


def test_pure_scalars_are_computed_again_in_the_task() -> None:
    before = """  %two = arith.constant {value = 2} : i32
  %pid = control.program_id {axis = 0} : i32
  %row = arith.mul %pid, %two : i32"""
    use = "    %q = memory.ptr_add %p, %row : ptr<i32>\n    memory.store %q, %n"
    module = build({"default/4/0/0/0": use, "one/1/0/-1/0": use}, before)
    assert names(module, 0) == ["memory.ptr_add", "memory.store", "control.yield"]
    copied = ["arith.constant", "control.program_id", "arith.mul"]
    assert sorted(names(module, 1)[:3]) == sorted(copied)
    assert names(module, 1)[3:] == names(module, 0)
    inside = partition_of(module.function).bodies[1].block  # type: ignore[union-attr]
    for op in inside.ops:
        for v in op.operands:
            assert v in module.function.block.args or (v.defining_op is not None and v.defining_op.parent is inside)


def test_a_branch_of_pure_scalars_is_repeated_whole() -> None:
    before = """  %zero = arith.constant {value = 0} : i32
  %c = arith.lt %n, %zero : i1
  %m = control.if %c {types = [i32]} then {
    control.yield %zero
  } orelse {
    control.yield %n
  } : i32"""
    module = build({"default/4/0/0/0": "", "one/1/0/-1/0": "    memory.store %p, %m"}, before)
    assert "control.if" in names(module, 1)


def test_loaded_scalars_are_published_through_shared_memory_once() -> None:
    before = "  %m = memory.load %p : i32"
    use = "    memory.store %p, %m"
    module = build({"default/4/0/0/0": use, "one/1/0/-1/0": use, "two/1/0/-1/0": use}, before)
    assert names(module, 0) == ["memory.store", "control.yield"]
    for task in (1, 2):
        assert names(module, task) == ["memory.local_load", "tensor.reduce", "memory.store", "control.yield"]
    outside = [op.name for op in module.function.block.ops]
    assert outside.count("memory.local_alloc") == 1 and outside.index("memory.local_alloc") < outside.index(
        "task.partition"
    )


def test_published_pointers_and_bools_travel_as_integers() -> None:
    before = """  %q = memory.ptr_add %p, %n : ptr<i32>
  %m = memory.load %q : i32
  %r = memory.ptr_add %p, %m : ptr<i32>
  %b = arith.lt %m, %n : i1"""
    use = "    memory.store %r, %n, mask = %b"
    module = build({"default/4/0/0/0": "", "one/1/0/-1/0": use}, before)
    assert names(module, 1).count("memory.local_load") == 1  # %m; what is pure above it is computed again
    assert "memory.ptr_add" in names(module, 1) and "arith.lt" in names(module, 1)


def test_a_captured_tile_is_refused_with_both_lines() -> None:
    before = f"  %t = arith.constant {{value = 0.0}} : {TILE}"
    use = f"    %u = arith.add %t, %t : {TILE}"
    with pytest.raises(CompilationError) as e:
        build({"default/4/0/0/0": use, "one/4/0/-1/0": use}, before)
    assert e.value.code == "captured-tile" and e.value.notes and e.value.hint


def test_replica_ids_become_constants() -> None:
    body = "    %i = task.replica_id : i32\n    memory.store %p, %i"
    module = build({"default/4/0/0/0": "", "r/1/0/-1/0": body, "r/1/0/-1/1": body})
    partition = partition_of(module.function)
    assert partition is not None
    assert [r.block.ops[0].attrs["value"] for r in partition.bodies[1:]] == [0, 1]


def test_equal_ops_of_two_tasks_stay_two() -> None:
    def body(i: int) -> str:
        return f"""    %r{i} = tensor.arange {{start = 0, end = 128}} : tensor<128xi32>
    %q{i} = tensor.splat %p {{shape = [128]}} : tensor<128xptr<i32>>
    %s{i} = memory.ptr_add %q{i}, %r{i} : tensor<128xptr<i32>>
    memory.store %s{i}, %r{i}"""

    tasks = 'task.partition {tasks = ["default/4/0/0/0", "o/4/0/-1/0"]}'
    regions = " ".join(f"bodies {{\n{body(i)}\n    control.yield\n  }}" for i in (1, 2))
    text = f"kernel @k(%p: ptr<i32>) num_warps = 4 {{\n{body(0)}\n  {tasks} {regions}\n  control.return\n}}"
    module = parse_module(text)
    canonicalize.run(module, get_target("sm_90a"))
    task_partition.run(module, get_target("sm_90a"))
    assert names(module, 1).count("tensor.arange") == 1


# Warps.


def test_small_tasks_share_a_warp_group_and_large_ones_start_one() -> None:
    assert starts({"default/4/0/0/0": "", "a/1/0/-1/0": "", "b/4/0/-1/0": "", "c/2/0/-1/0": ""}) == [0, 8, 4, 10]
    assert starts({"default/1/0/0/0": "", "a/1/0/-1/0": "", "b/4/0/-1/0": ""}, num_warps=1) == [0, 1, 4]
    assert starts({"default/2/0/0/0": "", "a/8/0/-1/0": "", "b/2/0/-1/0": ""}, num_warps=2) == [0, 4, 2]


def test_total_warps_are_whole_groups() -> None:
    module = build({"default/4/0/0/0": "", "a/1/0/-1/0": ""})
    assert module.function.options["total_warps"] == 8


def test_given_first_warps_are_kept() -> None:
    assert starts({"default/4/0/0/0": "", "a/4/0/8/0": "", "b/4/0/4/0": ""}) == [0, 8, 4]


@pytest.mark.parametrize("at", [2, 0, 6])
def test_first_warps_that_cannot_be(at: int) -> None:
    with pytest.raises(CompilationError) as e:
        build({"default/4/0/0/0": "", f"a/4/0/{at}/0": "", "b/4/0/4/0": ""})
    assert e.value.code == "bad-task"


def test_too_many_warps() -> None:
    with pytest.raises(CompilationError, match="36 warps") as e:
        build({"default/4/0/0/0": "", "a/16/0/-1/0": "", "a/16/0/-1/1": ""})
    assert "a[1]: 16 warps" in e.value.message


def test_a_second_partition_is_refused() -> None:
    inner = 'task.partition {tasks = ["default/4/0/0/0"]} bodies {\n control.yield }'
    with pytest.raises(CompilationError) as e:
        build({"default/4/0/0/0": ""}, after=inner)
    assert e.value.code == "not-yet"


# Registers.


def registers(tasks: dict[str, str], num_warps: int = 4, target: str = "sm_90a") -> tuple[int, ...]:
    return build(tasks, num_warps=num_warps, target=target).function.options["task_regs"]


def test_registers_go_from_copies_to_products() -> None:
    assert registers({"default/1/0/0/0": "", "c/4/0/-1/0": TILES, "c/4/0/-1/1": TILES}, num_warps=1) == (40, 232, 232)
    assert registers({"default/4/0/0/0": TILES, "p/1/0/-1/0": ""}) == (240, 40)


def test_four_groups_leave_the_light_one_less() -> None:
    tasks = {"default/1/0/0/0": "", **{f"c/4/0/-1/{i}": TILES for i in range(3)}}
    assert registers(tasks, num_warps=1) == (32, 160, 160, 160)


def test_nothing_moves_without_a_reason() -> None:
    assert registers({"default/4/0/0/0": TILES, "c/4/0/-1/0": TILES}) == (0, 0)
    assert registers({"default/4/0/0/0": "", "c/4/0/-1/0": ""}) == (0, 0)


def test_asked_registers_are_kept_and_the_default_task_gets_the_rest() -> None:
    assert registers({"default/4/0/0/0": TILES, "p/1/24/-1/0": "", "c/4/240/-1/0": TILES}) == (240, 24, 240)
    assert registers({"default/4/0/0/0": TILES, "p/1/32/-1/0": "", "q/1/48/-1/0": ""}) == (240, 48, 48)


def test_more_registers_than_there_are() -> None:
    with pytest.raises(CompilationError) as e:
        registers({"default/4/0/0/0": TILES, "c/4/248/-1/0": "", "c/4/248/-1/1": ""})
    assert e.value.code == "registers" and "c[1]: 4 warps from 8, num_regs=248" in e.value.message


def test_num_regs_needs_a_target_that_can() -> None:
    with pytest.raises(CompilationError) as e:
        registers({"default/4/0/0/0": "", "c/4/40/-1/0": ""}, target="sm_80")
    assert e.value.code == "unsupported"


@pytest.mark.parametrize(
    ("threads", "maxnreg", "entry"), [(384, 0, 168), (512, 0, 128), (256, 0, 248), (384, 128, 128), (128, 0, 248)]
)
def test_entry_registers(threads: int, maxnreg: int, entry: int) -> None:
    assert entry_registers(threads, maxnreg) == entry


@pytest.mark.parametrize("groups", range(2, 9))
def test_shares_stay_within_the_pool(groups: int) -> None:
    from mimw.diagnostics import UNKNOWN

    entry = entry_registers(groups * 128)
    for light in range(1, groups):
        demands = [Demand() for _ in range(groups)]
        for d in demands[light:]:
            d.light = False
        values = share(demands, entry, "", UNKNOWN)
        assert sum(values) <= entry * groups and all(24 <= v <= 240 and v % 8 == 0 for v in values)


# Barrier ids.


def test_ids_of_tasks_and_names_stay_clear_of_the_users_numbers() -> None:
    user = "    barrier.named_wait {count = 256, number = 1}\n    barrier.named_wait {count = 256, number = 3}\n"
    symbol = '    barrier.named_wait {count = 256, name_hint = "turn"}\n'
    module = build({"default/4/0/0/0": user + symbol, "a/4/0/-1/0": user + symbol, "b/1/0/-1/0": ""})
    assert module.function.options["task_sync_ids"] == (2, 4, 0)
    numbers = [op.attrs["number"] for op in module.function.walk() if op.name == "barrier.named_wait"]
    assert numbers == [1, 3, 5, 1, 3, 5]


def test_numbers_known_at_run_time_only_keep_the_upper_half() -> None:
    user = "    barrier.named_wait id = %n {count = 256}\n"
    many = {f"a/2/0/-1/{i}": "" for i in range(6)}
    module = build({"default/4/0/0/0": user, **many})
    assert max(module.function.options["task_sync_ids"]) == 7
    with pytest.raises(CompilationError) as e:
        build({"default/4/0/0/0": user, **many, "b/2/0/-1/0": ""})
    assert e.value.code == "named-barrier"


def test_symbols_without_tasks_get_numbers_too() -> None:
    text = 'kernel @k() num_warps = 4 {\n barrier.named_wait {count = 128, name_hint = "x"}\n control.return }'
    module = parse_module(text)
    task_partition.run(module, get_target("sm_90a"))
    assert [op.attrs["number"] for op in module.function.walk() if op.name == "barrier.named_wait"] == [1]
