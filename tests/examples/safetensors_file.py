"""Writes router calls as CONTRACT's `routing` dumps: safetensors with metadata strings."""

import json
import struct

import torch

NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
         torch.int64: "I64", torch.bool: "BOOL"}


def _bytes(tensor):
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    return tensor.numpy().tobytes()


def write(path, tensors, metadata):
    header, at, blobs = {"__metadata__": {k: str(v) for k, v in metadata.items()}}, 0, []
    for name, tensor in tensors.items():
        blob = _bytes(tensor)
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def write_routing(path, routing, sequences, length, **metadata):
    """Writes one call of one of the example's routers over `sequences` rows of `length` tokens."""
    rows = torch.arange(sequences * length)
    tensors = {"router_logits": routing.logits, "sequence_id": rows // length,
               "position": rows % length, "pool_id": torch.zeros_like(rows)}
    if routing.indices is None:
        tensors["routing_map"] = routing.assigned
    else:
        tensors |= {"topk_indices": routing.indices, "keep_mask": routing.keep}
    write(path, tensors, {
        "kind": "routing", "top_k": routing.top_k, "score_function": "softmax",
        "capacity": "none" if routing.capacity is None else routing.capacity,
        "pool": "microbatch", "flatten": "batch-major", "mode": "train", **metadata})
