"""Start the server and use its API from your own program.

The server prints one line of JSON when it is ready: its address and the token that every request needs.
"""

import json
import subprocess
import sys
from urllib.request import Request, urlopen

server = subprocess.Popen([sys.executable, "-m", "inlayer", "serve", "--json"], stdout=subprocess.PIPE, text=True)
try:
    assert server.stdout is not None  # it is a pipe
    address = json.loads(server.stdout.readline())
    print("models:", address["models"])
    base = f"http://{address['host']}:{address['port']}"
    headers = {"Authorization": f"Bearer {address['token']}", "Content-Type": "application/json"}

    question = json.dumps({"texts": ["I love dogs"], "dims": 4}).encode()
    with urlopen(Request(f"{base}/api/walk", question, headers), timeout=60) as response:
        trace = json.load(response)
    for token in trace["texts"][0]["tokens"]:
        print(f"{token['label']!r:8} id {token['id']:5}  hidden {[round(value, 3) for value in token['hidden']]}")

    with urlopen(Request(f"{base}/api/token?id=812&k=4", headers=headers), timeout=60) as response:
        facts = json.load(response)
    print("nearest rows:", [neighbor["label"] for neighbor in facts["neighbors"]])
finally:
    server.terminate()
    server.wait()
print("stopped")
