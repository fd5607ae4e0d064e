"""What trainings of a user's own are composed of, see tests/composed.py."""

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


class Items(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Noisy(Items):
    def __getitem__(self, index):
        return self.x[index] + 0.1 * torch.randn(self.x[index].shape), self.y[index]


class Turned(Items):
    def __getitem__(self, index):
        return self.x[index] if random.random() < 0.5 else self.x[index].flip(-1), self.y[index]


class Named(Items):
    def __getitem__(self, index):
        return {"inputs": self.x[index], "labels": self.y[index], "name": f"sample {index}"}


class AtOnce(Items):
    def __getitems__(self, indices):
        return [self[index] for index in indices]
"""
DATA = {
    "tensors": "TensorDataset(x, y)",
    "items": "Items(x, y)",
    "noisy": "Noisy(x, y)",
    "turned": "Turned(x, y)",
    "named": "Named(x, y)",
    "at-once": "AtOnce(x, y)",
    "several": "ConcatDataset([Subset(Items(x, y), range(20)), TensorDataset(x[20:], y[20:])])",
}
DRAWING = ("noisy", "turned")
LOSSES = {
    "plain": "F.cross_entropy(scores, y)",
    "smoothed": "F.cross_entropy(scores, y, label_smoothing=0.1)",
    "classes": "F.cross_entropy(scores, y, weight=torch.tensor([0.3, 1.0, 2.0]).double())",
    "penalty": "F.cross_entropy(scores, y) + 1e-2 * sum(p.square().sum() for p in model.parameters())",
    "hardest": "F.cross_entropy(scores, y, reduction='none').topk(max(1, len(y) // 2))[0].mean()",
    "pairs": "F.cross_entropy(scores, y) + 0.1 * F.cross_entropy(scores @ scores.T, torch.arange(len(y)))",
    "twice": "F.cross_entropy(scores, y) + F.mse_loss(model(x), scores.detach())",
    "drawn": "F.cross_entropy(scores + 0.1 * torch.randn_like(scores), y)",
    "teacher": "F.cross_entropy(scores, y) + F.mse_loss(scores, self.taught(model, x))",
    "warmed": "F.cross_entropy(scores, y) * self.counted(model)",
}
OPTIMIZERS = {
    "default": "",
    "sgd": "torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=5e-3, nesterov=True)",
    "adamw": "torch.optim.AdamW(parameters, lr=lr, weight_decay=0.05, amsgrad=True)",
    "rmsprop": "torch.optim.RMSprop(parameters, lr=lr, momentum=0.5)",
    "adagrad": "torch.optim.Adagrad(parameters, lr=lr)",
    "nadam": "torch.optim.NAdam(parameters, lr=lr)",
    "groups": "torch.optim.AdamW([{'params': [p], 'lr': lr * (1 + p.dim())} for p in parameters], lr=lr)",
}
SCHEDULES = {
    "constant": "",
    "cosine": "CosineAnnealingLR(optimizer, steps_per_epoch * epochs)",
    "cycle": "OneCycleLR(optimizer, max_lr=2e-2, total_steps=steps_per_epoch * epochs)",
    "two": "SequentialLR(optimizer, [LinearLR(optimizer, 0.1, total_iters=3), ExponentialLR(optimizer, 0.95)], [3])",
}
MIXED = """
    def collate_fn(self, items):
        x, y = torch.utils.data.default_collate(items)
        share = random.uniform(0.5, 1)
        return share * x + (1 - share) * x.roll(1, 0), y, share

    test_collate_fn = staticmethod(torch.utils.data.default_collate)
"""
# What these losses keep beside the net.
TAUGHT = """
    def taught(self, model, x):
        with torch.no_grad():
            if model.training:
                for own, weight in zip(self.teacher.parameters(), model.parameters()):
                    own.lerp_(weight, 0.1)
            return self.teacher(x)
"""
COUNTED = """
    def counted(self, model):
        if model.training:
            self.passes += 1
        return (self.passes / 10).clamp(max=1.0)
"""
JUDGED = """
    def evaluate(self, model, batches):
        right = [(model(x + DRAWN).argmax(1) == y).double() for x, y in map(self.both, batches)]
        return torch.cat(right).mean()
"""
