# SPDX-License-Identifier: Apache-2.0
"""Facts about the process: its environment without secrets, versions of what it loaded, the machine, and limits."""
import os
import platform
import shutil
import subprocess

import pytest

from record_until import record_until  # noqa: F401
from test_torch import find_torch

SCRIPT = """
import os
os.environ["NCCL_LATER"] = "set by the program"
os.environ["PYTORCH_GONE"] = "x"
"""


def facts(sql, db, view="environment", columns="key, value"):
    return dict(sql(db, "SELECT %s FROM %s" % (columns, view)))


def test_environment(record, convert, sql, monkeypatch):
    shown = {"NCCL_DEBUG": "INFO", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "SLURM_JOB_ID": "77", "CUDA_VISIBLE_DEVICES": "0,1",
             "OMP_NUM_THREADS": "3", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "GLOO_SOCKET_IFNAME": "eth0", "TORCH_HOME": "/t",
             "TORCHINDUCTOR_CACHE_DIR": "/c", "NCCL_ODD": "a=b c\u20ac"}
    hidden = {"HF_TOKEN": "s1", "AWS_SECRET_ACCESS_KEY": "s2", "HOME2": "s3", "SLURM_JWT": "s4", "NCCL_API_KEY": "s5", "MASTER_PASSWORD": "s6",
              "TORCH_Credentials": "s7", "CUDA_AUTH": "s8", "NCCL_PROXY": "http://user:s9@host/", "MYRANK": "s10", "WANDB_API_KEY": "s11"}
    for name, value in {**shown, **hidden}.items():
        monkeypatch.setenv(name, value)
    trace = record(SCRIPT).trace
    found = facts(sql, convert(trace))
    assert {k: found.get(k) for k in shown} == shown
    assert found["NCCL_LATER"] == "set by the program" and found["PYTORCH_GONE"] == "x"
    assert not set(hidden) & set(found)
    text = subprocess.run(["zstd", "-dcq", str(trace)], stdout=subprocess.PIPE, check=True, timeout=240).stdout
    for value in ("user:s9", "HF_TOKEN", "NCCL_API_KEY", "HOME2", "MYRANK"):
        assert value.encode() not in text, value


def test_secrets_by_any_name(record, convert, sql, monkeypatch):
    """None is a real one. What only resembles a secret is shown."""
    hidden = {"MASTER_PASS": "x1zqkv8w", "TORCH_DB_CREDS": "x2zqkv8w", "SLURM_JOB_CRED": "x3zqkv8w", "CUDA_GIT_PAT": "x4zqkv8w", "NCCL_DSN": "x5zqkv8w", "OMP_PASSPHRASE": "x6zqkv8w",
              "TORCH_HUB_URL": "https://ghx7@host/a", "TORCH_INDEX": "http://u:p/x8@host/", "SLURM_JOB_COMMENT": "lr=1 --wandb-api-key=x9",
              "TORCH_STORE": "https://host/a?sv=1&sig=x10", "NCCL_CONF": '{"password": "x11"}', "MASTER_NOTE": "AKIA" + "X12Y" * 4,
              "TORCH_NOTE": "use ghp_" + "x13z" * 9, "SLURM_NOTE": "eyJhbGciOiJub25lIn0.x14.", "CUDA_NOTE": "hf_" + "x15q" * 8, "OMP_NOTE": "-----BEGIN x16",
              "GLOO_NOTE": "Authorization: Bearer x17", "TORCHX_CALL": "curl -H bearer x18"}
    shown = {"NCCL_PAT_ENABLE": "1", "NCCL_ALGO": "allreduce:tree,ring;allgather:^pat", "NCCL_BYPASS": "1", "TORCH_LOGS": "+dynamo,guards", "SLURM_JOB_NAME": "tokenizer",
             "TORCH_HOME": "s3://bucket/a@b", "TORCH_DISK": "disk-0123456789abcdefghij", "SLURM_NODELIST": "n[1-3],m7", "TORCH_MODEL": "/keys/a/passwd",
             "TORCH_FR_BUFFER": "\x1b[1m"}
    for name, value in {**shown, **hidden}.items():
        monkeypatch.setenv(name, value)
    trace = record("pass\n").trace
    found = facts(sql, convert(trace))
    assert {k: found.get(k) for k in shown} == shown and not set(hidden) & set(found)
    text = subprocess.run(["zstd", "-dcq", str(trace)], stdout=subprocess.PIPE, check=True, timeout=240).stdout.decode("latin-1").lower()
    assert not [v for v in hidden.values() if v.lower() in text]


