"""Layers that PyTorch lacks; imported only where a module of PyTorch is made."""

import torch  # pyright: ignore[reportMissingImports]


class FromBytes(torch.nn.Module):
    """Images in one byte a value as numbers; numbers stay as they are."""

    def __init__(self, low: float, high: float):
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x):
        """Any shape."""
        if x.dtype != torch.uint8:
            return x
        return self.low + (self.high - self.low) / 255 * x.float()


class ChannelsFirst(torch.nn.Module):
    """[n, height, width, channels], as silodp has images, to the order of PyTorch."""

    def forward(self, x):
        """[n, channels, height, width]."""
        return x.permute(0, 3, 1, 2)
