"""The convolution that the image programs share."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def channels(full: int, width: float) -> int:
    """The channel count of a full-size layer at this width: a multiple of 4, at least 8."""
    return max(8, 4 * round(full * width / 4))


class ConvNorm(nn.Module):
    """Padded convolution, normalisation over the whole image, ReLU.

    GroupNorm stands where the papers have batch normalisation: a batch statistic would depend on how many
    workers share the batch. Where only one tap of the kernel meets anything but padding, the convolution is computed
    as the matrix product it then is, which is several times cheaper on a CPU.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int | tuple[int, int], *, stride: int = 1, activation: bool = True
    ) -> None:
        super().__init__()
        self.kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
        self.stride = stride
        self.activation = activation
        self.weight = nn.Parameter(torch.empty(outputs, inputs, *self.kernel))
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")
        self.norm = nn.GroupNorm(1, outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self._convolve(x))
        return torch.relu_(y) if self.activation else y

    def _convolve(self, x: Tensor) -> Tensor:
        high, wide = self.kernel
        if high * wide > 1 and x.shape[2:] != (1, 1):
            return F.conv2d(x, self.weight, stride=self.stride, padding=(high // 2, wide // 2))
        taps = self.weight.flatten(2)
        matrix = taps.squeeze(2) if high * wide == 1 else taps[:, :, high * wide // 2]
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        return F.linear(x.movedim(1, -1), matrix).movedim(-1, 1)
