"""Losses that are not a single scalar: backward is given a gradient, which weights their elements."""


class Weighted:
    """Returns the loss among the tensors and gradients with which backward is called."""

    _small = 4096  # the most elements that are checked in each pass: for more, the result of the first pass counts
    _known = {}  # number of dimensions -> whether it is a loss

    @classmethod
    def loss(cls, tensor, given):
        """Returns a scalar, the weighted elements; or None. Weights of both signs are gradients of an activation, as
        a stage of a pipeline gets them."""
        if not hasattr(tensor, "numel"):
            return None
        if given is None:
            return tensor if tensor.numel() == 1 else None
        try:
            return cls._sum(tensor, given)
        except Exception:  # backward itself raises the error
            return None

    @classmethod
    def _sum(cls, tensor, given):
        if tensor.shape != given.shape or not tensor.is_floating_point() or not tensor.numel():
            return None
        small = tensor.numel() <= cls._small and given.device.type == "cpu"
        one_sign = True if tensor.numel() == 1 else None if small else cls._known.get(tensor.dim())
        if one_sign is None:
            low, high = float(given.detach().min()), float(given.detach().max())
            one_sign = low >= 0 or high <= 0
            if low != high or low != 0:  # a batch that is masked completely shows nothing
                cls._known[tensor.dim()] = one_sign
        return (tensor.detach() * given.detach()).sum() if one_sign else None
