"""The public names: for editors, and for `__init__.py`, which loads each at its first use."""

from bert_tf import heads as heads
from bert_tf import layers as layers
from bert_tf.checkpoints.loading import open_weights as open_weights
from bert_tf.checkpoints.matching import load_checkpoint as load_checkpoint
from bert_tf.checkpoints.saving import save_weights as save_weights
from bert_tf.config import BertConfig as BertConfig
from bert_tf.errors import InputError as InputError
from bert_tf.heads import make_model as make_model
from bert_tf.library.fit_models import classifier as classifier
from bert_tf.library.fit_models import question_answerer as question_answerer
from bert_tf.library.fit_models import token_classifier as token_classifier
from bert_tf.library.models import load as load
from bert_tf.modeling.lora import add_lora as add_lora
from bert_tf.modeling.models import BertModel as BertModel
from bert_tf.serving.predictor import Predictor as Predictor
from bert_tf.serving.pretrained import Scorer as Scorer
from bert_tf.tokenization.wordpiece import FullTokenizer as FullTokenizer
from bert_tf.training.optimization import make_optimizer as make_optimizer

__version__: str
