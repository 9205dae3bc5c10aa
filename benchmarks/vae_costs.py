"""What decoding a patch costs at least with the kernels as they are: bytes moved and operations done."""

from __future__ import annotations

from dataclasses import dataclass

from voxcpm_core.config import VaeConfig
from voxcpm_core.config.vae import RES_UNIT_DILATIONS, RES_UNIT_KERNEL

NUM_PRODUCTS = 3  # of fp16 matrices
NUM_FUSED_PRODUCTS = 4  # in a fused unit


@dataclass
class Costs:
    """Of one batch."""

    bytes: float = 0.0
    operations: float = 0.0  # of the network, a multiplication and an addition each
    fp16_operations: float = 0.0  # of the tensor cores, halves counted apart

    def product(self, rows: int, depth: int, columns: int, num_products: int = NUM_PRODUCTS) -> None:
        """A matrix product and the reading of its weight."""
        self.operations += 2 * rows * depth * columns
        self.fp16_operations += 2 * rows * depth * columns * num_products
        self.bytes += 2 * 2 * depth * columns

    def limit_ms(self, gb_per_s: float, fp16_tflops: float) -> float:
        """Whichever of memory and tensor cores takes longer."""
        return 1e3 * max(self.bytes / (gb_per_s * 1e9), self.fp16_operations / (fp16_tflops * 1e12))


def decode_costs(config: VaeConfig, batch: int, num_frames: int, state_size: int, fused_channels: int) -> Costs:
    """Of `num_frames` latent frames of each of `batch` streams; every kernel reads and writes memory once.

    `fused_channels`: the most channels of a fused unit.
    """
    costs = Costs(bytes=4 * 4 * batch * state_size)  # gathered, read and written
    channels, frames = config.decoder_dim, batch * num_frames
    costs.product(frames, config.latent_dim, channels)
    for rate in config.decoder_rates:
        out_channels = channels // 2
        costs.product(frames, 2 * channels, rate * out_channels)
        costs.bytes += 8 * frames * channels  # the halves, written and read
        channels, frames = out_channels, frames * rate
        values = frames * channels
        costs.bytes += 8 * values  # sum and snake
        for _ in RES_UNIT_DILATIONS:
            costs.operations += 2 * RES_UNIT_KERNEL * values
            fused = channels <= fused_channels
            costs.product(frames, channels, channels, NUM_FUSED_PRODUCTS if fused else NUM_PRODUCTS)
            costs.bytes += (8 + 8 + (0 if fused else 8)) * values
        costs.bytes -= 8 * values  # the last unit's result is halves, counted with what reads them
    costs.bytes += (8 + 4) * frames * channels + 4 * frames  # but that of the last block, and the audio
    return costs
