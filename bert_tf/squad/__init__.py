"""Extractive question answering: where in a context is the answer to a question?

In the order in which a question meets them:

    data         SQuAD files or tensorflow-datasets -> questions; in training, the answers' words
    windows      questions -> windows, the model's input sequences; the answer's place; TFRecords
    run          windows -> start and end logits of each piece, in a run of fine-tuning
    answers      logits -> the n best answers as text, and null odds, high if there is hardly one
    evaluation   answers -> exact match and F1, as the official scripts define them; the best
                 threshold of null odds, above which the answer is ""
    files        answers -> predictions.json, nbest_predictions.json, null_odds.json
    answer_files predictions.json of any program -> answers
    report       answers -> report.html

windows, answers, evaluation and report are pure functions. Their docstrings have examples, which
the tests execute.
"""
