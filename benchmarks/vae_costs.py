"""What decoding a patch costs at least with the kernels as they are: bytes moved and operations done."""

from __future__ import annotations

from dataclasses import dataclass

from voxcpm_core.config import VaeConfig
from voxcpm_core.config.vae import RES_UNIT_DILATIONS, RES_UNIT_KERNEL
from voxcpm_core.vae.triton_decoder import WIDE_CHANNELS

NUM_PRODUCTS = {1: 1, 2: 3}  # of fp16 matrices, by the parts of the factors
NUM_PAIRED_PRODUCTS = 4  # in a fused unit


@dataclass
class Costs:
    """Of one batch."""

    bytes: float = 0.0
    operations: float = 0.0  # of the network, a multiplication and an addition each
    fp16_operations: float = 0.0  # of the tensor cores, halves counted apart

    def product(self, rows: int, depth: int, columns: int, parts: int, num_products: int) -> None:
        """A matrix product and the reading of its weight."""
        self.operations += 2 * rows * depth * columns
        self.fp16_operations += 2 * rows * depth * columns * num_products
        self.bytes += 2 * parts * depth * columns

    def limit_ms(self, gb_per_s: float, fp16_tflops: float) -> float:
        """Whichever of memory and tensor cores takes longer."""
        return 1e3 * max(self.bytes / (gb_per_s * 1e9), self.fp16_operations / (fp16_tflops * 1e12))


def decode_costs(config: VaeConfig, batch: int, num_frames: int, state_size: int, path: tuple[int, int]) -> Costs:
    """Of `num_frames` latent frames of each of `batch` streams; every kernel reads and writes memory once.

    `path`: parts of the factors in wide blocks, and the most channels of a fused unit.
    """
    wide_parts, fused_channels = path
    costs = Costs(bytes=4 * 4 * batch * state_size)  # gathered, read and written
    channels, frames = config.decoder_dim, batch * num_frames
    costs.product(frames, config.latent_dim, channels, wide_parts, NUM_PRODUCTS[wide_parts])
    for rate in config.decoder_rates:
        out_channels = channels // 2
        parts = wide_parts if out_channels > WIDE_CHANNELS else 2
        costs.product(frames, 2 * channels, rate * out_channels, parts, NUM_PRODUCTS[parts])
        costs.bytes += 2 * 2 * parts * frames * channels  # the halves, written and read
        channels, frames = out_channels, frames * rate
        values = frames * channels
        costs.bytes += 8 * values  # sum and snake
        for _ in RES_UNIT_DILATIONS:
            costs.operations += 2 * RES_UNIT_KERNEL * values
            fused = channels <= fused_channels
            costs.product(
                frames, channels, channels, parts, NUM_PAIRED_PRODUCTS if fused else NUM_PRODUCTS[parts]
            )
            costs.bytes += (8 + 8 + (0 if fused else 2 * 2 * parts)) * values
        costs.bytes -= 8 * values  # the last unit's result is halves, counted with what reads them
    costs.bytes += (8 + 4) * frames * channels + 4 * frames  # but that of the last block, and the audio
    return costs
