"""Adapters on their way from files to the device: read in threads, kept on the host while somebody wants them."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from weakref import WeakValueDictionary

import torch

from voxcpm_core.checkpoint.lora import read_lora
from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import ErrorCode, RequestError, StartupError, invalid_parameter, shown
from voxcpm_core.faults import internal_error
from voxcpm_core.lora.facts import LoraFacts
from voxcpm_core.lora.folder import LoraFolder
from voxcpm_core.lora.layout import LoraLayout
from voxcpm_core.lora.slots import LoadedLora
from voxcpm_core.threads import in_thread
from voxcpm_core.types import LoraRef

log = logging.getLogger(__name__)


class LoraLibrary:
    """Thread-safe. All its futures fail with RequestError alone."""

    def __init__(
        self, root: str, max_rank: int, model: ModelConfig, layout: LoraLayout, device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """`root`: the folder that holds all adapters; `dtype`: as slots on `device` hold their weights."""
        self._root = root
        self._max_rank = max_rank
        self._model = model
        self._layout = layout
        self._dtype = dtype
        self._pins = device.type == "cuda"
        self._lock = threading.Lock()
        self._loaded: WeakValueDictionary[str, LoadedLora] = WeakValueDictionary()
        self._loading: dict[str, Future[LoadedLora]] = {}

    def get(self, ref: LoraRef) -> Future[LoadedLora]:
        """The adapter with that digest. Fails with UNKNOWN_LORA when its files are no longer those."""
        with self._lock:
            loaded = self._loaded.get(ref.digest)
            if loaded is not None:
                done: Future[LoadedLora] = Future()
                done.set_result(loaded)
                return done
            if ref.digest not in self._loading:
                self._loading[ref.digest] = in_thread(lambda: self._load(ref), "voxcpm-lora")
            return self._loading[ref.digest]

    def check(self, path: str) -> Future[LoraFacts]:
        """What the folder at `path` below the root holds. Fails with INVALID_PARAMETER for what cannot be used."""

        def work() -> LoraFacts:
            try:
                return self._read(path)[1]
            except RequestError:
                raise
            except Exception as error:
                raise internal_error(error, f"the adapter in {shown(path)}", log.error) from None

        return in_thread(work, "voxcpm-lora-check")

    def _load(self, ref: LoraRef) -> LoadedLora:
        try:
            try:
                values, facts = self._read(ref.path)
            except RequestError as error:
                raise _changed(ref, str(error)) from None
            if facts.digest != ref.digest:
                raise _changed(ref, "they hold other weights")
            loaded = LoadedLora(ref.digest, values.pin_memory() if self._pins else values)
            with self._lock:
                self._loaded[ref.digest] = loaded
            return loaded
        except RequestError:
            raise
        except Exception as error:
            raise internal_error(error, f"the adapter {shown(ref.name)}", log.error) from None
        finally:
            with self._lock:
                del self._loading[ref.digest]

    def _read(self, path: str) -> tuple[torch.Tensor, LoraFacts]:
        """An adapter as a slot holds it [num_values], and what is to be said of it."""
        folder = LoraFolder(self._root, path)
        try:
            adapter = read_lora(folder.folder, self._model, self._max_rank)
            values = self._layout.packed(adapter, self._dtype)
        except StartupError as error:
            raise invalid_parameter(f"path: {folder.without_folder(str(error))}") from None
        if not bool(values.isfinite().all()):
            raise invalid_parameter(f"path: {shown(path)} holds values that are not finite in {self._dtype}")
        return values, LoraFacts(*folder.digests(), adapter.rank, adapter.alpha, len(adapter.pairs))


def _changed(ref: LoraRef, reason: str) -> RequestError:
    message = f"the files of the adapter {shown(ref.name)} are not those that were registered: {reason}"
    return RequestError(ErrorCode.UNKNOWN_LORA, message)
