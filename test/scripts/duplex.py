"""Sends and receives on one TCP connection at once, and prints the bytes a second that came in.

  duplex.py listen ADDRESS SECONDS     one end
  duplex.py connect ADDRESS SECONDS    the other
The first half second, with its slow start and the bucket's first burst, is left out.
"""
import socket
import sys
import threading
import time

PORT = 5201
WARM_UP_S = 0.5


def open_connection(role, address):
    if role == "listen":
        with socket.create_server((address, PORT)) as server:
            return server.accept()[0]
    for _ in range(100):
        try:
            return socket.create_connection((address, PORT), timeout=5)
        except ConnectionRefusedError:
            time.sleep(0.05)
    sys.exit("duplex: nobody listens")


def main(role, address, seconds):
    connection = open_connection(role, address)
    connection.settimeout(seconds + 10)
    start = time.monotonic()

    def send():
        chunk = bytes(1 << 18)
        while time.monotonic() < start + seconds:
            connection.sendall(chunk)
        connection.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    received, end = 0, start
    while data := connection.recv(1 << 18):
        end = time.monotonic()
        if end > start + WARM_UP_S:
            received += len(data)
    sender.join()
    print(received / (end - start - WARM_UP_S))


main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
