"""Convolutions: the same weights applied at every position of a sequence or a picture.

    1-D   y_t   = b + sum_k W_k x_{t + (k - left) * dilation}                 zero outside the sequence
    2-D   y_o,i,j = b_o + sum_{c,u,v} W_o,c,u,v x_c,i+u,j+v                   a filter spans the full depth of its input

`left` is the number of the K taps before t: K - 1 makes the convolution causal, (K - 1) // 2 centers it.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.errors import ConfigError, did_you_mean
from seqloom.nn.ops.kernels import Choice, named, report_choice


def plain(values: Tensor, weight: Tensor, bias: Tensor, *, left: int, dilation: int = 1) -> Tensor:
    """The convolution of values [B,T,D] with weight [D_out,D,K], tap by tap: [B,T,D_out]."""
    time, taps = values.shape[1], weight.shape[2]
    padded = F.pad(values, (0, 0, left * dilation, (taps - 1 - left) * dilation))
    result = bias.expand(values.shape[0], time, -1)
    for tap in range(taps):
        result = result + padded[:, tap * dilation : tap * dilation + time] @ weight[:, :, tap].T
    return result


def fused(values: Tensor, weight: Tensor, bias: Tensor, *, left: int, dilation: int = 1) -> Tensor:
    """The same with torch's kernel, which does not support empty sequences."""
    if values.shape[1] == 0:
        return plain(values, weight, bias, left=left, dilation=dilation)
    right = weight.shape[2] - 1 - left
    padded = F.pad(values.transpose(1, 2), (left * dilation, right * dilation))
    return F.conv1d(padded, weight, bias, dilation=dilation).transpose(1, 2)


def windows(values: Tensor, weight: Tensor, bias: Tensor, *, left: int, dilation: int = 1) -> Tensor:
    """The same as one matrix product with the K vectors around each position side by side, [B,T,K*D].

    On a CPU torch's kernel is compiled for every shape, and texts have a new shape at nearly every step.
    """
    time, taps = values.shape[1], weight.shape[2]
    padded = F.pad(values, (0, 0, left * dilation, (taps - 1 - left) * dilation))
    around = torch.cat([padded[:, tap * dilation : tap * dilation + time] for tap in range(taps)], dim=2)
    return F.linear(around, weight.transpose(1, 2).flatten(1), bias)


KERNELS = {"plain": plain, "windows": windows, "fused": fused}
NO_REASONS: Mapping[str, str] = {}
MOST_COPIED = 2**22  # numbers that windows may copy: with more, compiling a kernel costs little


def convolve(values: Tensor, weight: Tensor, bias: Tensor, *, left: int, dilation: int = 1) -> Tensor:
    """A 1-D convolution by the named kernel; else by windows for small inputs on a CPU, and by the fused one."""
    if values.device.type != "cpu":
        return KERNELS[_chosen("fused")](values, weight, bias, left=left, dilation=dilation)
    copied = values.numel() * weight.shape[2]
    refused = {} if copied <= MOST_COPIED else {"windows": f"it would copy {copied:,} numbers; {MOST_COPIED:,} at most"}
    kernel = KERNELS[_chosen("fused" if refused else "windows", refused)]
    return kernel(values, weight, bias, left=left, dilation=dilation)


def _chosen(default: str, refused: Mapping[str, str] = NO_REASONS) -> str:
    name = named("convolution") or default
    if name not in KERNELS:
        raise ConfigError(f"there is no convolution kernel '{name}'", fix=did_you_mean(name, KERNELS))
    report_choice("convolution", lambda: Choice(name, refused if name == default else {}))
    return name


def plain_2d(picture: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The convolution of [B,C,Y,X] with weight [O,C,U,V], tap by tap: [B,O,Y-U+1,X-V+1]."""
    height, width = picture.shape[2] - weight.shape[2] + 1, picture.shape[3] - weight.shape[3] + 1
    result = bias[:, None, None].expand(picture.shape[0], -1, height, width)
    for down in range(weight.shape[2]):
        for across in range(weight.shape[3]):
            patch = picture[:, :, down : down + height, across : across + width]
            result = result + torch.einsum("bcyx,oc->boyx", patch, weight[:, :, down, across])
    return result


def convolve_2d(picture: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A 2-D convolution by the named kernel, or by the fused one."""
    return plain_2d(picture, weight, bias) if _chosen("fused") == "plain" else F.conv2d(picture, weight, bias)
