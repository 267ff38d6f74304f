# Data, training and everything else that `bert-tf` does:
#
#     docker build --tag bert-tf .
#     docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/work" bert-tf \
#         classify --task_name=csv --data_dir=mine --text_a_column=text --label_column=topic \
#         --do_train --do_eval --init_checkpoint=all-MiniLM-L6-v2 --output_dir=topics
#
# Paths are those in the folder that is mounted at /work. For NVIDIA GPUs, which need 3 GB more:
#
#     docker build --build-arg GPU=1 --tag bert-tf-gpu .
#     docker run --rm --gpus=all ... bert-tf-gpu ...
#
# `docker stop -t 60` leaves a training run the time to save; the same command resumes it.
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

ARG EXTRAS=tasks,plot,vocab,wiki,hub,serve,litert,onnx
ARG GPU=
WORKDIR /source
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt \
    ".[${EXTRAS}]" ${GPU:+"tensorflow[and-cuda]"}

# Any user may run it: Matplotlib and others keep files in the home folder.
ENV HOME=/tmp
WORKDIR /work
ENTRYPOINT ["bert-tf"]
CMD ["--help"]
