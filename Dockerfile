# One image for every part of belog; the command chooses the part.
FROM python:3.12-slim AS build
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM python:3.12-slim
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
COPY --from=build /dist /dist
RUN pip install --no-cache-dir "$(echo /dist/belog-*.whl)[all]" \
    && rm -r /dist \
    && useradd --system --uid 10001 --create-home belog
USER belog
WORKDIR /home/belog
ENTRYPOINT ["belog"]
CMD ["--help"]
