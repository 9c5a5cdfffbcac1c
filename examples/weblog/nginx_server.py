"""A real nginx on loopback, with an access log that says how long each request took, and a bounded load on it."""

import http.client
import os
import shutil
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path
from random import Random

# /api fails while there is a file `fault` beside the log.
CONFIG = """
daemon off;
master_process on;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
{user}
events {{ worker_connections 256; }}
http {{
    log_format timed '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
                     '"$http_referer" "$http_user_agent" $request_time';
    access_log {folder}/access.log timed;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 100000;
    server {{
        listen 127.0.0.1:{port};
        default_type text/plain;
        location / {{ return 200 "here you are\\n"; }}
        location /missing {{ return 404; }}
        location /api {{
            if (-f {folder}/fault) {{ return 503; }}
            return 200 "done\\n";
        }}
    }}
}}
"""


class NoServer(SystemExit):
    """There is no nginx on this machine."""


class WebServer:
    """nginx with a folder of its own; `rotate` does to its log what logrotate does."""

    def __init__(self, folder: Path, port: int) -> None:
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        if program is None:
            raise NoServer("this example needs nginx: install Debian's nginx-light (peers/servers does)")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port, self.log = folder, port, folder / "access.log"
        user = "user root;" if os.geteuid() == 0 else ""  # its folder need not be open to anybody else
        (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, port=port, user=user))
        command = [program, "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(folder / "nginx.conf")]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        while not self._answers():
            if self._process.poll() is not None:
                raise NoServer(f"nginx ended: {(folder / 'error.log').read_text()[-500:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)) as connection:
            try:
                self._request(connection, "/ready")
            except OSError:
                return False
        return True

    def _request(self, connection: http.client.HTTPConnection, path: str) -> int:
        connection.request("GET", path, headers={"User-Agent": "weblog/1"})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def load(self, requests: int, per_s: float, random: Random) -> int:
        """So many requests, one after the other, at most so many a second; how many."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        paths = random.choices(["/", "/api/orders?page=2", "/api/users", "/missing"], [5, 8, 4, 1], k=requests)
        begun = time.monotonic()
        for number, path in enumerate(paths):
            time.sleep(max(begun + number / per_s - time.monotonic(), 0))
            self._request(connection, path)
        connection.close()
        return requests

    def rotate(self) -> None:
        """The log gets another name, and nginx is told to open a new one."""
        self.log.rename(self.log.with_name("access.log.1"))
        self._process.send_signal(signal.SIGUSR1)

    def fail(self, *, now: bool) -> None:
        """From now on /api answers 503, or no longer."""
        fault = self.folder / "fault"
        fault.touch() if now else fault.unlink()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(timeout=30)
