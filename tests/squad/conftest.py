"""What several files of this folder use, made once."""

import pytest


@pytest.fixture(scope="session")
def tokenizers():
    """Tokenizers of the small vocabulary, by do_lower_case."""
    import small_squad  # not above: it starts TensorFlow, before devices are configured

    return {lower: small_squad.make_tokenizer(do_lower_case=lower) for lower in (True, False)}
