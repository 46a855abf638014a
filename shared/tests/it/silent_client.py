"""A client of PostgreSQL that falls silent as a frozen sandbox does: its kernel answers nothing, neither data nor keepalives.

Arguments: host, port, user, database, and the state to fall silent in: idle, transaction or message (half a message inside a
transaction). Prints the session's process id; on a line of standard input it can be heard again, and it prints what a query
then gives. A socket filter that drops every packet makes the silence, so no root is needed.
"""

import ctypes
import socket
import struct
import sys

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27


def message(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!i", len(content) + 4) + content


def query(sql: str) -> bytes:
    return message(b"Q", sql.encode() + b"\0")


class Session:
    def __init__(self, host: str, port: str, user: str, database: str):
        self.socket = socket.create_connection((host, int(port)))
        start = struct.pack("!i", 196608) + f"user\0{user}\0database\0{database}\0\0".encode()
        self.socket.sendall(struct.pack("!i", len(start) + 4) + start)
        self.until_ready()

    def exactly(self, count: int) -> bytes:
        read = b""
        while len(read) < count:
            more = self.socket.recv(count - len(read))
            if not more:
                raise ConnectionError("ended")
            read += more
        return read

    def until_ready(self) -> list[bytes]:
        columns = []
        while True:
            kind, (length,) = self.exactly(1), struct.unpack("!i", self.exactly(4))
            content = self.exactly(length - 4)
            if kind == b"D":
                columns.append(content[6:])
            if kind == b"E":
                raise ConnectionError(content.decode(errors="replace"))
            if kind == b"Z":
                return columns

    def ask(self, sql: str) -> list[bytes]:
        self.socket.sendall(query(sql))
        return self.until_ready()

    def fall_silent(self) -> None:
        refuse_all = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
        program = struct.pack("HL", 1, ctypes.addressof(refuse_all))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)

    def be_heard(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, struct.pack("i", 0))


def main(host: str, port: str, user: str, database: str, state: str) -> None:
    session = Session(host, port, user, database)
    pid = session.ask("select pg_backend_pid()")[0].decode()
    if state != "idle":
        session.ask("begin; select pg_advisory_xact_lock(pg_backend_pid())")
    if state == "message":
        whole = query("select 1 /*" + "x" * 1000 + "*/")
        session.socket.sendall(whole[: len(whole) // 2])
    session.fall_silent()
    print(pid, flush=True)
    sys.stdin.readline()
    session.be_heard()
    try:
        print(session.ask("select 'heard'")[0].decode(), flush=True)
    except OSError as error:
        print(f"lost: {error}", flush=True)


main(*sys.argv[1:])
