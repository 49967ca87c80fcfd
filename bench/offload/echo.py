"""What carrying the bytes of a job costs by plain sockets: bytes there, some of them back, nothing else done.

    echo.py serve ADDRESS PORT | echo.py ask ADDRESS PORT BYTES BACK

The server says its processor time to every client, after the bytes; a client prints that, its own and the seconds it took.
"""

import json
import queue
import socket
import struct
import sys
import threading
import time

PIECE = 256 << 10
HEAD = struct.Struct("!QQ")


def receive(conn, want):
    """All of `want` bytes, or what came before the end."""
    piece, got = bytearray(PIECE), 0
    while got < want and (some := conn.recv_into(piece, min(PIECE, want - got))):
        got += some
        yield some


def send(conn, lengths):
    zeros = memoryview(bytes(PIECE))
    for length in lengths:
        while length:
            some = min(length, PIECE)
            conn.sendall(zeros[:some])
            length -= some


def serve(address, port):
    with socket.create_server((address, port)) as listener:
        while True:
            conn, _ = listener.accept()
            with conn:
                began = time.process_time()
                want, back = HEAD.unpack(conn.recv(HEAD.size, socket.MSG_WAITALL))
                due = queue.SimpleQueue()
                sender = threading.Thread(target=lambda: send(conn, iter(due.get, None)))
                sender.start()
                got = sent = 0
                for some in receive(conn, want):
                    got += some
                    # By the piece, as answers are, and not by the packet.
                    if (more := got * back // want - sent) >= PIECE or got == want:
                        due.put(more)
                        sent += more
                due.put(None)
                sender.join()
                conn.sendall(struct.pack("!d", time.process_time() - began))


def ask(address, port, want, back):
    with socket.create_connection((address, port)) as conn:
        began = time.monotonic(), time.process_time()
        conn.sendall(HEAD.pack(want, back))
        sender = threading.Thread(target=send, args=(conn, [want]))
        sender.start()
        for _ in receive(conn, back):
            pass
        sender.join()
        seconds, cpu_s = time.monotonic() - began[0], time.process_time() - began[1]
        server_cpu_s, = struct.unpack("!d", conn.recv(8, socket.MSG_WAITALL))
    print(json.dumps({"seconds": seconds, "client_cpu_s": cpu_s, "server_cpu_s": server_cpu_s}))


if __name__ == "__main__":
    verb, address, *numbers = sys.argv[1:]
    {"serve": serve, "ask": ask}[verb](address, *map(int, numbers))
