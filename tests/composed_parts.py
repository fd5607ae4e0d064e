"""What such trainings have beside their nets, see tests/composed.py."""

ITEMS = """
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
    "margin": "F.multi_margin_loss(scores, y)",
    "squares": "F.mse_loss(scores.softmax(1), F.one_hot(y, 3).double())",
    "even": "F.cross_entropy(scores, y) + F.kl_div(scores.log_softmax(1), 0 * scores + 1 / 3, reduction='batchmean')",
    "history": "F.cross_entropy(scores, y) + 0.1 * self.remembered(model, scores)",
    "teacher": "F.cross_entropy(scores, y) + F.mse_loss(scores, self.taught(model, x))",
    "warmed": "F.cross_entropy(scores, y) * self.counted(model)",
}
OPTIMIZERS = {
    "default": "",
    "sgd": "torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=5e-3, nesterov=True)",
    "adamw": "torch.optim.AdamW(parameters, lr=lr, weight_decay=0.05, amsgrad=True)",
    "rmsprop": "torch.optim.RMSprop(parameters, lr=lr, momentum=0.5)",
    "adagrad": "torch.optim.Adagrad(parameters, lr=lr)",
    "adadelta": "torch.optim.Adadelta(parameters, lr=lr)",
    "radam": "torch.optim.RAdam(parameters, lr=lr)",
    "nadam": "torch.optim.NAdam(parameters, lr=lr)",
    "groups": "torch.optim.AdamW([{'params': [p], 'lr': lr * (1 + p.dim())} for p in parameters], lr=lr)",
}
SCHEDULES = {
    "constant": "",
    "cosine": "CosineAnnealingLR(optimizer, steps_per_epoch * epochs)",
    "cycle": "OneCycleLR(optimizer, max_lr=2e-2, total_steps=steps_per_epoch * epochs, cycle_momentum=False)",
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
REMEMBERED = """
    def remembered(self, model, scores):
        if model.training:
            self.past = [*self.past[-2:], scores.detach().mean(0)]
        return sum((scores.mean(0) - each).square().sum() for each in self.past)
"""
JUDGED = """
    def evaluate(self, model, batches):
        right = [(model(x + DRAWN).argmax(1) == y).double() for x, y in map(self.both, batches)]
        return torch.cat(right).mean()
"""
