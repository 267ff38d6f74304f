#!/usr/bin/env bash
# The whole pipeline in minutes: raw text -> vocabulary -> TFRecords -> a BERT -> a classifier.
#
#     examples/demo.sh [FOLDER [STEPS]]
#
# The script writes everything into FOLDER (demo). With more than 7500 training STEPS the model
# predicts better. `make demo` installs the requirements and runs the script. The environment
# variable BERT_TF names another program than bert-tf, such as "python3 -m bert_tf".
set -eu
folder=${1:-demo} steps=${2:-7500}
if [[ $# -gt 2 || $folder == -* || ! $steps =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: $0 [FOLDER [STEPS]]" >&2
  exit 2
fi

quoted() { # a word as it must be typed into a shell
  if [[ $1 == *[^A-Za-z0-9=.,/_-]* ]]; then printf %s "${1@Q}"; else printf %s "$1"; fi
}
bert-tf() { # prints a command and runs it; if it fails, the demo ends with its exit code
  printf '\n$ bert-tf'
  for word; do printf ' %s' "$(quoted "$word")"; done
  printf '\n\n'
  ${BERT_TF:-command bert-tf} "$@"
}

mkdir -p -- "$folder"
cp -r -- "$(dirname -- "$0")"/../data_gen/sample_{text,topics} "$folder"

echo "=== 1. A WordPiece vocabulary, learned from the texts"
bert-tf vocab --input_file="$folder/sample_text/*.txt" --output_file="$folder/vocab.txt" \
  --vocab_size=1500
# initializer_range: with BERT's 0.02 so short a training does not leave its first plateau. Dropout
# is off, since the model is meant to learn these few texts by heart.
cat > "$folder/bert_config.json" << END
{
  "vocab_size": $(wc -l < "$folder/vocab.txt"), "max_position_embeddings": 24, "type_vocab_size": 2,
  "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512,
  "initializer_range": 0.1, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0
}
END

printf '\n%s\n' "=== 2. Pre-training records: sentence pairs with masked pieces"
echo "Where one sentence fills half a sequence, a random one follows: in 3 of 4 pairs here."
# Short sequences with many masks teach most in the least time. There are many passes over the
# texts, each with its own masks: with few, the model would learn the masks and not the texts.
sizes=(--max_seq_length=24 --max_predictions_per_seq=7)
bert-tf data --input_file="$folder/sample_text/*.txt" --output_file="$folder/train.tfrecord" \
  --vocab_file="$folder/vocab.txt" "${sizes[@]}" --masked_lm_prob=0.3 --dupe_factor=150
bert-tf data --input_file="$folder/sample_text/*.txt" --output_file="$folder/eval.tfrecord" \
  --vocab_file="$folder/vocab.txt" "${sizes[@]}" --masked_lm_prob=0.3 --dupe_factor=1 \
  --random_seed=54321

printf '\n%s\n' "=== 3. Pre-training: masked pieces and next sentences"
echo "Evaluated on the same texts with other masks, which shows what was learned by heart."
# Small batches make many updates, so these few texts are learned soon.
bert-tf pretrain --input_file="$folder/train.tfrecord" --output_dir="$folder/model" \
  --eval_input_file="$folder/eval.tfrecord" --bert_config_file="$folder/bert_config.json" \
  --vocab_file="$folder/vocab.txt" --do_train --do_eval "${sizes[@]}" \
  --num_train_steps="$steps" --num_warmup_steps=$((steps / 12)) --learning_rate=1e-3 \
  --train_batch_size=16 --eval_batch_size=24 --eval_steps=$((steps / 5)) \
  --log_steps=$((steps < 25 ? 1 : steps / 25))

printf '\n%s\n' "=== 4. Questions to the pre-trained model"
echo "The texts contain these or similar sentences, with flour, east, days, capital, freezes."
bert-tf fill-mask --init_checkpoint="$folder/model" \
  "Bread is made from [MASK], water and salt." \
  "The sun rises in the [MASK] and sets in the west." \
  "There are seven [MASK] in a week." \
  "The [MASK] of Spain is Madrid." \
  "Water [MASK] at zero degrees."
bert-tf plot --output_dir="$folder/model" --output_file="$folder/curves.png"

printf '\n%s\n' "=== 5. Fine-tuning: is a sentence about animals, food, travel or weather?"
echo "Trained on 240 sentences, evaluated on 80 others. Guessing would give 25 %."
bert-tf classify --task_name=csv --data_dir="$folder/sample_topics" --text_a_column=text \
  --label_column=topic --do_train --do_eval --init_checkpoint="$folder/model" \
  --output_dir="$folder/topics" --max_seq_length=24 --num_train_epochs=20 --learning_rate=5e-4 \
  --train_batch_size=16

printf '\n%s\n' "=== 6. Predictions for new sentences"
tee -- "$folder/new.txt" << END
A cold wind brings snow from the mountains.
The dog sleeps beside the horse.
We took the night train to Rome.
END
bert-tf predict --model="$folder/topics" --input_file="$folder/new.txt"

cat << END

=== Done in $((SECONDS / 60)) min $((SECONDS % 60)) s
  $folder/model/        the pre-trained model
  $folder/curves.png    its loss and accuracy
  $folder/topics/       the classifier, and its scores in eval_results.txt

Try both in the browser or the terminal (after \`make demo\` type \`. .venv/bin/activate\` first):

  bert-tf serve $(quoted "$folder/model")
  bert-tf serve $(quoted "$folder/topics")
  bert-tf predict --model=$(quoted "$folder/topics")

A model that knows more needs more text: README.md has the commands for your own text.
END