def test_the_list_is_a_setting(record, convert, sql, monkeypatch):
    monkeypatch.setenv("MINE_A", "1")
    monkeypatch.setenv("MINE_TOKEN", "2")
    monkeypatch.setenv("OTHER", "3")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    script = "pass\n"
    assert facts(sql, convert(record(script, options=["--set", "environment=MINE_*, OTHER"]).trace)) == {"MINE_A": "1", "OTHER": "3"}
    assert facts(sql, convert(record(script, options=["--set", "environment="]).trace)) == {}


def test_machine(record, convert, sql):
    machine = facts(sql, convert(record("pass\n").trace), "machine")
    assert machine["kernel"].startswith(platform.release()) and machine["architecture"] == platform.machine()
    assert int(machine["cpus"]) == os.cpu_count() and int(machine["cpus_allowed"]) == len(os.sched_getaffinity(0))
    assert machine["memory"].endswith("kB")
    models = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    assert not models or machine["cpu_model"] == models[0]


def test_in_every_segment(record_until, convert, sql, tmp_path, monkeypatch):  # noqa: F811
    from test_rotation import SCRIPT as BUSY
    monkeypatch.setenv("PROBING_SEGMENT_SIZE", "64K")
    monkeypatch.setenv("NCCL_DEBUG", "TRACE")
    script = BUSY.replace("time.sleep(SECONDS)", "import os, sys\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.05)")
    trace = record_until(lambda db: list(tmp_path.glob("*.zst.d/*.zst")), script, hz=1000).trace
    parts = list(tmp_path.glob(trace.name + ".d/*.zst")) + [trace]
    assert len(parts) > 1
    for part in parts:
        db = convert(part, options=["--alone"])
        assert facts(sql, db)["NCCL_DEBUG"] == "TRACE" and facts(sql, db, "machine")["kernel"]


@pytest.mark.parametrize("kind", ["debian", pytest.param("recent", marks=pytest.mark.slow)])
def test_versions_of_torch(record, convert, sql, kind):
    path, why = find_torch(kind)
    if not path:
        pytest.skip(why)
    done = record("import torch, numpy\nprint(torch.__version__, numpy.__version__)\n", python=path)
    torch, numpy = done.stdout.split()
    db = convert(done.trace)
    found = facts(sql, db, "versions", "name, version")
    assert found["torch"].split("+")[0] == torch.split("+")[0] and found["numpy"] == numpy
    assert found["python"] and found["agent"] and found["kernel"].startswith(platform.release())


def test_versions_without_running_python(record, convert, sql, tmp_path):
    """Packages of NVIDIA, names that are written in several ways, and a library with the version in its name: found in files alone."""
    site = tmp_path / "lib/python3.11/site-packages"
    source = tmp_path / "empty.c"
    source.write_text("int empty;\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "empty.so", source], check=True, timeout=240)
    for where in ("nvidia/nccl/lib/libnccl.so.2", "Some_Pkg/x.so", "torch/_C.so", "x/libcudart.so.12.4.127"):
        (site / where).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(tmp_path / "empty.so"), str(site / where))
    for name in ("nvidia_nccl_cu12-2.21.5.dist-info", "some.pkg-3.0rc1.dist-info", "torch-2.9.9+cu124.dist-info", "torchvision-1.dist-info",
                 "nvidia_nccl-evil"):
        (site / name).mkdir()
    (site / "torch/version.py").write_text("__version__ = '2.9.9+cu124'\nfrom x import y\ncuda: Optional[str] = '12.4'\n"
                                          "git_version = 'abc'\nhip = None\n")
    script = "import ctypes, glob, sys\n" \
             "for p in glob.glob(sys.argv[1] + '/**/*.so*', recursive=True): ctypes.CDLL(p)\n"
    found = facts(sql, convert(record(script, site).trace), "versions", "name, version")
    assert found["nccl"] == "2.21.5" and found["Some_Pkg"] == "3.0rc1" and found["torch"] == "2.9.9+cu124"
    assert found["torch.cuda"] == "12.4" and found["torch.git_version"] == "abc" and "torch.hip" not in found
    assert found["cuda_runtime"] == "12.4.127"
