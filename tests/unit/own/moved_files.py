"""Files of users' own whose batches are objects of a class with `to(device)`, as those of graphs and of texts."""

# Kept in `__dict__` and told as torch_geometric's Batch does it; moves itself in place, and returns itself.
GRAPHS = """\
import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Graphs:
    def __init__(self, x, y, owner):
        self.store, self.y = {"x": x, "owner": owner}, y
        self.store["graphs"] = self  # as parts know what they are of

    @property
    def num_graphs(self):
        return len(self.y)

    def to(self, device):
        self.store.update({name: self.store[name].to(device) for name in ("x", "owner")})
        self.y = self.y.to(device)
        return self


class Many(Dataset):
    def __init__(self, first):
        self.first = first

    def __len__(self):
        return 64

    def __getitem__(self, index):
        x = torch.randn(2 + index % 3, 5, generator=torch.Generator().manual_seed(self.first + index))
        return x, int(x.sum() > 0)


def together(items):
    owner = torch.cat([torch.full((len(x),), place) for place, (x, _) in enumerate(items)])
    return Graphs(torch.cat([x for x, _ in items]), torch.tensor([y for _, y in items]), owner)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.nodes, self.head = nn.Linear(5, 16), nn.Linear(16, 2)

    def forward(self, graphs):
        x = self.nodes(graphs.store["x"]).relu()
        return self.head(x.new_zeros(graphs.num_graphs, 16).index_add(0, graphs.store["owner"], x))


class Lit(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self.net(batch), batch.y)
        SEEN.append(loss.detach())
        self.log("loss", loss, batch_size=batch.num_graphs)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)

    def train_dataloader(self):
        return DataLoader(Many(0), batch_size=8, sampler=ORDER, shuffle=ORDER is None, collate_fn=together)

    def val_dataloader(self):
        return DataLoader(Many(1000), batch_size=8, collate_fn=together)


SEEN, ORDER = [], None
Points = int  # what a Trainer would take beside the module


class Workload:
    batch_size, learning_rate = 8, 1e-2
    collate_fn = staticmethod(together)

    def data(self):
        return Many(0), Many(1000)

    def model(self):
        return Net()

    def loss(self, net, graphs):
        scores = net(graphs)
        return F.cross_entropy(scores, graphs.y), (scores.argmax(1) == graphs.y).float().mean()
"""
