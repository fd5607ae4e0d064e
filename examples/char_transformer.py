"""A character-level transformer on sums: `laptime optimize examples/char_transformer.py:workload`.

Each sample is a text such as `   407+95=502`, right-aligned, and the net learns to predict each next character; the
texts are generated, so nothing is downloaded. The accuracy is that of the last two digits.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

ALPHABET = "0123456789+= "
LENGTH = 14


def make_texts(count: int, seed: int) -> torch.Tensor:
    """Sums of two numbers below 1000 as codes [count, LENGTH]."""
    pairs = torch.randint(0, 1000, (count, 2), generator=torch.Generator().manual_seed(seed)).tolist()
    texts = [f"{a}+{b}={a + b}".rjust(LENGTH) for a, b in pairs]
    return torch.tensor([[ALPHABET.index(c) for c in text] for text in texts])


class Texts(torch.utils.data.Dataset):
    """Pairs of input and target, shifted by one character."""

    def __init__(self, count: int, seed: int) -> None:
        self.codes = make_texts(count, seed)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.codes[index, :-1], self.codes[index, 1:]


class Transformer(nn.Module):
    """Two causal layers over learnt positions."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(ALPHABET), width)
        self.places = nn.Parameter(torch.zeros(LENGTH - 1, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(ALPHABET))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH - 1))

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Codes [B, LENGTH - 1] to scores of the next character [B, LENGTH - 1, characters]."""
        return self.head(self.layers(self.characters(codes) + self.places, mask=self.mask, is_causal=True))


class CharTransformer:
    """What laptime asks for: data, model, loss."""

    name = "char-transformer"
    batch_size = 64
    learning_rate = 3e-3

    def data(self):
        """Training and test data."""
        return Texts(20_000, seed=0), Texts(2_000, seed=1)

    def model(self):
        """The net."""
        return Transformer()

    def loss(self, model, batch):
        """Cross-entropy over all characters, and the share of the last two digits that are right."""
        codes, following = batch
        scores = model(codes)
        right = (scores[:, -2:].argmax(dim=-1) == following[:, -2:]).float().mean()
        return F.cross_entropy(scores.flatten(0, 1), following.flatten()), right

    def optimizer(self, parameters, lr):
        """AdamW, as transformers are trained."""
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01)


workload = CharTransformer()
