# SPDX-License-Identifier: Apache-2.0
"""PyTorch in forked children: what one does before its recording has begun is counted."""
import pytest

from test_torch import find_torch
from test_torch_exit import IS_RECORDED

AT_ONCE = """
import os, torch
""" + IS_RECORDED + """
torch.set_num_threads(1)
m, x = torch.nn.Linear(3, 3), torch.ones(2, 3)
opt = torch.optim.SGD(m.parameters(), lr=0.1)
def train():
    m(x)
    for p in m.parameters(): p.grad = torch.ones_like(p)
    opt.step()
while not is_recorded(): pass
train()
for child in range(6):
    if os.fork() == 0:
        for _ in range(25): train()
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize("kind", ["debian", pytest.param("recent", marks=pytest.mark.slow)])
def test_a_child_that_trains_at_once(kind, record, convert, sql):
    """It begins to be recorded at its first call. Each step has a module's call and an optimizer's step: both are recorded or counted."""
    path, why = find_torch(kind)
    if not path:
        pytest.skip(why)
    db = convert(record(AT_ONCE, python=path).trace)
    children = sql(db, """SELECT (SELECT count(*) FROM torch_trace c WHERE c.trace_id = t.id), (SELECT count(*) FROM steps s WHERE s.trace_id = t.id),
        (SELECT sum(count) FROM loss l WHERE l.trace_id = t.id AND l.reason = 'no_ring') FROM trace t WHERE how = 'fork'""")
    assert len(children) == 6
    assert [calls + steps + (lost or 0) for calls, steps, lost in children] == [50] * 6, children
