# TensorFlow Serving with one model inside, from the folder that `bert-tf export` wrote:
#
#     bert-tf export --init_checkpoint=/models/mrpc --export_dir=/serving/mrpc
#     docker build --file examples/serving/tensorflow_serving.Dockerfile --build-arg MODEL_NAME=mrpc --tag mrpc-server /serving/mrpc
#     docker run --rm --publish 8500:8500 --publish 8501:8501 mrpc-server
#
# The server answers at http://localhost:8501/v1/models/mrpc once it has run the warm-up requests.
ARG TAG=latest
FROM tensorflow/serving:${TAG}

ARG MODEL_NAME=model
ENV MODEL_NAME=${MODEL_NAME}
COPY . /models/${MODEL_NAME}
# A damaged export ends the build, not the server.
RUN for version in /models/${MODEL_NAME}/*/; do \
        cd "${version}" && sha256sum --check --quiet SHA256SUMS || exit 1; \
    done
