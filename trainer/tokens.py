"""Tokenizers: the model's own, or for models with random weights a byte-level one that needs no download.

The byte-level vocabulary is the 256 bytes and six marks, so that any text of any language has ids below 262.
"""

from typing import TYPE_CHECKING, Any

from ..record.errors import ConfigError, first_line
from .shapes import SHAPES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_MARKS = ("<pad>", "<bos>", "<end>", "<system>", "<user>", "<assistant>")
_CHAT = (
    "{{ bos_token }}{% for message in messages %}<{{ message.role }}>{{ message.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
_PLAIN_CHAT = (
    "{{ bos_token }}{% for message in messages %}### {{ message.role }}\n{{ message.content }}"
    "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}\n\n{% endfor %}"
    "{% if add_generation_prompt %}### assistant\n{% endif %}"
)
"""For base models that come without a chat template of their own."""


def tokenizer_for(model: str) -> Any:
    """The tokenizer that goes with `--model`; ConfigError where there is none to load."""
    if model in SHAPES:
        return byte_tokenizer()
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(f"--model {model}: its tokenizer does not load: {first_line(error)}") from None
    if tokenizer.chat_template is None:
        tokenizer.chat_template = _PLAIN_CHAT
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def byte_tokenizer() -> "PreTrainedTokenizerFast":
    """UTF-8 bytes as tokens 0 to 255, then the marks of a chat."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in _MARKS])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<bos>", eos_token="<end>")
    fast.chat_template = _CHAT
    return fast
