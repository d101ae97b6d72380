"""A camera on loopback, ingested as it sends and judged by the commands."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from drawn_images import CLASSES, class_folders, picture

FRAMES = 40


class Camera(BaseHTTPRequestHandler):
    """Motion JPEG over HTTP, as most network cameras have it."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
        self.end_headers()
        for number in range(FRAMES):
            kind = CLASSES[2] if number > 30 else CLASSES[number % 2]
            image = picture(kind, 9000 + number)
            head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(image)}\r\n\r\n"
            self.wfile.write(head.encode() + image + b"\r\n")
            time.sleep(0.05)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody wants to read of each request."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backbone", default="embedded")
    chosen = parser.parse_args()
    folder: Path = chosen.folder
    class_folders(folder / "labelled", CLASSES[:2], each=60)
    with ThreadingHTTPServer(("127.0.0.1", 0), Camera) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        gate = f"gate=http://127.0.0.1:{server.server_port}/stream"
        conclad(folder, "ingest", gate, "--to", "feed", "--fps", "30")
        server.shutdown()
    flags = ["--set", f"backbone.name={chosen.backbone}", "--set", "run.address=none"]
    conclad(folder, "fit", "--data", "labelled", *flags)
    conclad(folder, "run", "--once", *flags)


def conclad(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "monitor.cli", *arguments], cwd=folder, check=True)


if __name__ == "__main__":
    main()
