"""JupyterLab as a reader starts it: its server opens files and runs kernels, without a browser."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from jupyter_client import BlockingKernelClient
from peak import PEAK_UNIT


class Failed(Exception):
    """A cell raised; the message is its traceback."""


class Lab:
    """A running ``jupyter lab``, as a context manager.

    Attributes
    ----------
    url, token : str
        Where it listens, on this machine alone, and what it wants to be shown.
    """

    def __init__(self, root, state, *, python=sys.executable, **environment):
        """Serve `root`; whatever Jupyter would keep in the home folder goes to `state`."""
        self.root, self.runtime, self._log = Path(root), Path(state) / "runtime", None
        self._command = [python, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0"]
        kept = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "IPYTHONDIR": "ipython",
        }
        # What pytest or make set for themselves is no part of a reader's shell.
        shell = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        places = {variable: str(Path(state) / name) for variable, name in kept.items()}
        self._environment = shell | places | environment

    def __enter__(self):
        self.runtime.mkdir(parents=True)
        self._log = (self.runtime / "log").open("wb")
        self._server = subprocess.Popen(
            self._command, cwd=self.root, env=self._environment, stdout=self._log, stderr=self._log
        )
        told = self.runtime / f"jpserver-{self._server.pid}.json"
        for _ in range(600):
            if told.exists() and (text := told.read_text("utf-8")):
                self.url, self.token = (json.loads(text)[name] for name in ("url", "token"))
                if self._listens():
                    return self
            if self._server.poll() is not None:
                break
            time.sleep(0.1)
        self.__exit__()
        raise Failed((self.runtime / "log").read_text("utf-8"))

    def __exit__(self, *_):
        self._server.terminate()  # it stops its kernels first
        try:
            self._server.wait(30)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._log.close()

    def _listens(self):
        """Whether the server takes questions: on a busy machine it says where before it does."""
        address = urlsplit(self.url)
        try:
            socket.create_connection((address.hostname, address.port), timeout=1).close()
        except OSError:
            return False
        return True

    def ask(self, path, send=None, method=None):
        """Answer of the server's interface, as Python objects; POST where something is sent."""
        body = None if send is None else json.dumps(send).encode()
        heads = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, body, heads, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or "null")

    def open(self, path):
        """What JupyterLab gets where a reader opens a file: the contents manager's record."""
        return self.ask(f"api/contents/{path}?content=1")

    def run(self, path, seconds=600):
        """Open a notebook and run all its cells in the kernel that the server gives it.

        Returns
        -------
        dict
            ``checks``: the lines of `ntpnb_book.check`. ``folder``: the kernel's working
            directory. ``seconds``, the kernel's start included. ``mib``: its peak memory.

        Raises
        ------
        Failed
            Where a cell raises.
        TimeoutError
            Where one takes longer than `seconds`.
        """
        cells, started = self.open(path)["content"]["cells"], time.monotonic()
        wanted = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
        session = self.ask("api/sessions", wanted)
        file = self.runtime / f"kernel-{session['kernel']['id']}.json"
        client = BlockingKernelClient(connection_file=str(file))
        client.load_connection_file()
        client.start_channels(hb=False)  # on a busy machine the first beats come late
        checks = []

        def collect(message):
            content = message["content"]
            if "id" in content.get("metadata", {}).get("ntpnb", {}):
                checks.append(content["data"]["text/plain"])

        try:
            client.wait_for_ready(timeout=60)
            for cell in cells:
                if cell["cell_type"] == "code":
                    reply = client.execute_interactive(
                        cell["source"], allow_stdin=False, timeout=seconds, output_hook=collect
                    )["content"]
                    if reply["status"] != "ok":
                        raise Failed("\n".join(reply.get("traceback", [reply["status"]])))
            took = time.monotonic() - started
            facts = {
                "folder": "__import__('os').getcwd()",
                "peak": "__import__('resource').getrusage(0).ru_maxrss",
            }
            reply = client.execute_interactive("", user_expressions=facts, timeout=60)["content"]
        finally:
            client.stop_channels()
            self.ask(f"api/sessions/{session['id']}", method="DELETE")
        told = {k: v["data"]["text/plain"] for k, v in reply["user_expressions"].items()}
        return {
            "checks": checks,
            "folder": told["folder"].strip("'"),
            "seconds": took,
            "mib": int(told["peak"]) / PEAK_UNIT,
        }
