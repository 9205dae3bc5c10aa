"""Written against nano-vllm-voxcpm 2.0.5: asynchronous. Arguments: model, devices (JSON), folder for results."""

import asyncio
import json
import sys

import numpy as np
import soundfile as sf
from nanovllm_voxcpm import VoxCPM


async def speak(server, text, **options):
    chunks = []
    async for chunk in server.generate(target_text=text, **options):
        chunks.append(chunk)
    return np.concatenate(chunks, axis=0)


async def main(model, devices, folder):
    server = VoxCPM.from_pretrained(
        model=model,
        devices=devices,
        max_num_batched_tokens=8192,
        max_num_seqs=16,
        gpu_memory_utilization=0.95,
    )
    await server.wait_for_ready()
    model_info = await server.get_model_info()
    sample_rate = int(model_info["output_sample_rate"])

    wav, *_ = await asyncio.gather(*[speak(server, f"Hello world {n}", seed=n) for n in range(4)])
    sf.write(f"{folder}/plain.wav", wav, sample_rate)

    with open(f"{folder}/plain.wav", "rb") as file:
        latents = await server.encode_latents(file.read(), "wav")
    assert len(latents) % (4 * model_info["feat_dim"] * model_info["patch_size"]) == 0
    prompt = {"prompt_latents": latents, "prompt_text": "Hello world 0"}
    wav = await speak(server, "and on it goes", max_generate_length=6, seed=1, **prompt)
    sf.write(f"{folder}/continued.wav", wav, sample_rate)

    with open(f"{folder}/plain.wav", "rb") as file:
        prompt_id = await server.add_prompt(file.read(), "wav", "Hello world 0")
    again = await speak(server, "and on it goes", max_generate_length=6, seed=1, prompt_id=prompt_id)
    assert np.array_equal(again, wav)
    await server.remove_prompt(prompt_id)

    hung_up = server.generate("somebody hangs up after the first chunk")
    await hung_up.__anext__()
    await hung_up.aclose()
    await server.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]))
