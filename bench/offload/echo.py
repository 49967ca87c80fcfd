"""What carrying the bytes of a job costs by plain sockets: a file there, BACK bytes back into another, nothing else done.

    echo.py serve ADDRESS PORT | echo.py ask ADDRESS PORT FILE BACK OUT

The server says its processor time to every client, after the bytes; a client prints that, its own and the seconds it took.
"""

import json
import os
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
    piece, got = memoryview(bytearray(PIECE)), 0
    while got < want and (some := conn.recv_into(piece, min(PIECE, want - got))):
        got += some
        yield piece[:some]


def send_file(conn, file):
    piece = memoryview(bytearray(PIECE))
    while some := file.readinto(piece):
        conn.sendall(piece[:some])


def send(conn, lengths):
    zeros = memoryview(bytes(PIECE))
    for length in lengths:
        while length:
            some = min(length, PIECE)
            conn.sendall(zeros[:some])
            length -= some


def serve(address, port):
    with socket.create_server((address, port), family=socket.AF_INET6) as listener:
        while True:
            conn, _ = listener.accept()
            with conn:
                began = time.process_time()
                want, back = HEAD.unpack(conn.recv(HEAD.size, socket.MSG_WAITALL))
                due = queue.SimpleQueue()
                sender = threading.Thread(target=lambda: send(conn, iter(due.get, None)))
                sender.start()
                got = sent = 0
                for piece in receive(conn, want):
                    got += len(piece)
                    # By the piece, as answers are, and not by the packet.
                    if (more := got * back // want - sent) >= PIECE or got == want:
                        due.put(more)
                        sent += more
                due.put(None)
                sender.join()
                conn.sendall(struct.pack("!d", time.process_time() - began))


def ask(address, port, path, back, out):
    with socket.create_connection((address, port)) as conn, open(path, "rb", buffering=0) as file, open(out, "wb", buffering=0) as made:
        began = time.monotonic(), time.process_time()
        conn.sendall(HEAD.pack(os.fstat(file.fileno()).st_size, back))
        sender = threading.Thread(target=send_file, args=(conn, file))
        sender.start()
        for piece in receive(conn, back):
            made.write(piece)
        sender.join()
        seconds, cpu_s = time.monotonic() - began[0], time.process_time() - began[1]
        server_cpu_s, = struct.unpack("!d", conn.recv(8, socket.MSG_WAITALL))
    print(json.dumps({"seconds": seconds, "client_cpu_s": cpu_s, "server_cpu_s": server_cpu_s}))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", address, port]:
            serve(address, int(port))
        case ["ask", address, port, path, back, out]:
            ask(address, int(port), path, int(back), out)
        case _:
            sys.exit(__doc__)
