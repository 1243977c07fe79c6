"""Thread-block clusters: ranks, the cluster-wide barrier, distributed shared memory."""

from __future__ import annotations

from mimw.ir.core import Value
from mimw.ir.opdef import Effect, Op, op, operand, result
from mimw.ir.ops.barrier import barrier_type
from mimw.ir.ops.memory import memdesc_type
from mimw.ir.types import I32, Type, element_of, shape_of


@op("cluster.cta_rank", layout="none")
class CtaRankOp(Op):
    """The CTA's rank in its cluster, i32; 0 without clusters."""

    result: Value = result()

    def infer(self) -> list[Type]:
        return [I32]


@op("cluster.size", layout="none")
class ClusterSizeOp(Op):
    """CTAs in the cluster, i32; 1 without clusters."""

    result: Value = result()

    def infer(self) -> list[Type]:
        return [I32]


@op("cluster.sync", effects=[Effect("shared", "write")], layout="none")
class ClusterSyncOp(Op):
    """All threads of all CTAs of the cluster meet; what they wrote to each other's shared memory is visible after."""


@op("cluster.remote_store", effects=[Effect("shared", "write", "dst")])
class RemoteStoreOp(Op):
    """Write a tile into the same buffer of the CTA with rank `cta` (i32), synchronously."""

    dst: Value = operand()
    src: Value = operand()
    cta: Value = operand()

    def infer(self) -> list[Type]:
        t = memdesc_type(self.dst)
        if (shape_of(self.src.type), element_of(self.src.type)) != (t.shape, t.dtype) or self.cta.type is not I32:
            raise ValueError(f"remote store of {self.src.type} into {t}")
        return []


@op("cluster.async_remote_store", effects=[Effect("shared", "write", "dst", completion="barrier")])
class AsyncRemoteStoreOp(Op):
    """As `remote_store`, but asynchronous: the bytes count on `barrier`, which is the remote CTA's own of that name."""

    dst: Value = operand()
    src: Value = operand()
    cta: Value = operand()
    barrier: Value = operand()

    def infer(self) -> list[Type]:
        t = memdesc_type(self.dst)
        barrier_type(self.barrier)
        if (shape_of(self.src.type), element_of(self.src.type)) != (t.shape, t.dtype) or self.cta.type is not I32:
            raise ValueError(f"remote store of {self.src.type} into {t}")
        return []


@op(
    "cluster.async_remote_copy",
    effects=[
        Effect("shared", "read", "src", proxy="async", agent="tma", completion="barrier"),
        Effect("shared", "write", "dst", proxy="async", agent="tma", completion="barrier"),
    ],
    layout="none",
)
class AsyncRemoteCopyOp(Op):
    """Copy a whole buffer of this CTA into buffer `dst` of the CTA with rank `cta`; the bytes count on that CTA's `barrier`."""

    dst: Value = operand()
    src: Value = operand()
    cta: Value = operand()
    barrier: Value = operand()

    def infer(self) -> list[Type]:
        d, s = memdesc_type(self.dst), memdesc_type(self.src)
        barrier_type(self.barrier)
        if (d.shape, d.dtype) != (s.shape, s.dtype) or self.cta.type is not I32:
            raise ValueError(f"remote copy of {s} into {d}")
        return []
