"""Where tensors live."""

import torch

from engine.config import Device
from engine.errors import ModelUnusable
from engine.memory import large_block

CPU = torch.device("cpu")


def chosen_device(wanted: Device) -> torch.device:
    """`auto` is a GPU where there is one. Raises ModelUnusable."""
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return CPU
    if not torch.cuda.is_available():
        raise ModelUnusable(
            "`device: cuda`, but torch finds no CUDA device here: set it to auto or cpu, or "
            "install a build of torch for your driver"
        )
    return torch.device("cuda", torch.cuda.current_device())


def block_on(device: torch.device, num_bytes: int) -> torch.Tensor:
    """uint8 [num_bytes], zero."""
    if device.type == "cpu":
        return large_block(num_bytes)
    return torch.zeros(num_bytes, dtype=torch.uint8, device=device)


def host_block(device: torch.device, num_bytes: int) -> torch.Tensor:
    """uint8 [num_bytes] on the host. Pinned where a GPU copies from and to it: from other memory
    the driver would copy twice."""
    if device.type == "cpu":
        return large_block(num_bytes)
    return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)
