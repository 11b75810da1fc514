# The image of jobs on a cluster (docs/clusters.md) and of anything else: docker run IMAGE mdcr ...
# docker build -t mdcr .                              for a CPU
# docker build -t mdcr --build-arg FAISS=gpu .          for NVIDIA GPUs; the host brings the driver
FROM python:3.11-slim
ARG FAISS=cpu
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/mdcr
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY pipeline pipeline
RUN if [ "$FAISS" = cpu ]; then export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu; fi \
 && pip install --no-cache-dir -c constraints.txt ".[$FAISS,demo,neighbours,facets]"
WORKDIR /work
CMD ["mdcr", "--help"]
