# The local service as a container, for tests of clients. docs/serve.md explains it.
# docker build -f docs/containers/serve.Dockerfile -t batchkiln-serve .
FROM python:3.11-slim
RUN useradd --create-home --uid 10001 batchkiln \
    && mkdir /data \
    && chown batchkiln /data
# The libraries are a layer of their own. It is built again when their list changes, not with each change of the source.
# Their versions are those with which the tests passed last.
COPY pyproject.toml docs/containers/libraries.py docs/containers/constraints.txt /src/
RUN python /src/libraries.py > /src/libraries.txt \
    && pip install --no-cache-dir -c /src/constraints.txt -r /src/libraries.txt
COPY README.md LICENSE /src/
COPY src /src/src
COPY docs /src/docs
RUN pip install --no-cache-dir /src \
    && rm -r /src
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=5s --start-period=10s --retries=3 CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8081/health', timeout=2)"]
ENTRYPOINT ["batchkiln", "serve", "--host", "0.0.0.0", "--port", "8080", "--operator-host", "0.0.0.0", "--operator-port", "8081", "--state-dir", "/data"]
