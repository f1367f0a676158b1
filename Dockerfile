# SPDX-License-Identifier: Apache-2.0
# docker build -t securevfl . && docker run --rm -v "$PWD:/data" securevfl run fedvs
FROM python:3.12-slim
LABEL org.opencontainers.image.title="securevfl" org.opencontainers.image.licenses="Apache-2.0"

# The build of torch without CUDA, in a layer of its own: it changes seldom and is the largest.
RUN pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu
COPY . /source
RUN pip install --no-cache-dir '/source[all]' && rm -r /source

# Nobody needs to be root to train.
RUN useradd --create-home securevfl && mkdir /data && chown securevfl /data
USER securevfl
WORKDIR /data
ENTRYPOINT ["securevfl"]
CMD ["--help"]
