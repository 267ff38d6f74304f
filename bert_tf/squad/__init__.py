"""Extractive question answering: where in a context is the answer to a question?

In the order in which a question meets them:

    data         SQuAD files or tensorflow-datasets -> questions; in training, the answers' words
    windows      questions -> windows, the model's input sequences; the answer's place; TFRecords
    model        windows -> start and end logits of each piece
    alignment    pieces -> the text of the context that they stand for
    answers      logits -> the n best answers, and null odds: how much likelier no answer is
    thresholds   null odds above which a question counts as unanswerable; the best threshold
    evaluation   answers -> exact match and F1, as the official scripts define them
    prediction   questions -> windows once -> answers of any state of a model
    files        answers -> predictions.json, nbest_predictions.json, null_odds.json, and back
    report       answers -> report.html, a page that shows them

windows, alignment, answers, thresholds, evaluation and report are pure functions; their docstrings
draw an example each, which the tests execute.
"""
