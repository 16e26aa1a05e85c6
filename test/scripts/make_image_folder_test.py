"""make-image-folder writes every image of an IDX data set as a PNG in the folder of its class."""
import gzip
import struct
import unittest
import zlib

from script_test import SCRIPTS, ScriptTest, run

HEIGHT, WIDTH = 3, 2


def pixel(image, place):
    return (37 * image + 11 * place) % 256


def read_grey_png(content):
    """Height, width and pixels of a PNG of grey bytes without row filters; checks all checksums."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(content):
        (length,) = struct.unpack(">I", content[at:at + 4])
        kind, data = content[at + 4:at + 8], content[at + 8:at + 8 + length]
        assert content[at + 8 + length:at + 12 + length] == struct.pack(">I", zlib.crc32(kind + data))
        chunks[kind] = data
        at += 12 + length
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert rest == [8, 0, 0, 0, 0] and b"IEND" in chunks
    rows = zlib.decompress(chunks[b"IDAT"])
    assert all(rows[y * (width + 1)] == 0 for y in range(height))
    return height, width, b"".join(rows[y * (width + 1) + 1:(y + 1) * (width + 1)] for y in range(height))


class MakeImageFolderTest(ScriptTest):
    def setUp(self):
        super().setUp()
        self.source = self.folder / "idx"
        self.source.mkdir()
        for stem, count in (("train", 5), ("t10k", 2)):
            pixels = bytes(pixel(i, p) for i in range(count) for p in range(HEIGHT * WIDTH))
            images = struct.pack(">IIII", 0x803, count, HEIGHT, WIDTH) + pixels
            labels = struct.pack(">II", 0x801, count) + bytes(11 * i % 12 for i in range(count))
            (self.source / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
            (self.source / f"{stem}-labels-idx1-ubyte").write_bytes(labels)

    def make(self, *options):
        return run(SCRIPTS / "make-image-folder", self.source, self.folder / "png", *options)

    def test_each_image_lies_in_its_class(self):
        done = self.make()
        self.assertEqual(done.returncode, 0, done.stderr)
        found = sorted(str(path.relative_to(self.folder / "png")) for path in (self.folder / "png").rglob("*.png"))
        self.assertEqual(found, ["test/00/00000.png", "test/11/00001.png", "train/00/00000.png", "train/08/00004.png",
                                 "train/09/00003.png", "train/10/00002.png", "train/11/00001.png"])
        for image, path in ((4, "train/08/00004.png"), (1, "test/11/00001.png")):
            pixels = bytes(pixel(image, p) for p in range(HEIGHT * WIDTH))
            self.assertEqual(read_grey_png((self.folder / "png" / path).read_bytes()), (HEIGHT, WIDTH, pixels))

    def test_limits_take_the_first(self):
        self.assertEqual(self.make("--train", 2, "--test", 1).returncode, 0)
        self.assertEqual(len(list((self.folder / "png").rglob("*.png"))), 3)

    def test_bad_input_is_refused(self):
        self.write("png/old.txt", "")
        self.assertIn("expected a new or empty directory", self.make().stderr)
        (self.folder / "png" / "old.txt").unlink()
        (self.source / "t10k-labels-idx1-ubyte").write_bytes(b"\0\0\x08\1\0\0\0\3\1\2")
        done = self.make()
        self.assertEqual(done.returncode, 2)
        self.assertIn("t10k-labels-idx1-ubyte: expected 3 bytes", done.stderr)


if __name__ == "__main__":
    unittest.main()
