"""Extractive question answering: where in a context is the answer to a question?

In the order in which a question meets them:

    reading          SQuAD files -> questions; in training, the words of each answer
    tfds             the same from tensorflow-datasets
    windows          questions -> windows of pieces that a model takes; where the answer is in them
    window_records   windows -> TFRecords
    model            windows -> a logit for each piece to begin the answer, and to end it
    alignment        pieces -> the text of the context they stand for
    answers          logits -> the best answers, and by how much none is likelier
    thresholds       from which odds on a question counts as without answer; the best such threshold
    evaluation       answers -> exact match and F1, as the official scripts define them
    files            answers -> predictions.json, nbest_predictions.json, null_odds.json, and back
    report           answers -> report.html, a page to look at them

windows, alignment, answers, thresholds, evaluation and report are functions of their arguments
alone; an example is drawn at each, and tests execute it.
"""
