# The server with this package and its model repository; checkpoints come by volume. Build in the repository's root:
#   docker build --tag voxcpm-triton .
ARG TRITON_IMAGE=nvcr.io/nvidia/tritonserver:25.12-py3

FROM ${TRITON_IMAGE}
# This python3 is what Triton's stubs run, so the packages go where it finds them; Ubuntu asks for the flag.
ENV PIP_BREAK_SYSTEM_PACKAGES=1
# The dependencies by themselves, so that their layer, the large one, changes with them alone.
COPY requirements.lock /opt/voxcpm/
RUN python3 -m pip install --no-cache-dir --require-hashes --requirement /opt/voxcpm/requirements.lock
# They hold what builds the package: nothing comes without a hash.
RUN --mount=type=bind,target=/src,rw python3 -m pip install --no-cache-dir --no-deps --no-build-isolation /src
COPY model_repository /models

ENV VOXCPM_MODEL=/weights \
    HF_HUB_OFFLINE=1
VOLUME /weights
EXPOSE 8000 8001 8002
# Stubs import from the working directory first: one without Python files.
WORKDIR /srv
USER 1000:1000
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m --retries=3 \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/v2/models/voxcpm/ready', timeout=4)"]
CMD ["tritonserver", "--model-repository=/models"]
