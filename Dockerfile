# The server with this package and its model repository; checkpoints come by volume. Build in the repository's root:
#   docker build --tag voxcpm-triton .
ARG TRITON_IMAGE=nvcr.io/nvidia/tritonserver:25.12-py3

FROM ${TRITON_IMAGE} AS wheel
WORKDIR /src
COPY . .
# The dependencies by themselves, so that their layer, the large one, changes with them alone.
RUN python3 -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
 && python3 -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" \
    > /wheels/requirements.txt \
 && cp constraints.txt /wheels/

FROM ${TRITON_IMAGE}
# This python3 is what Triton's stubs run, so the packages go where it finds them; Ubuntu asks for the flag.
ENV PIP_BREAK_SYSTEM_PACKAGES=1
COPY --from=wheel /wheels/requirements.txt /wheels/constraints.txt /opt/voxcpm/
RUN python3 -m pip install --no-cache-dir --constraint /opt/voxcpm/constraints.txt --requirement /opt/voxcpm/requirements.txt
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    python3 -m pip install --no-cache-dir --no-deps /wheels/*.whl
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
