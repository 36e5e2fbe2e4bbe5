# The sync gateway and the compare service. Not tried yet: the image has never been built.
#   docker build -t driftline . && docker run -p 8787:8787 -v driftline:/data -e DRIFTLINE_JWT_SECRET driftline
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY requirements ./requirements
COPY src ./src
RUN python -m venv /opt/driftline \
    && /opt/driftline/bin/pip install --no-cache-dir --require-hashes -r requirements/image.lock \
    && /opt/driftline/bin/pip install --no-cache-dir --no-deps .

FROM python:3.11-slim
COPY --from=build /opt/driftline /opt/driftline
RUN useradd --system --home-dir /data --create-home driftline
USER driftline
VOLUME /data
EXPOSE 8787
HEALTHCHECK --interval=30s --timeout=5s CMD \
    ["/opt/driftline/bin/python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8787/health', timeout=4)"]
ENTRYPOINT ["/opt/driftline/bin/driftline", "gateway", "serve", "--host", "0.0.0.0", "--port", "8787", "--data", "/data"]
CMD ["--gateway", "main"]
