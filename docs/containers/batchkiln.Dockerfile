# The program as a container, with the extras for a queue in PostgreSQL and for watched folders. The queue or the
# journals of attempts, and the results, are below /data, which has to be a volume.
# docker build -f docs/containers/batchkiln.Dockerfile -t batchkiln .
FROM python:3.11-slim
RUN useradd --create-home --uid 10001 batchkiln \
    && mkdir /data \
    && chown batchkiln /data
ARG EXTRAS=postgres,watch
# The libraries are a layer of their own. It is built again when their list changes, not with each change of the source.
# Their versions are those with which the tests passed last.
COPY pyproject.toml docs/containers/libraries.py docs/containers/constraints.txt /src/
RUN python /src/libraries.py "${EXTRAS}" > /src/libraries.txt \
    && pip install --no-cache-dir -c /src/constraints.txt -r /src/libraries.txt
COPY README.md LICENSE /src/
COPY src /src/src
COPY docs /src/docs
RUN pip install --no-cache-dir "/src[${EXTRAS}]" \
    && rm -r /src
USER 10001
WORKDIR /data
VOLUME /data
# Neither is below the home of a user: `docker run --user` may name one that has none.
ENV XDG_STATE_HOME=/data/state XDG_CACHE_HOME=/tmp/cache
STOPSIGNAL SIGTERM
ENTRYPOINT ["batchkiln"]
