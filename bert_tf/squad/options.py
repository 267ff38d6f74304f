"""The options of questions: windows and answers. Loads no TensorFlow."""



SPECIAL_PIECES = 3  # [CLS] question [SEP] context [SEP]
