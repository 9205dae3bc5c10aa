"""The steps of the ensemble `voxcpm_mp3` behind the engine: latents to samples, samples to MP3."""
