# SPDX-License-Identifier: Apache-2.0
"""Servers and workers under load: bare, recorded at 1 kHz, and injected into again and again. They give the same answers, lose no
request, end with the same exit code, and the trace has the functions of their workers.
"""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest
import servers_session
from conftest import kill_group
from servers_session import REQUESTS, WAYS, Load, Session, check_seen, expected, free_port, needs, summary

pytestmark = [pytest.mark.slow, pytest.mark.limit(1200)]
interpreter = servers_session.interpreter  # a fixture


GUNICORN = ["-m", "gunicorn", "--bind", "127.0.0.1:{port}", "--graceful-timeout", "60", "--timeout", "120"]
SERVERS = {
    # name: (modules, command, path, whether SIGHUP reloads it)
    "gunicorn-sync": (["gunicorn"], GUNICORN + ["-w", "3", "wsgi:app"], "/?%d", True),
    "gunicorn-sync-max-requests": (["gunicorn"], GUNICORN + ["-w", "3", "--max-requests", "60", "wsgi:app"], "/?%d", False),
    "gunicorn-preload": (["gunicorn"], GUNICORN + ["-w", "2", "--preload", "wsgi:app"], "/?%d", False),
    "gunicorn-gthread": (["gunicorn"], GUNICORN + ["-w", "2", "--threads", "4", "wsgi:app"], "/?%d", True),
    "gunicorn-gevent": (["gunicorn", "gevent"], GUNICORN + ["-w", "2", "-k", "gevent", "wsgi:app"], "/?%d", True),
    "uvicorn": (["uvicorn", "fastapi"], ["-m", "uvicorn", "--port", "{port}", "asgi:app"], "/?n=%d", False),
    "uvicorn-async": (["uvicorn", "fastapi"], ["-m", "uvicorn", "--port", "{port}", "asgi:app"], "/async?n=%d", False),
    "uvicorn-workers": (["uvicorn", "fastapi"], ["-m", "uvicorn", "--workers", "2", "--port", "{port}", "asgi:app"], "/async?n=%d", False),
}
UWSGI = ["--http-socket", "127.0.0.1:{port}", "--master", "--die-on-term", "--wsgi-file", "wsgi.py", "--need-app"]
for name, more in (("prefork", ["--processes", "3"]), ("threads", ["--processes", "2", "--enable-threads", "--threads", "4"]),
                   ("max-requests", ["--processes", "3", "--max-requests", "60"]), ("lazy", ["--processes", "2", "--lazy-apps"])):
    SERVERS["uwsgi-" + name] = ([], ["uwsgi"] + UWSGI + more, "/?%d", False)


def serve(build, tmp_path, python, name, way):
    modules, command, path, reload = SERVERS[name]
    port = free_port()
    if command[0] == "uwsgi":
        uwsgi = os.path.join(os.path.dirname(python), "uwsgi")
        if not os.path.exists(uwsgi):
            pytest.skip("there is no uwsgi beside %s (see tests/README.md)" % python)
        # Debian's uWSGI loads its Python as a plugin; without --enable-threads its master never releases the GIL, and answers no evaluation
        command = [uwsgi] + (["--plugin", "python3", "--enable-threads"] if uwsgi == "/usr/bin/uwsgi" else []) + command[1:]
    else:
        needs(python, *modules)
        command = [python] + command
    session = Session(build, tmp_path, way, [c.replace("{port}", str(port)) for c in command])
    try:
        session.wait_for(lambda: Load(port, path, 1).end().served)
        session.inject()
        load = Load(port, path, more=session.wants_more)
        if reload:
            time.sleep(1)
            os.kill(session.pid, signal.SIGHUP)
        load.end()
        end = session.end(signal.SIGTERM)
        return session, load, end
    finally:
        session.close()


@pytest.mark.parametrize("name", SERVERS)
def test_server(build, tmp_path, interpreter, name):
    _, bare, bare_end = serve(build, tmp_path, interpreter, name, "bare")
    assert not bare.wrong and not isinstance(bare_end, str), (bare.wrong[:3], bare_end)
    for way in WAYS:
        session, load, end = serve(build, tmp_path, interpreter, name, way)
        summary(name, way, "%d of %d, end %s" % (sum(bare.served.values()), bare.asked, bare_end), "%d of %d, end %s" % (sum(load.served.values()), load.asked, end),
                "%d injections" % session.injector.done if session.injector else "%d processes" % len(load.served))
        assert (sum(load.served.values()), load.wrong[:3], end) == (load.asked, [], bare_end), session.output()[-3000:]
        check_seen(session, load.served)


# ---- celery -----------------------------------------------------------------------------------------------------------------

CLIENT = '''
import json, sys
from tasks import task
found = [task.delay(n) for n in range(int(sys.argv[1]))]
print(json.dumps([r.get(timeout=240) for r in found]))
'''


@pytest.fixture
def redis(tmp_path):
    path = shutil.which("redis-server")
    if not path:
        pytest.skip("there is no redis-server (Debian: redis-server)")
    port = free_port()
    process = subprocess.Popen([path, "--port", str(port), "--save", "", "--dir", str(tmp_path)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               start_new_session=True)
    yield "redis://127.0.0.1:%d/0" % port
    kill_group(process)


def work_off(build, tmp_path, python, redis, way, pool):
    session = Session(build, tmp_path, way, [python, "-m", "celery", "-A", "tasks", "worker", "--loglevel", "INFO"] + pool, BROKER=redis)
    try:
        session.wait_for(lambda: " ready." in session.output())
        session.inject()
        client = subprocess.run([python, "-c", CLIENT, str(REQUESTS)], cwd=str(session.where), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, universal_newlines=True, env=dict(os.environ, BROKER=redis, PYTHONPATH=str(session.where)))
        assert client.returncode == 0, client.stderr[-2000:] + session.output()[-2000:]
        served = {}
        for n, text in enumerate(json.loads(client.stdout)):
            pid, value = map(int, text.split())
            assert value == expected(n)
            served[pid] = served.get(pid, 0) + 1
        return session, served, session.end(signal.SIGTERM)
    finally:
        session.close()


POOLS = {"prefork": ["-c", "3", "-P", "prefork"], "prefork-max-tasks": ["-c", "2", "-P", "prefork", "--max-tasks-per-child", "50"],
         "threads": ["-c", "4", "-P", "threads"], "solo": ["-P", "solo"], "gevent": ["-c", "20", "-P", "gevent"]}


@pytest.mark.parametrize("pool", POOLS)
def test_celery(build, tmp_path, interpreter, redis, pool):
    needs(interpreter, "celery", "redis", *(["gevent"] if pool == "gevent" else []))
    _, bare, bare_end = work_off(build, tmp_path, interpreter, redis, "bare", POOLS[pool])
    for way in WAYS:
        session, served, end = work_off(build, tmp_path, interpreter, redis, way, POOLS[pool])
        summary("celery-" + pool, way, "%d answers, end %s" % (sum(bare.values()), bare_end), "%d answers, end %s" % (sum(served.values()), end),
                "%d injections" % session.injector.done if session.injector else "%d processes" % len(served))
        assert (sum(served.values()), end) == (sum(bare.values()), bare_end)
        check_seen(session, served)
