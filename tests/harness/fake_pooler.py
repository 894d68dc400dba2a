#!/usr/bin/env python3
"""Passes bytes on between clients and PostgreSQL, and then does not: for tests of ./bench.

Its config is `PORT SERVER_PORT ...`. What it does wrong after a thousand messages stands in a file."""

import os
import socket
import sys
import threading

ENOUGH = 1000


def main():
    if "--version" in sys.argv:
        print("fake 1")
        return
    with open("MODE_FILE", encoding="utf-8") as file:
        mode = file.read()
    with open(sys.argv[-1 if len(sys.argv) == 2 else 2], encoding="utf-8") as file:
        port, server_port = map(int, file.read().split()[:2])
    if mode == "deaf":
        sys.exit(f"fatal: port is in use: {port}")
    listener = socket.create_server(("127.0.0.1", port), backlog=1000)
    heard = [0]
    hung = threading.Event()

    def pass_on(source, target, is_client):
        while data := source.recv(65536):
            heard[0] += is_client
            if heard[0] > ENOUGH:
                if mode == "hang":
                    hung.wait()
                elif mode == "die":
                    print("fatal: no more memory", flush=True)
                    os._exit(3)
                elif mode == "wrong" and not is_client:
                    # The value of a row's only column, which is a number.
                    at = data.rfind(b"\0\x01\0\0\0")
                    if at >= 0 and len(data) > at + 6:
                        digit = b"2" if data[at + 6:at + 7] == b"1" else b"1"
                        data = data[:at + 6] + digit + data[at + 7:]
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)

    def guarded(*arguments):
        try:
            pass_on(*arguments)
        except OSError:
            pass

    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", server_port))
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for arguments in ((client, server, True), (server, client, False)):
            threading.Thread(target=guarded, args=arguments, daemon=True).start()


main()
