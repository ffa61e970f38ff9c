"""The kinds of evidence. Written by tools/check_kinds --write."""

KIND_ROUTING = 1
KIND_TENSOR = 2
KIND_REDUCTION = 3
KIND_UPDATE = 4
KIND_MATMUL = 5
KIND_LOGITS = 6
KIND_LOGPROBS = 7

# The kind's word in the C ABI: plumbline_observe_<word>.
NAMES = {
    KIND_ROUTING: "routing",
    KIND_TENSOR: "tensor",
    KIND_REDUCTION: "reduction",
    KIND_UPDATE: "update",
    KIND_MATMUL: "matmul",
    KIND_LOGITS: "logits",
    KIND_LOGPROBS: "logprobs",
}
