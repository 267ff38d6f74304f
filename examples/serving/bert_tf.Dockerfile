# An image with `bert-tf serve` alone, built from the root of the repository. requirements.txt locks
# its packages by their hashes (`make lock` updates it):
#
#     docker build --file examples/serving/bert_tf.Dockerfile --tag bert-tf-serve .
#     docker run --rm --publish 8501:8501 --stop-timeout=40 \
#         --mount type=bind,source="$PWD/serving/mrpc",target=/models/mrpc,readonly \
#         bert-tf-serve /models/mrpc
#
# Further flags follow the path. After `docker stop` the server answers the requests that it has
# (--drain_seconds, 30 by default); --stop-timeout must leave time for that. It runs without root.
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

COPY examples/serving/requirements.txt /
RUN pip install --no-cache-dir --require-hashes --requirement /requirements.txt
COPY . /source
RUN pip install --no-cache-dir --no-deps --no-build-isolation /source && rm -r /source

ENV HOME=/tmp
USER 65534:65534
EXPOSE 8501
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8501/readyz', timeout=4)"]
ENTRYPOINT ["bert-tf", "serve", "--host=0.0.0.0"]
CMD ["/models/model"]
