"""A scripted directory: a stand-in for slapd that misbehaves exactly as told."""

import socket
import threading

# Operations by the tag of their request (RFC 4511).
OPERATIONS = {0x60: "bind", 0x63: "search", 0x77: "extended", 0x42: "unbind"}


def value(tag, body=b""):
    """A value in the Basic Encoding Rules."""
    length = len(body)
    if length < 0x80:
        return bytes([tag, length]) + body
    digits = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(digits)]) + digits + body


def message(number, tag, body=b""):
    """A message in answer to one of the client's."""
    return value(0x30, value(2, bytes([number])) + value(tag, body))


def outcome(code, text=b"", more=b""):
    """How an operation ended."""
    return value(10, bytes([code])) + value(4) + value(4, text) + more


def bound(number, code=0, text=b""):
    """A bind is over."""
    return message(number, 0x61, outcome(code, text))


def entry(number, name, attributes=b""):
    """A search found this."""
    return message(number, 0x64, value(4, name.encode()) + value(0x30, attributes))


def reference(number, url):
    """There may be more elsewhere."""
    return message(number, 0x73, value(4, url.encode()))


def searched(number, code=0, more=b""):
    """A search is over."""
    return message(number, 0x65, outcome(code, more=more))


def extended(number, code=0):
    """An extended operation is over."""
    return message(number, 0x78, outcome(code))


def parts(body):
    """The values in a constructed one, as (tag, body)."""
    found = []
    while body:
        length, start = body[1], 2
        if length & 0x80:
            start += length & 0x7f
            length = int.from_bytes(body[2:start], "big")
        found.append((body[0], body[start:start + length]))
        body = body[start + length:]
    return found


class Directory:
    """Listens on a loopback port until told to stop; each connection has a thread.

    `answers` says what follows a request, by operation: bytes, an iterable of bytes that are sent
    until nobody takes them, or a function that is given the request's number and gives either.
    What is not in it succeeds; a search finds `uid=ann`. `tls` (an SSLContext) is begun behind the
    answer to an extended operation.
    """

    def __init__(self, tls=None, **answers):
        self.answers = answers
        self.tls = tls
        self.binds = []
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.host, self.port = self.listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Wakes the thread that accepts.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def options(self, more=""):
        """Options for Howdah that lead here."""
        return f"ldapserver={self.host} ldapport={self.port} {more}"

    def _accept(self):
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link):
        try:
            while (request := receive(link)) is not None:
                link = self._answer(link, request)
        except OSError:
            pass  # Whoever is tested has had enough.
        finally:
            link.close()

    def _answer(self, link, request):
        """Answers a request; gives what it goes on by."""
        (_, number), (tag, body), *_ = parts(request)
        operation, number = OPERATIONS[tag], number[-1]
        if operation == "unbind":
            return link
        if operation == "bind":
            _, (_, name), (_, password) = parts(body)
            self.binds.append((name.decode(), password.decode()))
        answer = self.answers.get(operation, getattr(self, f"_{operation}"))
        if callable(answer):
            answer = answer(number)
        for piece in [answer] if isinstance(answer, bytes) else answer:
            link.sendall(piece)
        if operation == "extended" and self.tls:
            return self.tls.wrap_socket(link, server_side=True)
        return link

    def _bind(self, number):
        return bound(number)

    def _search(self, number):
        return entry(number, "uid=ann") + searched(number)

    def _extended(self, number):
        return extended(number)


def receive(link):
    """The body of the next message; None at the end."""
    head = take(link, 2)
    if len(head) < 2:
        return None
    length = head[1]
    if length & 0x80:
        length = int.from_bytes(take(link, length & 0x7f), "big")
    return take(link, length)


def take(link, length):
    """So many bytes; fewer at the end."""
    got = b""
    while len(got) < length and (piece := link.recv(length - len(got))):
        got += piece
    return got
