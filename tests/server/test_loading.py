"""How the model loads, and what it says when it cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient

from voxcpm_client.server import ServerError, TritonServer

pytestmark = pytest.mark.server

INPUTS = {
    "target_text": "BYTES", "prompt_audio": "BYTES", "prompt_text": "BYTES", "prompt_latents": "FP32",
    "reference_audio": "BYTES", "reference_latents": "FP32", "cfg_value": "FP32", "temperature": "FP32",
    "inference_timesteps": "INT32", "min_length": "INT32", "max_length": "INT32", "length_cap": "BOOL",
    "ignore_stop": "BOOL", "seed": "INT64", "format": "BYTES", "bitrate": "INT32", "stream": "BOOL",
    "encoding": "BYTES", "return_latents": "BOOL", "sample_rate": "INT32", "deadline_ms": "INT32",
    "normalize": "BOOL", "retry_badcase": "BOOL", "voice": "BYTES", "lora": "BYTES",
}
OUTPUTS = {
    "audio": "BYTES", "chunk_index": "INT32", "num_samples": "INT32", "sample_rate": "INT32", "request_id": "BYTES",
    "is_last": "BOOL", "finish_reason": "BYTES", "seed": "INT64", "latents": "FP32",
    "stream_id": "BYTES", "bitrate": "INT32", "vae_context": "FP32",  # for the ensemble
}


def test_the_served_signature_is_the_contract(triton_server: TritonServer):
    client = grpcclient.InferenceServerClient(triton_server.grpc_url)
    metadata = client.get_model_metadata("voxcpm")
    config = client.get_model_config("voxcpm").config
    client.close()
    assert {each.name: each.datatype for each in metadata.inputs} == INPUTS
    assert {each.name: each.datatype for each in metadata.outputs} == OUTPUTS
    assert [each.name for each in config.input if not each.optional] == ["target_text"]
    assert config.model_transaction_policy.decoupled
    assert sum(group.count for group in config.instance_group) == 4, "one with the engine, three doors"
    assert config.dynamic_batching.priority_levels == 3
    assert config.dynamic_batching.default_queue_policy.max_queue_size == 256


def test_without_a_model_loading_says_what_to_set(start_server: Callable[..., TritonServer]):
    with pytest.raises(ServerError, match="VOXCPM_MODEL is not set"):
        start_server(VOXCPM_MODEL="")


def test_a_bad_setting_is_named(start_server: Callable[..., TritonServer]):
    with pytest.raises(ServerError, match="max_running"):
        start_server(VOXCPM_MAX_RUNNING="many")


def test_weights_that_are_not_those_of_the_list_are_named(
    start_server: Callable[..., TritonServer], tmp_path: Path
):
    listing = tmp_path / "SHA256SUMS"
    listing.write_text(f"{'0' * 64}  model.safetensors\n")
    with pytest.raises(ServerError, match=r"audiovae\.\w+: is not on the list of checksums"):
        start_server(VOXCPM_CHECKSUMS=str(listing))
