"""Written against nano-vllm-voxcpm 2.0.5: synchronous. Arguments: model, devices (JSON), folder for results."""

import json
import sys

import numpy as np
import soundfile as sf
from nanovllm_voxcpm import VoxCPM


def main(model, devices, folder):
    server = VoxCPM.from_pretrained(
        model,
        inference_timesteps=10,
        max_num_batched_tokens=8192,
        max_num_seqs=16,
        max_model_len=4096,
        gpu_memory_utilization=0.9,
        enforce_eager=False,
        devices=devices,
        lora_config=None,
    )
    sample_rate = int(server.get_model_info()["sample_rate"])

    wav = np.concatenate(list(server.generate(target_text="Hello world", cfg_value=1.5)), axis=0)
    sf.write(f"{folder}/plain.wav", wav, sample_rate)

    with open(f"{folder}/plain.wav", "rb") as file:
        latents = server.encode_latents(file.read(), "wav")
    chunks = []
    for chunk in server.generate(
        target_text="and on it goes",
        prompt_latents=latents,
        prompt_text="Hello world",
        max_generate_length=6,
        temperature=0.8,
        cfg_value=2,
        ref_audio_latents=latents,
        seed=7,
    ):
        chunks.append(chunk)
    sf.write(f"{folder}/continued.wav", np.concatenate(chunks, axis=0), sample_rate)

    for _chunk in server.generate("somebody hangs up after the first chunk", None, "", None, 2000, 1.0, 2.0):
        break
    server.stop()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3])
