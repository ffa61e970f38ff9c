"""Communication hooks: how the ranks average a bucket of gradients.

  fp32     DistributedDataParallel's own all-reduce, in the gradients' dtype
  fp16     PyTorch's fp16_compress_hook: divides, casts to fp16, sums in fp16
  user     as users write them: casts to fp16, sums in fp16, divides afterwards
"""

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    fp16_compress_hook,
)


def sum_then_divide(state, bucket):
    """Sums before it divides. The sum of N gradients is N times their mean, so nearer to fp16's limit."""
    world = dist.get_world_size()
    wire = bucket.buffer().half()
    future = dist.all_reduce(wire, async_op=True).get_future()

    def finish(done):
        bucket.buffer().copy_(done.value()[0])
        return bucket.buffer().div_(world)

    return future.then(finish)


HOOKS = {"fp32": allreduce_hook, "fp16": fp16_compress_hook, "user": sum_then_divide}
