"""Other proxies for `serving.py`, where they are installed: nginx with its proxy cache."""

import os
import shutil
import subprocess
from pathlib import Path

# One worker, as the proxy has. A POST is keyed by its whole body, which nginx must hold in memory.
NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000; client_max_body_size 8m;
  client_body_buffer_size 1m; client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u;
  scgi_temp_path {folder}/s;
  proxy_cache_path {folder}/cache keys_zone=answers:64m max_size=1g;
  upstream mock {{ server 127.0.0.1:{upstream}; keepalive 128; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_cache answers; proxy_cache_methods POST; proxy_cache_valid 200 1h;
      proxy_cache_key "$http_authorization|$request_uri|$request_body";
    }}
  }}
}}
"""


def start_nginx(folder: Path, *, port: int, upstream: int) -> subprocess.Popen[bytes] | None:
    """Running in the foreground; None where nginx is not installed."""
    program = shutil.which("nginx")
    if program is None:
        return None
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, port=port, upstream=upstream))
    return subprocess.Popen([program, "-c", str(config), "-p", str(folder)], env=dict(os.environ))
