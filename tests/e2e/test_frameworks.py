# SPDX-License-Identifier: Apache-2.0
"""Trainings with other people's frameworks: bare, recorded at 1 kHz, and injected into again and again. Each loss must be equal to the bit,
and so must the end. servers_session.py starts, injects and compares; tests/README.md says how to install the frameworks.
"""
import shutil

import pytest
import servers_session
from servers_session import compare_script, needs

pytestmark = [pytest.mark.slow, pytest.mark.limit(1200)]
interpreter = servers_session.interpreter  # a fixture

# As in test_servers_scripts.py, each prints "pids ..." when it is at work, and at last its results as JSON.
SCRIPTS = {
    "jax": (["jax"], '''
import json, os
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp
from work import handle

@jax.jit
def step(w, x, y):
    loss, grad = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(w)
    return w - 0.1 * grad, loss

key = jax.random.PRNGKey(0)
w = jax.random.normal(key, (32, 8))
losses, mine = [], []
print("pids", os.getpid(), flush=True)
for n in range(300):
    x = jax.random.normal(jax.random.fold_in(key, n), (64, 32))
    w, loss = step(w, x, jnp.sin(x[:, :8]))
    losses.append(float(loss).hex())
    mine.append(handle(n))
print(json.dumps([losses, mine]))
'''),
    "accelerate": (["torch", "accelerate", "transformers"], '''
import json, os
import torch
from accelerate import Accelerator
from transformers import GPT2Config, GPT2LMHeadModel
from work import handle

torch.manual_seed(0)
torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.utils.data.DataLoader(torch.randint(0, 64, (320, 16)), batch_size=4, shuffle=True)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
print("pids", os.getpid(), flush=True)
losses, mine = [], []
for epoch in range(2):
    for n, batch in enumerate(data):
        loss = model(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
        mine.append(handle(n))
print(json.dumps([losses, mine]))
'''),
    "lightning": (["torch", "lightning"], '''
import json, logging, os
import torch
import lightning
from work import handle

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
lightning.seed_everything(0, verbose=False)
torch.set_num_threads(1)

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
        self.losses, self.mine = [], []
    def training_step(self, batch, n):
        x, = batch
        loss = (self.net(x) - x.sum(1, keepdim=True)).square().mean()
        self.losses.append(loss.item().hex())
        self.mine.append(handle(n))
        return loss
    def validation_step(self, batch, n):
        self.mine.append(handle(n))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

if __name__ == "__main__":
    model = Model()
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(400, 32)), batch_size=4, num_workers=2)
    trainer = lightning.Trainer(accelerator="cpu", max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False)
    print("pids", os.getpid(), flush=True)
    trainer.fit(model, data, data)
    print(json.dumps([model.losses, model.mine]))
'''),
    "deepspeed": (["torch", "deepspeed"], '''
import json, os
os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
import torch
import deepspeed
from work import handle

torch.manual_seed(0)
torch.set_num_threads(1)
deepspeed.init_distributed("gloo")
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    config={"train_batch_size": 4, "zero_optimization": {"stage": 0}})
print("pids", os.getpid(), flush=True)
losses, mine = [], []
for n in range(200):
    x = torch.randn(4, 32)
    loss = (engine(x) - x.sum(1, keepdim=True)).square().mean()
    engine.backward(loss)
    engine.step()
    losses.append(loss.item().hex())
    mine.append(handle(n))
torch.distributed.destroy_process_group()
print(json.dumps([losses, mine]), flush=True)
'''),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_framework(build, tmp_path, interpreter, name):
    modules, text = SCRIPTS[name]
    needs(interpreter, *modules)
    if name == "deepspeed" and not shutil.which("ninja"):
        pytest.skip("there is no ninja, by which deepspeed builds its C++ (Debian: ninja-build)")
    compare_script(build, tmp_path, interpreter, name, text)
