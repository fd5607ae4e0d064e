"""Nets of trainings of a user's own that are put together by chance, see tests/composed.py."""

# Kinds of inputs, of B samples each.
INPUTS = {
    "rows": "torch.randn(count, 10, generator=seeded)",
    "images": "torch.randn(count, 3, 8, 8, generator=seeded)",
    "sequences": "torch.randn(count, 6, 4, generator=seeded)",
    "volumes": "torch.randn(count, 2, 4, 4, 4, generator=seeded)",
}
NETS = {
    "mlp": ("rows", "nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3))"),
    "dropout": ("rows", "nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))"),
    "batchnorm": ("rows", "nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 3))"),
    "frozen": ("rows", "nn.Sequential(nn.Linear(10, 16).requires_grad_(False), nn.Tanh(), nn.Linear(16, 3))"),
    "weight-norm": ("rows", "nn.Sequential(weight_norm(nn.Linear(10, 16)), nn.Tanh(), nn.Linear(16, 3))"),
    "orthogonal": ("rows", "nn.Sequential(orthogonal(nn.Linear(10, 10)), nn.Tanh(), nn.Linear(10, 3))"),
    "depth": ("rows", "Depth()"),
    "tied": ("rows", "Tied()"),
    "mean": ("rows", "Centred()"),
    "convolutions": ("images", "convolutions()"),
    "groups": ("images", "groups()"),
    "wide": ("images", "wide()"),
    "volume": ("volumes", "volume()"),
    "residual": ("images", "Residual()"),
    "recurrent": ("sequences", "Recurrent()"),
    "attention": ("sequences", "Attention()"),
    "line": ("sequences", "line()"),
    "cell": ("sequences", "Cell()"),
    "transposed": ("images", "transposed()"),
    "circular": ("images", "circular()"),
    "checkpointed": ("rows", "Checkpointed()"),
    "spectrum": ("rows", "Spectrum()"),
    "bilinear": ("rows", "Products()"),
    "pruned": ("rows", "pruned()"),
    "leaky": ("rows", "nn.Sequential(nn.Linear(10, 16), nn.RReLU(), nn.AlphaDropout(0.2), nn.Linear(16, 3))"),
    "counting": ("rows", "Counting()"),
}
DEFINED = """
def convolutions():
    first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
    others = [nn.Conv2d(8, 8, 3, stride, padding=1) for stride in (2, 1)]
    return nn.Sequential(first, nn.BatchNorm2d(8), nn.ReLU(), *others, nn.ReLU(), nn.Flatten(), nn.Linear(32, 3))


def groups():
    apart = nn.Conv2d(3, 6, 3, padding=1, groups=3), nn.GroupNorm(2, 6), nn.SiLU()
    deep = nn.Conv2d(6, 6, 3, padding=2, dilation=2, groups=6), nn.Conv2d(6, 8, 1)
    return nn.Sequential(*apart, *deep, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


def wide():
    seen = nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, (3, 5), padding=(1, 2))
    return nn.Sequential(nn.AvgPool2d(4), *seen, nn.Flatten(), nn.Linear(32, 3))


def volume():
    seen = nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(4, 4, 3, padding=1)
    return nn.Sequential(*seen, nn.Flatten(), nn.Linear(32, 3))


def line():
    seen = nn.Conv1d(6, 8, 3, padding=1), nn.InstanceNorm1d(8, affine=True), nn.ReLU(), nn.Conv1d(8, 8, 5, padding=2)
    return nn.Sequential(*seen, nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(8, 3))


def transposed():
    seen = nn.Conv2d(3, 8, 3, 2, 1), nn.ELU(), nn.ConvTranspose2d(8, 4, 4, stride=2, padding=1), nn.Hardswish()
    return nn.Sequential(*seen, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3))


def circular():
    norms = nn.BatchNorm2d(8, track_running_stats=False), nn.BatchNorm2d(8, momentum=None)
    seen = nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular"), norms[0], nn.ReLU(), nn.Conv2d(8, 8, 1), norms[1]
    return nn.Sequential(*seen, nn.PReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(32, 3))


def pruned():
    net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3))
    prune.l1_unstructured(net[0], "weight", 0.4)
    return net


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.GRUCell(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        state = x.new_zeros(len(x), 8)
        for place in range(x.shape[1]):
            state = self.cell(x[:, place], state)
        return self.last(state)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 16))
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        return self.last(checkpoint(self.body, x, use_reentrant=False))


class Spectrum(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.last = nn.Parameter(torch.randn(6, 8, dtype=torch.cdouble) * 0.3), nn.Linear(8, 3)

    def forward(self, x):
        return self.last((torch.fft.rfft(x) @ self.weight).abs())


class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.both, self.last = nn.Bilinear(5, 5, 8), nn.Linear(8, 3)
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))])

    def forward(self, x):
        return self.last(self.both(x[:, :5], x[:, 5:]) * self.scales[0] + self.scales[1])


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.last, self.calls = nn.Linear(10, 3), 0

    def forward(self, x):
        self.calls += self.training
        return self.last(x) * (1 + 0.01 * self.calls)


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(10, 16), nn.Linear(16, 3)
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        x = torch.relu(self.first(x))
        for block in self.blocks:
            if not self.training or torch.rand(()) > 0.3:
                x = x + torch.relu(block(x))
        return self.last(x)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other, self.last = nn.Linear(10, 10), nn.Linear(10, 10), nn.Linear(10, 3)
        self.other.weight = self.one.weight

    def forward(self, x):
        return self.last(torch.relu(self.other(torch.relu(self.one(x)))))


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(10, 3)
        self.register_buffer("middle", torch.zeros(10))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.middle.lerp_(x.mean(0), 0.1)
        return self.last(x - self.middle)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.one, self.last = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 3)
        self.norm, self.drop = nn.BatchNorm2d(8), nn.Dropout(0.2)

    def forward(self, x):
        x = self.stem(x)
        for size in (4, 2):  # one convolution on maps of two sizes
            x = F.adaptive_avg_pool2d(x, size)
            x = x + F.relu(self.norm(self.one(x)))
        return self.last(self.drop(x.mean((2, 3))))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.last = nn.LSTM(4, 8, batch_first=True, num_layers=2, dropout=0.1), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.rnn(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.layer = nn.Linear(4, 8), nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.token, self.last = nn.Parameter(torch.randn(1, 1, 8) * 0.02), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.layer(torch.cat([self.token.expand(len(x), -1, -1), self.up(x)], 1))[:, 0])
"""
