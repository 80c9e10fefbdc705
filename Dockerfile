# The one image: the agent on GPU nodes, the node-health controller, the Prefect worker and server, the reaper.
#
#   docker build --build-arg VERSION=0.1.0 --build-arg REVISION="$(git rev-parse HEAD)" -t REGISTRY/gameday:0.1.0 .
#
# docs/install.md says what it needs and how to give it the GPU libraries (--target gpu). `make image` builds it without
# a registry. Of the base it takes python3 with venv, and Debian's essential programs.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# First, so that this layer lasts until the lock changes. --no-deps: the lock is complete. Only wheels: nothing is
# compiled here.
COPY requirements.lock ./
RUN python3 -m venv /build \
    && /build/bin/pip download --quiet --require-hashes --no-deps --only-binary :all: --dest /wheels --requirement requirements.lock
COPY LICENSE README.md prefect.yaml pyproject.toml ./
COPY deploy deploy
COPY docs/runbooks docs/runbooks
COPY flows flows
COPY gameday gameday
COPY plans plans
COPY tasks tasks
COPY templates templates
# The packages that the image has beside the core: each that is copied here is built and installed.
COPY packages/control-plane packages/control-plane
COPY packages/fleet packages/fleet
COPY packages/node-health packages/node-health
# The build back end is the lock's as well. No index from here on: what is installed was checked against its hash above,
# and of the lock only what the program itself needs goes into the image.
RUN /build/bin/pip install --quiet --no-index --find-links /wheels hatchling \
    && /build/bin/pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir /wheels . ./packages/*/ \
    && python3 -m venv --without-pip /opt/gameday \
    && /build/bin/pip --python /opt/gameday/bin/python install --quiet --no-index --find-links /wheels /wheels/gpu_gameday*.whl \
    && /build/bin/pip --python /opt/gameday/bin/python check \
    # A tenth of the image: pandas', numpy's and pyarrow's own tests.
    && find /opt/gameday -type d -name tests -prune -exec rm -r {} + \
    && ln -s /opt/gameday/lib/python3*/site-packages/gameday/_shipped /opt/gameday/shipped

# CuPy, CUDA's libraries and NCCL, with which the agent's QA works on the GPUs; some 3.5 GB that only it needs.
FROM build AS build-gpu
COPY requirements-gpu.lock ./
RUN /build/bin/pip download --quiet --require-hashes --no-deps --only-binary :all: --dest /wheels --requirement requirements-gpu.lock \
    && /build/bin/pip --python /opt/gameday/bin/python install --quiet --no-index --find-links /wheels "gpu-gameday[gpu]" \
    && rm -r /wheels

# The library of the fault cuda_error, which owners of jobs copy into their pods (docs/cuda-errors.md). Zig's libc reaches
# back to glibc 2.17, so that it loads in any image that CUDA runs in.
FROM ${BASE} AS cuda-error
WORKDIR /src
COPY requirements-cc.lock ./
RUN python3 -m venv /cc && /cc/bin/pip install --quiet --no-cache-dir --require-hashes --no-deps --only-binary :all: -r requirements-cc.lock
COPY deploy deploy
RUN /cc/bin/python -m ziglang cc -target "$(uname -m)-linux-gnu.2.17" -std=gnu11 -O2 -shared -fPIC -fvisibility=hidden -s \
    -o /libgameday-cuda-error.so deploy/cuda-error/cuda_error.c -ldl -pthread

FROM ${BASE} AS runtime
ARG VERSION=0.0.0+unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="gpu-gameday" \
    org.opencontainers.image.description="Chaos game-days for GPU Kubernetes clusters: agent, node-health controller, runner, reaper." \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
COPY --from=cuda-error /libgameday-cuda-error.so /opt/gameday/lib/
# The agent enters the host's namespaces with nsenter, and its readiness probe is a cat: a base without them fails here
# and not on the node.
RUN nsenter --version && cat --version \
    && groupadd --gid 65532 gameday \
    && useradd --key UID_MAX=65532 --uid 65532 --gid gameday --home-dir /var/lib/gameday --create-home --shell /usr/sbin/nologin gameday
# USER: clusters that choose the user ID leave it without a name, and a report names its operator.
ENV PATH=/opt/gameday/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/var/lib/gameday \
    USER=gameday
WORKDIR /var/lib/gameday
USER 65532:65532
# The agent's pods give only arguments (-m gameday.agent); everything else names its own command.
ENTRYPOINT ["python"]
CMD ["-m", "gameday.cli", "--help"]

FROM runtime AS gpu
COPY --from=build-gpu /opt/gameday /opt/gameday

# The last stage is what is built without --target.
FROM runtime AS lean
COPY --from=build /opt/gameday /opt/gameday
